"""Block verification: test a drafted chain as a whole; never accepts less than token-level rejection, at the same cost.

Source: Sun et al. 2025, "Block Verification Accelerates Speculative Decoding", algorithm 2. With x_1..x_n drafted and
P_0 = 1:

    P_i = min(1, P_(i-1) p(x_i) / q(x_i))
    S_i = sum_x [P_i p(x) - q(x)]+ after x_i;   h_i = S_i / (S_i + 1 - P_i) for i < n;   h_n = P_n
    tau = the last i with u_i <= h_i, every u_i drawn anew
    emit x_1..x_tau and one token from p if tau = n, else from norm([P_tau p - q]+)

Proved for chains whose length may depend on the tokens before the last one, not on the last one itself. A chain has
the same law whether its single children are drawn with or without replacement or are greedy drafts, so all of these
are welcome. O(V) a token; p is needed after every node.
"""

from __future__ import annotations

from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, drafted_probability, drawn_from, surplus

__all__ = ["RULE", "verify"]


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Keep the longest prefix that passes. The tests are independent, so they begin with the longest."""
    tokens, kept = draft.tree.tokens[1:], _kept(draft, p)
    tau = len(kept) - 1
    while True:
        if tau == len(tokens):
            chance, weights = kept[tau], p[tau]
        else:
            chance, weights = _test(kept[tau], p[tau], drawn_from(draft, tau))
        if dice.coin(chance):
            return Verdict(tuple(range(1, tau + 1)), (*tokens[:tau], dice.categorical(weights)))
        tau -= 1


def _kept(draft: Draft, p: Distributions) -> list[float]:
    """P_0, P_1, ... up to the last that is positive: after a token that the target excludes nothing passes."""
    kept = [1.0]
    for node, token in enumerate(draft.tree.tokens[1:]):
        ratio = float(p[node][token]) / drafted_probability(drawn_from(draft, node), token)
        if ratio <= 0.0:
            break
        kept.append(min(1.0, kept[-1] * ratio))
    return kept


def _test(kept: float, p: Tensor, q: Tensor) -> tuple[float, Tensor]:
    """h_i and the weights [V] of the correction after x_i. 0/0 is 1, with p for weights: then p equals q."""
    left, mass = surplus(p, q, ratio=1.0 / max(kept, 1e-300))
    if kept >= 1.0:
        return 1.0, left if mass > 0.0 else p
    return kept * mass / (kept * mass + 1.0 - kept), left


RULE = Acceptance(
    "block", verify, frozenset({Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT}), chains=True
)
