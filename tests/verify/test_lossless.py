"""Every rule, under every law it is proved for, emits exactly the target's law; enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark.structures import ParameterSet

from tests.enumeration import EXACT, PAIRS, SHAPES, gap, grow
from truedraft.verify import block, greedy_draft, kseq, target_only, token, traversal

RULES = [target_only.RULE, token.RULE, block.RULE, traversal.RULE, greedy_draft.RULE, kseq.RULE]


def _cases() -> Iterator[ParameterSet]:
    for rule in RULES:
        for law in sorted(rule.laws):
            for shape in SHAPES:
                if rule.chains and set(shape) != {1}:
                    continue
                for name, pair in PAIRS.items():
                    many = name == "V=4" and shape in {(2, 2), (3, 1)}
                    marks = [pytest.mark.slow] if many else []
                    yield pytest.param(rule, law, shape, pair, id=f"{rule.name}-{law}-{shape}-{name}", marks=marks)


@pytest.mark.parametrize(("rule", "law", "shape", "pair"), _cases())
def test_the_joint_law_is_the_targets(rule, law, shape, pair):
    assert gap(rule, grow(law, shape), pair, length=len(shape) + 1) < EXACT
