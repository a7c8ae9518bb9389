"""Greedy-draft verification: siblings are the top of q and one token drawn from the rest.

Source: Hu et al. 2025, "Towards Optimal Multi-draft Speculative Decoding", the greedy scheme. With T the chosen
siblings, Y the drawn one and q' = q restricted to the tokens outside T and normalised:

    accept Y with probability min(1, p(Y) / q'(Y)); else draw z from norm([p - q']+), and go on at z if it is in T

Proved for any T that is a function of q alone. It attains the optimum of its law, p(T) + sum outside T of min(p, q'),
which is close to or above the optimum of drawing all siblings. O(V) a node; on a chain it is token-level rejection.
"""

from __future__ import annotations

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, Site, descend, drafted_probability, remaining, residual

__all__ = ["RULE", "choose", "verify"]


def choose(site: Site, dice: Dice) -> int:
    """The next token after one node: the drawn sibling, or one from the residual, which may be a chosen sibling."""
    if site.q is None:
        return dice.categorical(site.p)
    *chosen, drawn = site.tokens
    q, q_mass = remaining(site.q, chosen) if chosen else (site.q, 1.0)
    if dice.coin(float(site.p[drawn]) * q_mass / drafted_probability(q, drawn)):
        return drawn
    return dice.categorical(residual(site.p, q, ratio=1.0 / q_mass)[0])


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Descend while the next token is a sibling."""
    return descend(draft, p, dice, choose)


RULE = Acceptance("greedy-draft", verify, frozenset({Law.GREEDY_DRAFT}))
