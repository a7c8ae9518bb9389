"""A trial run of a model: how its layers cache, and whether draft trees are scored as their paths are.

Models that take their positions or their mask from elsewhere than where transformers' conventions put them would be
silently wrong on a tree, or beside a longer text. A few short passes find them out when a model is wrapped, whatever
their name. What an attention does only behind many tokens (a window, chunks, a scale that grows) shows in a text that
is longer than the number its configuration names; a text of hundreds of tokens would take too long to read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.targets.forward import logits_of, run_model
from truedraft.targets.masks import MASKED_ATTENTION
from truedraft.targets.passes import Pass, Span, depths_after
from truedraft.targets.slots import HeadShape, SlotCache
from truedraft.targets.support import context_length

__all__ = ["FAULTS", "SurveyCache", "span", "survey", "tolerance_of"]

FAULTS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError)
"""What a pass ends in that a model cannot make."""

_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}  # of the largest logit; rounding alone is far below
_LOW_PRECISION_TOLERANCE = 0.1

_WINDOWS = ("sliding_window", "window_size", "attention_chunk_size", "floor_scale")
"""Settings that say behind how many tokens an attention does something else."""
_LEAST, _MOST = 16, 300  # tokens of the long text
_BEYOND = 8  # tokens of it beyond a window
_NODES = 3  # behind it
_IDS = 1000  # special tokens, which stand for images and the like, come late in a vocabulary


class SurveyCache(Cache):
    """Keeps nothing but the shapes of what it is given."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._shapes: dict[int, tuple[HeadShape, HeadShape]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Note the shapes of the keys and values [B, heads, W, dim]."""
        keys, values = key_states.shape, value_states.shape
        self._shapes[layer_idx] = ((keys[1], keys[3]), (values[1], values[3]))
        return key_states, value_states

    @property
    def shapes(self) -> list[HeadShape]:
        """Of layer 0's keys, its values, layer 1's keys, and so on."""
        if not self._shapes or sorted(self._shapes) != list(range(len(self._shapes))):
            raise ValueError(f"of its layers only {sorted(self._shapes)} cache keys and values")
        return [shape for layer in sorted(self._shapes) for shape in self._shapes[layer]]


@dataclass(frozen=True, eq=False)
class _Trial:
    """What the passes gave. shapes: of keys and values. texts: logits [2, 2, V] of two texts that part at the end.

    alone, together: logits [3, V] of the same nodes, each behind its text alone, and in trees of two rows.
    """

    shapes: list[HeadShape]
    texts: Tensor
    alone: Tensor
    together: Tensor

    @property
    def is_finite(self) -> bool:
        """Whether all logits are numbers."""
        return all(bool(logits.isfinite().all()) for logits in (self.texts, self.alone, self.together))


@torch.inference_mode()
def survey(model: PreTrainedModel) -> tuple[list[HeadShape], int]:
    """The shapes of the model's keys and values, layer by layer, and the size of its vocabulary.

    Raises `UnsupportedModelError` if a tree's logits are not those of its paths, or if the model does not run under
    our positions and masks at all; `CorruptModelError` if they are not numbers.
    """
    name = f"{model.config.model_type} with {model.config._attn_implementation} attention"
    mask = ALL_MASK_ATTENTION_FUNCTIONS.get(model.config._attn_implementation)
    if mask is not None and mask not in MASKED_ATTENTION.values():
        raise UnsupportedModelError(
            f"{name} takes no mask of a tree; load the model with {' or '.join(MASKED_ATTENTION)}"
        )
    if (setting := _counted_by_itself(model)) is not None:
        raise UnsupportedModelError(
            f"{model.config.model_type} cannot be decoded speculatively: its attention counts tokens by itself, "
            f"{setting}, where a draft tree's are not in a row"
        )
    try:
        found = _try_out(model)
    except torch.OutOfMemoryError:
        raise
    except FAULTS as error:
        raise UnsupportedModelError(f"{name} cannot run on a draft tree: {error}") from error
    if not found.is_finite:
        raise CorruptModelError(
            f"{name} gives logits that are not finite: its weights are damaged, or {model.dtype} is too narrow for it"
        )
    tolerance = tolerance_of(model.dtype) * float(found.texts.abs().max())
    if (found.texts[0, 0] - found.texts[1, 0]).abs().max() > tolerance:
        raise UnsupportedModelError(f"{name} cannot be decoded speculatively: it attends to later tokens")
    if (found.together - found.alone).abs().max() > tolerance:
        raise UnsupportedModelError(f"{name} scores a draft tree unlike its paths: it ignores positions or masks")
    return found.shapes, found.together.shape[-1]


