"""k-sequential selection (k-SEQ): one common threshold for k independent siblings.

Source: Sun et al. 2023, "SpecTr: Fast Speculative Decoding via Optimal Transport", algorithm 2 and theorem 2. With
beta(r) = sum_x min(q(x), p(x) / r), for every sibling x in draw order:

    accept x with probability min(1, p(x) / (r q(x)))
    if none stands, draw from norm(p - min(q, p / r) (1 - (1 - beta)^k) / beta)

Proved for every r in [1, k] with 1 - (1 - beta)^k <= r beta; the smallest one accepts most, at least 1 - 1/e of the
optimum. r is found by search and rounded up, which keeps the rule exact. O(V) a step of the search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, Site, descend, drafted_probability, residual

__all__ = ["RULE", "choose", "threshold", "verify"]

_STEPS = 12
_TOLERANCE = 1e-4
"""r may be too large by as much as changes the acceptance by about this."""


def choose(site: Site, dice: Dice) -> int:
    """The next token after one node."""
    if site.q is None:
        return dice.categorical(site.p)
    r, beta = threshold(site.p, site.q, len(site.tokens))
    for token in site.tokens:
        if dice.coin(float(site.p[token]) / (r * drafted_probability(site.q, token))):
            return token
    accepted = 1.0 - (1.0 - beta) ** len(site.tokens)
    weights, _ = residual(site.p, (site.p / r).minimum(site.q), ratio=accepted / beta if beta > 0.0 else 0.0)
    return dice.categorical(weights)


def threshold(p: Tensor, q: Tensor, k: int) -> tuple[float, float]:
    """The smallest r (rounded up) for k siblings, and beta(r); p [V], q [V]. By bisection."""
    low, beta = 1.0, _beta(p, q, 1.0)
    if _excess(beta, low, k) <= 0.0:
        return low, beta
    high, beta = float(k), _beta(p, q, float(k))
    for _ in range(_STEPS):
        if _excess(beta, high, k) >= -_TOLERANCE:
            break
        middle = (low + high) / 2.0
        beta_middle = _beta(p, q, middle)
        if _excess(beta_middle, middle, k) <= 0.0:
            high, beta = middle, beta_middle
        else:
            low = middle
    return high, beta


def _excess(beta: float, r: float, k: int) -> float:
    """Positive where r is too small."""
    return 1.0 - (1.0 - beta) ** k - r * beta


def _beta(p: Tensor, q: Tensor, r: float) -> float:
    """The probability that one sibling stands."""
    return min(1.0, float((p / r).minimum(q).sum(dtype=torch.float64)))


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Descend while one of the siblings stands."""
    return descend(draft, p, dice, choose)


RULE = Acceptance("kseq", verify, frozenset({Law.SAMPLED}))
