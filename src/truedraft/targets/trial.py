"""A trial run of a model: how its layers cache, and whether a draft tree is scored as its paths are.

Models that take their positions or their mask from elsewhere than where transformers' conventions put them would be
silently wrong on a tree. Three short passes find them out when a model is wrapped, whatever their name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.targets.forward import logits_of, run_model
from truedraft.targets.masks import MASKED_ATTENTION
from truedraft.targets.passes import Pass, Span
from truedraft.targets.slots import HeadShape, SlotCache

__all__ = ["SurveyCache", "survey"]

_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}  # of the largest logit; rounding alone is far below
_LOW_PRECISION_TOLERANCE = 0.1


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
    try:
        shapes, texts, nodes = _try_out(model)
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UnsupportedModelError(f"{name} cannot run on a draft tree: {error}") from error
    if not (texts.isfinite().all() and nodes.isfinite().all()):
        raise CorruptModelError(
            f"{name} gives logits that are not finite: its weights are damaged, or {model.dtype} is too narrow for it"
        )
    tolerance = _TOLERANCE.get(model.dtype, _LOW_PRECISION_TOLERANCE) * float(texts.abs().max())
    if (texts[0, 0] - texts[1, 0]).abs().max() > tolerance:
        raise UnsupportedModelError(f"{name} cannot be decoded speculatively: it attends to later tokens")
    if (nodes - texts[:, 1]).abs().max() > tolerance:
        raise UnsupportedModelError(f"{name} scores a draft tree unlike its paths: it ignores positions or masks")
    return shapes, nodes.shape[-1]


def _try_out(model: PreTrainedModel) -> tuple[list[HeadShape], Tensor, Tensor]:
    """A root with two children, as two texts and as a tree behind a prefix that is read first.

    Returns the shapes of keys and values, logits [2, 2, V] of the texts, and logits [2, V] of the tree.
    """
    embeddings: Any = model.get_input_embeddings()
    root, one, other = (token % embeddings.num_embeddings for token in (1, 2, 3))
    chain = Span(row=0, base=0, parents=(-1, 0), depths=(0, 1), fresh=2)
    chains = Pass((chain, replace(chain, row=1)), model.device)
    noted = SurveyCache()
    texts = logits_of(run_model(model, chains, [[root, one], [root, other]], noted), chains)
    cache = SlotCache(noted.shapes, dtype=model.dtype, device=model.device)
    cache.resize(1, 3)
    prefix = Pass((Span(row=0, base=0, parents=(-1,), depths=(0,), fresh=1),), model.device)
    cache.begin(prefix)
    run_model(model, prefix, [[root]], cache, scored=False)
    tree = Pass((Span(row=0, base=1, parents=(-1, -1), depths=(0, 0), fresh=2),), model.device)
    cache.begin(tree)
    (nodes,) = logits_of(run_model(model, tree, [[one, other]], cache), tree)
    return noted.shapes, torch.stack(texts).cpu().double(), nodes.cpu().double()
