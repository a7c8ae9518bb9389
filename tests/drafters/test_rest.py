"""Heads are asked where that pays, and ever more seldom where it does not."""

import pytest

from truedraft.drafters.best_growth import Price
from truedraft.drafters.pass_cost import PassCost
from truedraft.drafters.rest import Rest

CHEAP, DEAR = (Price.among(1, PassCost.even(share), 0.1) for share in (0.02, 0.9))


def asked(rest, rounds, tokens, cost):
    """The rounds in which the head is asked, each of which yields the same."""
    found = []
    for number in range(rounds):
        if not rest.takes():
            found.append(number)
            rest.settle(tokens, cost)
    return found


def test_a_head_that_pays_is_asked_in_every_round():
    assert asked(Rest(CHEAP), 50, tokens=1.5, cost=1.2) == list(range(50))


def test_one_bad_round_is_no_reason_to_rest():
    rest = Rest(CHEAP)
    assert asked(rest, 20, tokens=1.6, cost=1.2) == list(range(20))
    assert asked(rest, 1, tokens=1.0, cost=1.2) == [0]
    assert asked(rest, 5, tokens=1.6, cost=1.2) == list(range(5))


def test_rests_grow_where_it_does_not_pay():
    found = asked(Rest(CHEAP), 400, tokens=1.0, cost=1.3)
    gaps = [after - before for before, after in zip(found[-6:], found[-5:], strict=False)]
    assert gaps == [33] * 5 and len(found) < 25


def test_where_nodes_are_dear_it_begins_with_a_rest_and_comes_back_when_it_pays():
    rest = Rest(DEAR)
    assert rest.takes()
    first = asked(rest, 300, tokens=2.5, cost=1.2)
    assert first[-100:] == list(range(200, 300))


@pytest.mark.parametrize("cost", [1.0, 1.5])
def test_what_decides_is_tokens_over_cost(cost):
    often = [len(asked(Rest(CHEAP), 200, tokens, cost)) for tokens in (0.9 * cost, 1.1 * cost)]
    assert often[0] < 30 and often[1] == 200