def tolerance_of(dtype: torch.dtype) -> float:
    """By how much of the largest logit two ways to the same logits may differ."""
    return _TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE)


def _windows(model: PreTrainedModel) -> dict[str, int]:
    """Behind how many tokens the attention does something else, by the name of the setting."""
    text = model.config.get_text_config(decoder=True)
    named = {name: getattr(text, name, None) for name in _WINDOWS}
    return {name: value for name, value in named.items() if isinstance(value, int) and value > 0}


def _counted_by_itself(model: Any) -> str | None:
    """The setting by which an attention counts tokens where no mask of ours tells it, too large to be tried out."""
    text = model.config.get_text_config(decoder=True)
    counts = {
        "window_size": "local" in (getattr(text, "attention_layers", None) or ())
        and not model._can_set_attn_implementation(),
        "floor_scale": bool(getattr(text, "attn_temperature_tuning", False)),
    }
    large = {name: value for name, value in _windows(model).items() if value + _BEYOND > _MOST}
    return next((f"{name} {value}" for name, value in large.items() if counts.get(name)), None)


def _long_text(model: PreTrainedModel) -> list[int]:
    """Tokens that reach beyond every window that is small enough, within the context."""
    reached = [value + _BEYOND for value in _windows(model).values() if value + _BEYOND <= _MOST]
    length, limit = max([_LEAST, *reached]), context_length(model.config)
    embeddings: Any = model.get_input_embeddings()
    ids = min(embeddings.num_embeddings, _IDS)
    room = length if limit is None else max(1, min(length, limit - _NODES))
    return [(7 * place + 5) % ids for place in range(room)]


def span(row: int, base: int, parents: tuple[int, ...]) -> Span:
    """A row's new nodes behind its committed tokens."""
    return Span(row, base, parents, depths_after((), parents), len(parents))


def _try_out(model: PreTrainedModel) -> _Trial:
    """A root with two children, as two texts, and as a tree behind a prefix that is read first; beside it, in the same
    pass, a tree of three behind a long text. Two of its nodes are in other slots than they would be alone.
    """
    embeddings: Any = model.get_input_embeddings()
    root, one, other = (token % embeddings.num_embeddings for token in (1, 2, 3))
    chain = span(0, 0, (-1, 0))
    chains = Pass((chain, replace(chain, row=1)), model.device)
    noted = SurveyCache()
    texts = logits_of(run_model(model, chains, [[root, one], [root, other]], noted), chains)
    long = _long_text(model)
    cache = SlotCache(noted.shapes, dtype=model.dtype, device=model.device)
    cache.resize(2, len(long) + _NODES)
    whole = Pass((span(0, 0, tuple(range(-1, len(long)))),), model.device)
    cache.begin(whole)
    last = run_model(model, whole, [[*long, one]], cache, last=True).logits[0, -1]
    prefix = Pass((span(1, 0, (-1,)),), model.device)
    cache.begin(prefix)
    run_model(model, prefix, [[root]], cache, scored=False)
    trees = Pass((span(0, len(long), (-1,) * _NODES), span(1, 1, (-1, -1))), model.device)
    cache.begin(trees)
    behind_long, behind_root = logits_of(run_model(model, trees, [[other, root, one], [one, other]], cache), trees)
    alone = torch.stack([last, texts[0][1], texts[1][1]])
    together = torch.stack([behind_long[2], *behind_root])
    return _Trial(noted.shapes, *(logits.cpu().double() for logits in (torch.stack(texts), alone, together)))
