"""k-sequential selection (k-SEQ): one common threshold for k independent siblings.

Source: Sun et al. 2023, "SpecTr: Fast Speculative Decoding via Optimal Transport", algorithm 2 and theorem 2. With
beta(r) = sum_x min(q(x), p(x) / r), for every sibling x in draw order:

    accept x with probability min(1, p(x) / (r q(x)))
    if none stands, draw from norm(p - min(q, p / r) (1 - (1 - beta)^k) / beta)

Proved for every r in [1, k] with 1 - (1 - beta)^k <= r beta; the smallest one accepts most, at least 1 - 1/e of the
optimum. r is found by bisection and rounded up, which keeps the rule exact. O(V) a step of the bisection.
"""

from __future__ import annotations

from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, Site, descend, drafted_probability, residual

__all__ = ["RULE", "choose", "threshold", "verify"]

_STEPS = 12
"""Each halves the interval in which r may lie: the acceptance is within 2^-12 of that of the smallest r."""


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
    """The smallest r (rounded up) for k siblings, and beta(r); p [V], q [V]."""
    low, high = 1.0, float(k)
    beta = _beta(p, q, low)
    if 1.0 - (1.0 - beta) ** k <= low * beta:
        return low, beta
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        beta = _beta(p, q, middle)
        low, high = (low, middle) if 1.0 - (1.0 - beta) ** k <= middle * beta else (middle, high)
    return high, _beta(p, q, high)


def _beta(p: Tensor, q: Tensor, r: float) -> float:
    """The probability that one sibling stands."""
    return min(1.0, float((p / r).minimum(q).double().sum()))


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Descend while one of the siblings stands."""
    return descend(draft, p, dice, choose)


RULE = Acceptance("kseq", verify, frozenset({Law.SAMPLED}))
