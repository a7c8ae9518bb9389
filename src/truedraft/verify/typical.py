"""Typical acceptance: keep the longest drafted path whose tokens the target does not find surprising. LOSSY.

Source: Cai et al. 2024, "Medusa", section 2.3.1. A token stands if

    p(x) > min(epsilon, delta exp(-H(p)))

with H the entropy of p; the longest path of standing tokens is kept and one token drawn from p after it. The text is
NOT distributed as the target's: use it to reproduce published figures, never by default. O(V) a visited node.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.errors import ParameterError
from truedraft.verify.acceptance import Acceptance

__all__ = ["RULE", "typical", "verify"]


def verify(draft: Draft, p: Distributions, dice: Dice, *, epsilon: float, delta: float) -> Verdict:
    """The deepest standing node, the first one of equals, and a token from p after it."""
    tree = draft.tree
    standing, deepest = [0], 0
    for node in standing:  # grows while it is walked: children come after their parents
        if tree.depth[node] > tree.depth[deepest]:
            deepest = node
        if tree.children[node]:
            least = _least(p[node], epsilon, delta)
            standing += [child for child in tree.children[node] if float(p[node][tree.tokens[child]]) > least]
    path = tree.path(deepest)
    return Verdict(path, (*(tree.tokens[node] for node in path), dice.categorical(p[deepest])))


def _least(p: Tensor, epsilon: float, delta: float) -> float:
    """The probability that a token must exceed."""
    entropy = float(torch.special.entr(p).sum(dtype=torch.float64))
    return min(epsilon, delta * math.exp(-entropy))


def typical(epsilon: float = 0.09, delta: float = 0.3) -> Acceptance:
    """The rule with its two thresholds; both lie in (0, 1). Raises `ParameterError` otherwise."""
    if not (0.0 < epsilon < 1.0 and 0.0 < delta < 1.0):
        raise ParameterError(f"typical acceptance needs epsilon and delta in (0, 1), got {epsilon} and {delta}")
    decide = partial(verify, epsilon=epsilon, delta=delta)
    return Acceptance("typical-lossy", decide, frozenset(Law), lossless=False)


RULE = typical()
