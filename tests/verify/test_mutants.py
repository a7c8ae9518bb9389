"""Every known mistake is caught by the enumeration, and its correct twin is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.enumeration import EXACT
from truedraft.errors import ParameterError
from truedraft.verify import block, token, traversal
from truedraft.verify.faults import wrong_block, wrong_recursion, wrong_rejection, wrong_traversal
from truedraft.verify.mutants import MUTANTS, measure, mutant_named


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant, record_property):
    bias = measure(mutant)
    record_property("total variation", bias)
    assert bias > 0.05, mutant.fault


TWINS = {
    "residual-forgotten": wrong_rejection(lambda p, q, drafted: (p - q).clamp(min=0.0)),
    "residual-at-the-token": token.RULE,
    "noise-shared-with-residual": token.RULE,
    "replacement-forgotten": wrong_recursion(replace=False),
    "replacement-imagined": wrong_recursion(replace=True),
    "block-unclipped": wrong_block(clipped=True, shared=False),
    "block-one-uniform": block.RULE,
    "traversal-ratio-of-masses": wrong_traversal(lambda stands, surplus, left: surplus / (surplus + 1.0 - stands)),
    "traversal-unmoved": traversal.RULE,
}


@pytest.mark.parametrize("name", TWINS)
def test_a_mutant_without_its_fault_is_lossless(name):
    """The fault is the only thing wrong with it, so it is the fault that is caught."""
    assert measure(replace(mutant_named(name), rule=TWINS[name])) < EXACT


def test_an_unknown_mutant_is_named():
    with pytest.raises(ParameterError, match=r"'nobody'.*residual-forgotten"):
        mutant_named("nobody")
