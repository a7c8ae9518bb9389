"""Rules and drafts that look right and are not: mistakes that were made in earnest, each with the bias it causes.

They are the test of the tests: a check of losslessness that lets one of them pass is worth nothing. This page refuses
to be used for decoding; no rule is named in `auto`.
"""

from __future__ import annotations

from dataclasses import dataclass

from truedraft.core import Law
from truedraft.errors import ParameterError
from truedraft.verify import block, token
from truedraft.verify.acceptance import Acceptance
from truedraft.verify.enumeration import Drafting, emitted_law, grow, random_table, target_law, total_variation
from truedraft.verify.faults import (
    drop_unlikely,
    flatter,
    keep_likelier,
    keep_likelier_path,
    prune,
    reported,
    residual_at_token,
    same_quantile,
    wrong_block,
    wrong_recursion,
    wrong_rejection,
    wrong_traversal,
)

__all__ = ["MUTANTS", "Mutant", "measure", "mutant_named"]


@dataclass(frozen=True)
class Mutant:
    """A wrong way to speculate. fault: what is wrong, in a sentence; the rest is how it drafts and decides."""

    name: str
    fault: str
    drafting: Drafting
    rule: Acceptance


def measure(mutant: Mutant, *, vocabulary: int = 3, pairs: int = 8) -> float:
    """The largest total variation between the mutant's text and the target's own, over random pairs of p and q."""
    gaps = []
    for seed in range(pairs):
        p, q = random_table(vocabulary, 2 * seed), random_table(vocabulary, 2 * seed + 1)
        law = emitted_law(mutant.rule, mutant.drafting, p, q, length=3)
        gaps.append(total_variation(law, target_law(p, 3)))
    return max(gaps)


def mutant_named(name: str) -> Mutant:
    """The mutant of this name. Raises `ParameterError` if there is none."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    if name not in known:
        raise ParameterError(f"mutant is {name!r}: expected one of {', '.join(known)}")
    return known[name]


_CHAIN, _PAIR, _TREE = (1, 1), (2,), (2, 2)
_SAMPLED, _WITHOUT = Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT

MUTANTS = (
    Mutant(
        "residual-forgotten",
        "a rejected token is replaced by a draw from p instead of the residual",
        grow(_SAMPLED, _CHAIN),
        wrong_rejection(lambda p, q, drafted: p),
    ),
    Mutant(
        "residual-at-the-token",
        "the residual takes only the drafted token out of p, though it was drawn from all of q",
        grow(_SAMPLED, _CHAIN),
        wrong_rejection(residual_at_token),
    ),
    Mutant(
        "noise-shared-with-residual",
        "the correction is drawn with the random number that drew the draft",
        grow(_SAMPLED, _CHAIN),
        wrong_rejection(same_quantile),
    ),
    Mutant(
        "another-temperature",
        "the ratio uses q at another temperature than the one it was drawn at",
        reported(grow(_SAMPLED, _CHAIN), _SAMPLED, flatter),
        token.RULE,
    ),
    Mutant(
        "argmax-as-sampled",
        "the drafted token is the argmax of q, yet q enters the ratio as if it had been drawn",
        reported(grow(Law.CHOSEN, _CHAIN), _SAMPLED),
        token.RULE,
    ),
    Mutant(
        "ratio-on-chosen",
        "the top of q is verified with p/q, sibling after sibling",
        reported(grow(Law.CHOSEN, _PAIR), _WITHOUT),
        token.RULE,
    ),
    Mutant(
        "likelier-of-two",
        "two tokens are drawn and only the likelier one is verified with p/q",
        keep_likelier,
        token.RULE,
    ),
    Mutant(
        "likelier-of-two-paths",
        "two chains are drawn and only the likelier one is block-verified, as if it were the only one",
        keep_likelier_path,
        block.RULE,
    ),
    Mutant(
        "pruned-after-drawing",
        "a drawn tree is pruned to its likeliest nodes before it is verified with p/q",
        prune,
        token.RULE,
    ),
    Mutant(
        "unlikely-dropped",
        "a token is drawn, found unlikely and dropped from the draft",
        drop_unlikely,
        token.RULE,
    ),
    Mutant(
        "unlikely-dropped-from-block",
        "a token is drawn, found unlikely and dropped from the block",
        drop_unlikely,
        block.RULE,
    ),
    Mutant(
        "replacement-forgotten",
        "siblings drawn without replacement are verified as if drawn with it",
        grow(_WITHOUT, _PAIR),
        wrong_recursion(replace=True),
    ),
    Mutant(
        "replacement-imagined",
        "independent siblings are verified as if drawn without replacement",
        grow(_SAMPLED, _PAIR),
        wrong_recursion(replace=False),
    ),
    Mutant(
        "block-unclipped",
        "the block's joint ratio may exceed 1",
        grow(_SAMPLED, _CHAIN),
        wrong_block(clipped=False, shared=False),
    ),
    Mutant(
        "block-one-uniform",
        "all tests of a block compare with the same uniform",
        grow(_SAMPLED, _CHAIN),
        wrong_block(clipped=True, shared=True),
    ),
    Mutant(
        "traversal-ratio-of-masses",
        "a traversal parent stands with the ratio of the two masses left, not S / (S + 1 - a)",
        grow(_WITHOUT, _TREE),
        wrong_traversal(lambda stands, surplus, left: min(1.0, surplus / left) if left > 0.0 else 0.0),
    ),
    Mutant(
        "traversal-unmoved",
        "a traversal parent stands as likely after a child's rejection as before",
        grow(_WITHOUT, _TREE),
        wrong_traversal(lambda stands, surplus, left: stands),
    ),
)
"""All of them."""
