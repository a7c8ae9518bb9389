"""Names to rules, and the best proved rule for a draft. One line adds a rule."""

from __future__ import annotations

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.errors import ParameterError
from truedraft.verify import block, coupled, greedy_draft, kseq, target_only, token, traversal, typical
from truedraft.verify.acceptance import Acceptance, follow

__all__ = ["RULES", "best_rule", "rule_named", "verify"]


def best_rule(law: Law, is_chain: bool) -> Acceptance:
    """The lossless rule that accepts most for drafts of this law; on equal terms the cheapest."""
    if law is Law.CHOSEN:
        return target_only.RULE
    if law is Law.COUPLED:
        return coupled.RULE
    return block.RULE if is_chain else traversal.RULE


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """By the best rule for this draft: a drafter may change the law or the shape of its drafts from round to round.

    In greedy decoding there is nothing to decide.
    """
    return follow(draft, p) or best_rule(draft.law, draft.tree.is_chain).verify(draft, p, dice)


RULES: dict[str, Acceptance] = {
    rule.name: rule
    for rule in (
        Acceptance("auto", verify, frozenset(Law)),
        target_only.RULE,
        token.RULE,
        block.RULE,
        traversal.RULE,
        greedy_draft.RULE,
        kseq.RULE,
        coupled.RULE,
        typical.RULE,
    )
}
"""Every rule by its name; "auto" comes first and is the default."""


def rule_named(name: str) -> Acceptance:
    """The rule of this name. Raises `ParameterError` if there is none."""
    if name not in RULES:
        raise ParameterError(f"rule is {name!r}: expected one of {', '.join(RULES)}")
    return RULES[name]
