"""Make a model fast on this machine, and exact where that costs little: packed layers and our own attention.

What wins is measured and what is exact is tried, layer by layer and shape by shape, when a model is loaded, and what
takes the place of something else is compared with it; whatever does not work out leaves the model as transformers made
it, with a note that says why. This file refuses to know model names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from truedraft.errors import UnsupportedModelError
from truedraft.targets.activations import even_activations
from truedraft.targets.adopt import Adoption, adopt
from truedraft.targets.attention import PLAIN, Layout
from truedraft.targets.exact import find_layout
from truedraft.targets.kernels import KERNELS, Float16, MakeKernel, Packed, why_not
from truedraft.targets.lean import make_lean
from truedraft.targets.look import Look, look_at
from truedraft.targets.packed import Linear, Product, joined, pack
from truedraft.targets.products import Form, Stopwatch, Trial, form_of, pad, try_out

__all__ = ["Preparation", "prepare"]

_TOLERATED = 1.1  # an exact layer may cost so much of the time of the fastest before exactness has to be asked for


@dataclass(frozen=True)
class Preparation:
    """What became of a model. exact: whether logits are the same bits however a text is drafted, batched and cut.

    notes: a line each for what could not be had, with the reason. ragged: whether it can run on passes without padding.
    weights: the name among `KERNELS` of what most weights are multiplied by.
    """

    exact: bool
    notes: tuple[str, ...] = ()
    ragged: bool = False
    weights: str = "auto"


_Groups = Sequence[tuple[Form, list[Linear]]]
"""Layers that share an input, with the form of their product."""


def prepare(
    model: PreTrainedModel,
    *,
    exact: bool | None = None,
    weights: str = "auto",
    stopwatch: Stopwatch | None = None,
) -> Preparation:
    """Replace a model's layers and attention by faster ones where there are any, and by exact ones if asked.

    exact: None is as long as it costs no more than a tenth. weights: a name of `KERNELS`; all but "auto" round the
    weights of all layers, but not of a head whose logits would tie. Raises `UnsupportedModelError` if exactness or
    rounded weights are asked for and cannot be had.
    """
    sample = next(model.parameters())
    obstacle = why_not(sample, KERNELS[weights])
    if obstacle is not None and weights != "auto":
        raise UnsupportedModelError(f"weights cannot be {weights} here: {obstacle}; leave weights out")
    if obstacle is not None:
        return _unprepared(exact, obstacle)
    look, clock = look_at(model), stopwatch or Stopwatch()
    groups, trials = _tried(_formed(model, look, weights), clock)
    layout = None if exact is False else find_layout(look.heads)
    obstacle = _why_not_exact(model, look, trials, layout)
    if exact and obstacle is not None:
        return _unprepared(exact, obstacle)
    becomes_exact = exact is not False and obstacle is None and (exact or _is_cheap(groups, trials))
    adoption = _adopted(model, look, layout if becomes_exact else None)
    if becomes_exact and not adoption.attention:
        becomes_exact, obstacle = False, adoption.fault
        if exact:
            return _unprepared(exact, obstacle or "")
    pad(_replace(model, groups, trials, all_of_them=becomes_exact), clock)
    if becomes_exact:
        even_activations(model)
    if adoption.can_be_lean:
        make_lean(model, layout if becomes_exact and layout else PLAIN)
    said = (None if exact is False else obstacle, adoption.fault)
    notes = tuple(dict.fromkeys(note for note in said if note is not None))
    return Preparation(becomes_exact, notes, adoption.can_be_lean, _mostly(groups))


def _adopted(model: PreTrainedModel, look: Look, layout: Layout | None) -> Adoption:
    """Our attention of this layout, or a plain one, where it can take the place of the model's own."""
    if not look.heads or model.dtype is not torch.float32:
        return Adoption()
    return adopt(model, layout or PLAIN) if look.foreign is None else Adoption(fault=_foreign(model, look.foreign))


def _foreign(model: PreTrainedModel, reason: str) -> str:
    return f"{model.config.model_type} keeps its own attention: {reason}"


def _unprepared(exact: bool | None, obstacle: str) -> Preparation:
    if exact:
        raise UnsupportedModelError(f"logits cannot be exact here: {obstacle}; leave exact out")
    return Preparation(False, (obstacle,))


