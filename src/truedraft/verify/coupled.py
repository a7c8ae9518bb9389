"""Coupled acceptance: the target draws with seeded noise that the drafter may share; a bet stands if it is equal.

Source: Daliri et al. 2025, "Coupling without Communication and Drafter-Invariant Speculative Decoding" (Gumbel
coupling). With noise g_t(x) keyed by seed, position t and token x, the token at position t is argmax_x log p(x) +
g_t(x). Proved for every law: the text is a function of seed and target alone, bit for bit what plain decoding with
this seed gives. A drafter that ranks by log q + g_t guesses it with probability sum_x 1 / sum_y max(p(y)/p(x),
q(y)/q(x)) with one child. O(support of p) a visited node.
"""

from __future__ import annotations

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.noise import noise_of, winners
from truedraft.verify.acceptance import Acceptance, Site, descend

__all__ = ["RULE", "choose", "verify"]


def choose(site: Site, dice: Dice) -> int:
    """The next token after one node, whatever was drafted there. Raises `ParameterError` if the dice carry no noise."""
    return winners(site.p, 1, noise_of(dice), site.position)[0]


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Descend while the target's own token is a child."""
    return descend(draft, p, dice, choose)


RULE = Acceptance("coupled", verify, frozenset(Law))
