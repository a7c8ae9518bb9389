"""Draws the children of one draft-tree node under each law. One function a law; all return tokens in draw order.

A node gets k children (none for k < 1), or as many as q has tokens of positive mass: the support is a property of q, so
this never looks at a drawn value. Whoever draws must hand the very same q to the draft. This page refuses to know
trees, rules and models.
"""

from __future__ import annotations

import torch
from torch import Tensor

from truedraft.core import Dice
from truedraft.noise import Noise, winners

__all__ = ["chosen", "coupled", "greedy_draft", "sampled", "without_replacement"]


def sampled(q: Tensor, k: int, dice: Dice) -> list[int]:
    """k independent draws from q [V] (Law.SAMPLED); a token may come twice."""
    return [dice.categorical(q) for _ in range(k)]


def without_replacement(q: Tensor, k: int, dice: Dice) -> list[int]:
    """k successive draws from q [V], each without the earlier ones (Law.SAMPLED_WITHOUT_REPLACEMENT)."""
    tokens: list[int] = []
    left = q.clone()
    for _ in range(_children(q, k)):
        tokens.append(dice.categorical(left))
        left[tokens[-1]] = 0.0
    return tokens


def chosen(q: Tensor, k: int) -> list[int]:
    """The k most probable tokens of q [V] (Law.CHOSEN), most probable first."""
    return torch.topk(q, _children(q, k)).indices.tolist()


def greedy_draft(q: Tensor, k: int, dice: Dice) -> list[int]:
    """The k - 1 most probable tokens of q [V], then one drawn from the rest (Law.GREEDY_DRAFT)."""
    if k < 1:
        return []
    top = chosen(q, k)[:-1]
    left = q.clone()
    left[top] = 0.0
    return [*top, dice.categorical(left)]


def coupled(q: Tensor, k: int, noise: Noise, position: int) -> list[int]:
    """The k tokens that are first in the race of q [V] under the noise of their position (Law.COUPLED)."""
    return winners(q, k, noise, position)


def _children(q: Tensor, k: int) -> int:
    """How many distinct tokens q [V] can give."""
    return max(0, min(k, int(torch.count_nonzero(q))))
