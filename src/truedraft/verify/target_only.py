"""Target-only acceptance: draw the next token from p, go on if it happens to be drafted.

Source: the sampling form of SpecInfer's verification (Miao et al. 2024, "naive sampling"), and what EAGLE-2 does with
its deterministic trees. Proved for every tree whose making is independent of the verdict's randomness, because the
emitted token is a plain draw from p: chosen, drawn, pruned, merged, re-ranked. For a fixed tree no lossless rule
accepts more: it attains the sum over nodes of p(path). For drawn drafts it leaves acceptance unused. Not for COUPLED
drafts, whose noise the target's draw shares. One draw, O(V), a visited node.
"""

from __future__ import annotations

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, Site, descend

__all__ = ["RULE", "choose", "verify"]


def choose(site: Site, dice: Dice) -> int:
    """The next token after one node, whatever was drafted there."""
    return dice.categorical(site.p)


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Descend while a draw from p is a child."""
    return descend(draft, p, dice, choose)


RULE = Acceptance("target-only", verify, frozenset(Law) - {Law.COUPLED})
