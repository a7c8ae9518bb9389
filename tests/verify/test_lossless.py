"""Every rule, under every law it is proved for, emits exactly the target's law; enumerated, not sampled."""

from __future__ import annotations

import pytest
from tests.enumeration import EXACT, PAIRS, SHAPES, gap, grow

from truedraft.verify import block, greedy_draft, kseq, target_only, token, traversal

RULES = [target_only.RULE, token.RULE, block.RULE, traversal.RULE, greedy_draft.RULE, kseq.RULE]

CASES = [
    pytest.param(rule, law, shape, id=f"{rule.name}-{law}-{shape}")
    for rule in RULES
    for law in sorted(rule.laws)
    for shape in SHAPES
    if set(shape) == {1} or not rule.chains
]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.parametrize(("rule", "law", "shape"), CASES)
def test_the_joint_law_is_the_targets(rule, law, shape, pair):
    assert gap(rule, grow(law, shape), pair, length=len(shape) + 1) < EXACT