def _why_not_exact(model: PreTrainedModel, look: Look, trials: dict[Form, Trial], layout: Layout | None) -> str | None:
    """Why logits cannot be exact, None if they can."""
    if model.dtype is not torch.float32:
        return f"exact logits need float32, and the model is in {model.dtype}"
    if not look.heads:
        return f"{model.config.model_type} does not use transformers' attention interface"
    if look.foreign is not None:
        return _foreign(model, look.foreign)
    if look.outside:
        return f"{model.config.model_type} multiplies outside its linear layers ({', '.join(sorted(look.outside))})"
    inexact = [form for form, trial in trials.items() if trial.exact_rows is None]
    if inexact:
        return f"products of {inexact[0].inputs} by {inexact[0].outputs} depend on how many rows they have"
    return "no attention is known whose rows do not depend on each other on this processor" if layout is None else None


def _is_cheap(groups: _Groups, trials: dict[Form, Trial]) -> bool:
    """Whether packing every layer costs little compared with the faster way for each."""
    run = [trials[form] for form, _ in groups]
    return sum(trial.packed for trial in run) <= _TOLERATED * sum(min(trial.plain, trial.packed) for trial in run)


def _replace(model: PreTrainedModel, groups: _Groups, trials: dict[Form, Trial], *, all_of_them: bool) -> list[Product]:
    """Pack the layers that gain by it, or all; their products."""
    products = []
    for form, group in groups:
        trial = trials[form]
        if all_of_them or trial.packed < trial.plain:
            weight, bias = joined(group)
            products.append(Product(weight, bias, rows=trial.exact_rows or 1, kernel=form.kernel))
            pack(model, group, products[-1])
    return products


# ── kernels ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _formed(model: PreTrainedModel, look: Look, weights: str) -> _Groups:
    """The groups with the kernels that they are to have: none that rounds, unless by name and not what ties logits."""
    wanted = KERNELS[weights]
    narrow = why_not(next(model.parameters()), Float16) is None

    def kernel_of(group: list[Linear]) -> tuple[MakeKernel, bool]:
        is_head = model.get_output_embeddings() in group
        if weights != "auto" and not (is_head and wanted.results is torch.bfloat16):
            return wanted, True
        held = narrow and all(Float16.holds(joined([layer])[0]) for layer in group)
        return (Float16 if held else Packed), False

    def form(group: list[Linear]) -> Form:
        kernel, rounds = kernel_of(group)
        return form_of(group, kernel, rounds=rounds)

    return [(form(group), group) for group in look.groups]


def _tried(groups: _Groups, stopwatch: Stopwatch) -> tuple[_Groups, dict[Form, Trial]]:
    """A trial of every form. Float16 takes the place of float32 if it is faster, which one common form decides for all.

    One for all, because it decides bits: near ties would hang on the noise of the clock.
    """
    example = dict(groups)
    trials = {form: try_out(form, group, stopwatch) for form, group in example.items()}
    counts = Counter(form for form, _ in groups if _wide(form) != form)
    if not counts:
        return groups, trials
    common = max(counts, key=lambda form: (counts[form], form.outputs * form.inputs))
    wide = try_out(_wide(common), example[common], stopwatch)
    is_exact = all(trials[form].exact_rows is not None for form in counts)
    if trials[common].packed <= wide.packed and (is_exact or wide.exact_rows is None):
        return groups, trials
    known = {**trials, _wide(common): wide}
    widened = [(_wide(form), group) for form, group in groups]
    return widened, {form: known.get(form) or try_out(form, group, stopwatch) for form, group in dict(widened).items()}


def _wide(form: Form) -> Form:
    """The form with float32 in the place of a float16 that rounds nothing."""
    return replace(form, kernel=Packed) if form.kernel is Float16 and not form.rounds else form


def _mostly(groups: _Groups) -> str:
    """The name of the kernel that multiplies by most weights."""
    weights: Counter[str] = Counter()
    names = {kernel: name for name, kernel in KERNELS.items()}
    for form, _ in groups:
        weights[names[form.kernel]] += form.outputs * form.inputs
    return max(weights, key=weights.__getitem__, default="auto")
