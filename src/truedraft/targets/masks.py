"""Attention masks of a pass: which slots each new node may attend to.

transformers models state each layer type's rule (causal, sliding window, ...) as a function of two indices and ask
the mask function registered for their attention to evaluate it. The ones here evaluate it on positions instead of
slots and cut it down to the node's own ancestors, which makes every rule right for trees, for rows of different
lengths and beyond a window, without knowing any model. Outside of a pass they are transformers' own.

Masks are additive, in the model's dtype: eager attention adds whatever it is given, so a bool mask would be wrong
there without any error. An attention that wants no mask (its function reads `passes.current`) is not registered here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask

from truedraft.targets.passes import Pass, ancestors, current

__all__ = ["MASKED_ATTENTION", "additive_mask"]

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(row, head, position of the query, position of the key) -> may it attend; tensors that broadcast."""

_ALIGNMENT = 16  # elements; fused CUDA kernels copy a mask whose rows do not start at a multiple of 16 bytes


def additive_mask(what: Pass, rule: MaskFunction, *, dtype: torch.dtype, in_slots: bool = True) -> Tensor:
    """[B, 1, W, S]: 0 where a new node may attend, the lowest finite number elsewhere.

    Columns are slots, or else positions on the node's own path, for an attention that moves scores there. A padding
    node may attend to what stands at position 0, so that its softmax is finite.
    """
    rows = torch.arange(len(what.spans), device=what.device).view(-1, 1, 1, 1)
    columns = what.slot_positions if in_slots else torch.arange(what.extent, device=what.device)[None]
    queries, keys = what.positions[:, None, :, None], columns[:, None, None, :]
    allowed = rule(rows, torch.zeros_like(rows), queries, keys).expand(len(what.spans), 1, what.width, what.extent)
    if in_slots and not all(span.is_chain for span in what.spans):
        allowed = allowed & _ancestry(what).to(what.device)
    lowest = torch.finfo(dtype).min
    aligned = -(-what.extent // _ALIGNMENT) * _ALIGNMENT
    mask = torch.full((len(what.spans), 1, what.width, aligned), lowest, dtype=dtype, device=what.device)
    return mask[..., : what.extent].masked_fill_(allowed, 0)


def _ancestry(what: Pass) -> Tensor:
    """Bool [B, 1, W, S]: false where a new node faces an uncommitted node that is not its ancestor."""
    allowed = torch.ones(len(what.spans), 1, what.width, what.extent, dtype=torch.bool)
    for row, span in zip(allowed, what.spans, strict=True):
        nodes = len(span.parents)
        row[0, : span.fresh, span.base : span.base + nodes] = ancestors(span.parents)[nodes - span.fresh :]
    return allowed


def _masks_of_a_pass(outside: Callable[..., Tensor | None], *, in_slots: bool = True) -> Callable[..., Tensor | None]:
    """A mask function for transformers' interface: the current pass's masks, or what `outside` makes if none runs."""

    def mask(*args: Any, **kwargs: Any) -> Tensor | None:
        what = current()
        if what is None:
            return outside(*args, **kwargs)
        window = kwargs.get("local_size")
        plain = kwargs.get("allow_is_causal_skip", True) and (window is None or what.extent <= window)
        if plain and what.width == 1 and what.is_flush:  # every new node may attend to every slot
            return None
        return additive_mask(what, kwargs["mask_function"], dtype=kwargs["dtype"], in_slots=in_slots)

    return mask


MASKED_ATTENTION = {
    "sdpa": _masks_of_a_pass(sdpa_mask),
    "eager": _masks_of_a_pass(eager_mask),
    "truedraft": _masks_of_a_pass(eager_mask),
    "truedraft-exact": _masks_of_a_pass(eager_mask, in_slots=False),
}
"""The attention implementations, of transformers and our own, that take the masks made here."""

for _name, _mask in MASKED_ATTENTION.items():
    AttentionMaskInterface.register(_name, _mask)
