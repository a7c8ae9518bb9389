"""The law that a session and a shape call for."""

import pytest
import torch

from tests.drafters.helpers import make
from truedraft.core import Law, Shape
from truedraft.drafters.laws import is_greedy, keeps_order, law_for

CHAIN, TREE, GROWN = Shape.chain(3), Shape.tree(2, 2), Shape(3, 2, 5)


@pytest.mark.parametrize(
    ("settings", "greedy"),
    [({}, True), ({"temperature": 1}, False), ({"temperature": 1, "top_k": 1}, True), ({"top_p": 0.5}, True)],
    ids=str,
)
def test_a_greedy_session_is_known_by_its_sampler(settings, greedy):
    assert is_greedy(make([1, 2], vocabulary=20, **settings), 20, torch.device("cpu")) is greedy


def test_a_sampler_that_does_not_say_may_change_the_order():
    session = make([1, 2], vocabulary=20)
    assert keeps_order(session)
    assert not keeps_order(make([1, 2], vocabulary=20, frequency_penalty=1.0))
    session.sampler = object()
    assert not keeps_order(session)


@pytest.mark.parametrize(
    ("shape", "options", "law"),
    [
        (CHAIN, {"asked": None, "greedy": True}, Law.CHOSEN),
        (GROWN, {"asked": None, "greedy": True}, Law.CHOSEN),
        (CHAIN, {"asked": None, "greedy": False}, Law.SAMPLED),
        (TREE, {"asked": None, "greedy": False}, Law.GREEDY_DRAFT),
        (GROWN, {"asked": None, "greedy": False}, Law.GREEDY_DRAFT),
        (GROWN, {"asked": None, "greedy": False, "grown": Law.CHOSEN}, Law.CHOSEN),
        (TREE, {"asked": Law.COUPLED, "greedy": False}, Law.COUPLED),
        (TREE, {"asked": Law.COUPLED, "greedy": True}, Law.CHOSEN),
        (CHAIN, {"asked": Law.SAMPLED, "greedy": True}, Law.SAMPLED),
    ],
    ids=str,
)
def test_the_law_follows_shape_and_session(shape, options, law):
    assert law_for(shape, **options) is law
