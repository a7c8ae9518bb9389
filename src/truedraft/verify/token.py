"""Token-level rejection: test each drafted token on its own; on trees, one sibling after the other.

Chains: Leviathan et al. 2023 and Chen et al. 2023 (speculative sampling). Trees: recursive rejection, with replacement
in SpecInfer (Miao et al. 2024, "multi-step speculative sampling"), without replacement in Sequoia (Chen et al. 2024)
and Jeon et al. 2024. With p' = p and q' = q, for every sibling x in draw order:

    accept x with probability min(1, p'(x) / q'(x));  else  p' = norm([p' - q']+)
    and, drawn without replacement:  q'(x) = 0, q' = norm(q')

If none stands, the token is drawn from p'. A chain is the tree of one child a node. The two updates of q' are not
interchangeable: each is proved for its own law. O(V) a tested sibling.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, Site, descend, drafted_probability, remaining, residual

__all__ = ["RULE", "choose", "verify"]


def choose(site: Site, dice: Dice, *, replace: bool) -> int:
    """The next token after one node whose children were drawn with (`replace`) or without replacement."""
    if site.q is None:
        return dice.categorical(site.p)
    token, weights = _test(site, site.q, dice, replace=replace)
    return dice.categorical(weights) if token is None else token


def _test(site: Site, q: Tensor, dice: Dice, *, replace: bool) -> tuple[int | None, Tensor]:
    """The first sibling that stands, or None, and what is left of p.

    p and q stay unnormalised with their masses aside, which saves a pass over the vocabulary a sibling.
    """
    p, p_mass, q_mass = site.p, 1.0, 1.0
    for place, token in enumerate(site.tokens):
        if dice.coin(float(p[token]) * q_mass / (drafted_probability(q, token) * p_mass)):
            return token, p
        p, p_mass = residual(p, q, ratio=p_mass / q_mass)
        if not replace and place + 1 < len(site.tokens):
            q, q_mass = remaining(q, [token])
    return None, p


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Descend while one of the siblings stands."""
    return descend(draft, p, dice, partial(choose, replace=draft.law is Law.SAMPLED))


RULE = Acceptance("token", verify, frozenset({Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT}))
