"""Make a model fast on this machine, and exact where that costs little: packed layers and our own attention.

What wins is measured and what is exact is tried, layer by layer and shape by shape, when a model is loaded; whatever
does not work out leaves the model as transformers made it, with a note that says why. This file refuses to know
model names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from truedraft.errors import UnsupportedModelError
from truedraft.targets.activations import even_activations
from truedraft.targets.attention import PLAIN, Layout, register
from truedraft.targets.exact import HeadCount, find_layout
from truedraft.targets.kernels import KERNELS, Packed, why_not
from truedraft.targets.lean import make_lean
from truedraft.targets.masks import MASKED_ATTENTION
from truedraft.targets.packed import Linear, Product, joined, linears, pack, siblings
from truedraft.targets.products import Form, Stopwatch, Trial, form_of, try_out

__all__ = ["Preparation", "prepare"]

_SURVEY = "truedraft-survey"
_TOLERATED = 1.1  # an exact layer may cost so much of the time of the fastest before exactness has to be asked for


@dataclass(frozen=True)
class Preparation:
    """What became of a model. exact: whether logits are the same bits however a text is drafted, batched and cut.

    notes: a line each for what could not be had, with the reason. ragged: whether it can run on passes without padding.
    """

    exact: bool
    notes: tuple[str, ...] = ()
    ragged: bool = False


@dataclass(frozen=True)
class _Survey:
    """What one short pass shows. groups: layers that share an input, by form. heads: the shapes of attention."""

    groups: list[tuple[Form, list[Linear]]]
    heads: set[HeadCount]


def prepare(
    model: PreTrainedModel,
    *,
    exact: bool | None = None,
    weights: str = "auto",
    stopwatch: Stopwatch | None = None,
) -> Preparation:
    """Replace a model's layers and attention by faster ones where there are any, and by exact ones if asked.

    exact: None is as long as it costs no more than a tenth. weights: a name of `KERNELS`; all but "auto" round the
    weights of all layers but the head, whose logits would tie. Raises `UnsupportedModelError` if exactness or rounded
    weights are asked for and cannot be had.
    """
    obstacle = why_not(next(model.parameters()), KERNELS[weights])
    if obstacle is not None and weights != "auto":
        raise UnsupportedModelError(f"weights cannot be {weights} here: {obstacle}; leave weights out")
    if obstacle is not None:
        return _unprepared(exact, obstacle)
    survey = _survey(model, weights)
    stopwatch = stopwatch or Stopwatch()
    trials: dict[Form, Trial] = {}
    for form, group in survey.groups:
        if form not in trials:
            trials[form] = try_out(form, group, stopwatch)
    layout = None if exact is False else find_layout(survey.heads)
    obstacle = _why_not_exact(model, survey, trials, layout)
    if exact and obstacle is not None:
        return _unprepared(exact, obstacle)
    becomes_exact = exact is not False and obstacle is None and (exact or _is_cheap(survey, trials))
    _replace(model, survey, trials, all_of_them=becomes_exact)
    if becomes_exact:
        even_activations(model)
    ragged = False
    if survey.heads and model.dtype is torch.float32:
        chosen = layout if becomes_exact and layout else PLAIN
        model.set_attn_implementation(register(chosen))
        ragged = make_lean(model, chosen)
    return Preparation(becomes_exact, () if exact is False or obstacle is None else (obstacle,), ragged)


def _unprepared(exact: bool | None, obstacle: str) -> Preparation:
    if exact:
        raise UnsupportedModelError(f"logits cannot be exact here: {obstacle}; leave exact out")
    return Preparation(False, (obstacle,))


def _why_not_exact(
    model: PreTrainedModel, survey: _Survey, trials: dict[Form, Trial], layout: Layout | None
) -> str | None:
    """Why logits cannot be exact, None if they can."""
    if model.dtype is not torch.float32:
        return f"exact logits need float32, and the model is in {model.dtype}"
    if not survey.heads:
        return f"{model.config.model_type} does not use transformers' attention interface"
    inexact = [form for form, trial in trials.items() if trial.exact_rows is None]
    if inexact:
        return f"products of {inexact[0].inputs} by {inexact[0].outputs} depend on how many rows they have"
    return "no attention is known whose rows do not depend on each other on this processor" if layout is None else None


def _is_cheap(survey: _Survey, trials: dict[Form, Trial]) -> bool:
    """Whether packing every layer costs little compared with the faster way for each."""
    run = [trials[form] for form, _ in survey.groups]
    return sum(trial.packed for trial in run) <= _TOLERATED * sum(min(trial.plain, trial.packed) for trial in run)


def _replace(model: PreTrainedModel, survey: _Survey, trials: dict[Form, Trial], *, all_of_them: bool) -> None:
    """Pack the layers that gain by it, or all."""
    for form, group in survey.groups:
        trial = trials[form]
        if all_of_them or trial.packed < trial.plain:
            weight, bias = joined(group)
            pack(model, group, Product(weight, bias, rows=trial.rows, kernel=form.kernel))


# ── a short pass, and what is measured ────────────────────────────────────────────────────────────────────────────


def _survey(model: PreTrainedModel, weights: str) -> _Survey:
    """Run two tokens through the model and look on; its attention is left as it was."""
    heads: set[HeadCount] = set()

    def note(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, None]:
        heads.add(HeadCount(query.shape[1], key.shape[1], query.shape[3], value.shape[3]))
        output = value.mean(2, keepdim=True).repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        return output.expand(-1, -1, query.shape[2], -1).transpose(1, 2).contiguous(), None

    AttentionInterface.register(_SURVEY, note)
    AttentionMaskInterface.register(_SURVEY, MASKED_ATTENTION[PLAIN.name])
    before = model.config._attn_implementation
    model.set_attn_implementation(_SURVEY)
    try:
        groups = siblings(
            model, linears(model), lambda: model(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
        )
    finally:
        model.set_attn_implementation(before)
    return _Survey([(_form(model, group, weights), group) for group in groups], heads)


def _form(model: PreTrainedModel, group: list[Linear], weights: str) -> Form:
    """The form of a group's product, with the kernel that it is to have."""
    is_head = model.get_output_embeddings() in group
    return form_of(group, Packed if is_head else KERNELS[weights])
