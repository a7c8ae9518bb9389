"""Rows over the vocabulary: the largest of logits, all probability on one token, the likeliest tokens alone.

This file refuses to know histories and sampling parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["first_largest", "one_hot", "truncated"]

_LEAST_TOP_P = 1e-30
"""A lower top_p may be 0 in float32."""
_FIRST_LOOK = 512
"""Top-p first looks at this many tokens and sorts the vocabulary only if they do not hold enough probability."""


def first_largest(row: Tensor) -> int:
    """The first index of the largest of logits [V]; that of a number that is none, if there is one."""
    return int(row.detach().numpy().argmax()) if row.device.type == "cpu" else int(row.argmax())


_AROUND: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}
"""By size, type and device of a row, a one among zeros, and the window on it that is wanted is one that exists."""


def one_hot(token: int, like: Tensor) -> Tensor:
    """Probabilities [V] with all mass on one token; dtype and device of `like` [V]. To be read, not to be written to.

    All are windows on one tensor, so none is made: greedy decoding needs one for every node of every draft.
    """
    size = len(like)
    key = size, like.dtype, like.device
    if key not in _AROUND:
        with torch.inference_mode(False):  # so that the tensor counts how often it was written to: once
            around = torch.zeros(2 * size - 1, dtype=like.dtype, device=like.device)
            around[size - 1] = 1
        _AROUND[key] = around
    around = _AROUND[key]
    if around._version != 1:
        del _AROUND[key]
        raise AssertionError("somebody wrote to a row of probabilities: rules and drafters must copy them first")
    return around[size - 1 - token : 2 * size - 1 - token]


def truncated(probs: Tensor, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Top-k, top-p and min-p on probabilities [V], renormalised."""
    if 0 < top_k < len(probs):
        probs = torch.where(probs < probs.topk(top_k).values[-1], 0, probs)
    if top_p < 1:
        probs = _nucleus(probs / probs.sum(), top_p)
    if min_p > 0:
        probs = torch.where(probs < min_p * probs.max(), 0, probs)
    return probs / probs.sum()


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the most probable tokens until they hold top_p; the one that crosses the line stays (Holtzman et al.)."""
    top, ids = probs.topk(min(_FIRST_LOOK, len(probs)))
    cumulative = top.cumsum(0)
    if float(cumulative[-1]) < top_p and len(top) < len(probs):
        top, ids = probs.sort(descending=True, stable=True)
        cumulative = top.cumsum(0)
    kept = ids[cumulative - top < max(top_p, _LEAST_TOP_P)]
    return torch.zeros_like(probs).index_copy(0, kept, probs[kept])
