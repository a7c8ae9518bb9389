"""Heads are asked where that pays, and ever more seldom where it does not."""

import random

import pytest

from truedraft.drafters.best_growth import Price
from truedraft.drafters.pass_cost import PassCost
from truedraft.drafters.rest import Rest

CHEAP, DEAR = (Price.among(1, PassCost.even(share), 0.1) for share in (0.02, 0.9))


def asked(rest, rounds, tokens, cost, texts=1):
    """The rounds in which the head is asked, each of which yields the same."""
    found = []
    for number in range(rounds):
        if not rest.takes():
            found.append(number)
            rest.settle(tokens, cost, texts)
    return found


def test_a_head_that_pays_is_asked_in_every_round():
    assert asked(Rest(CHEAP), 50, tokens=1.5, cost=1.2) == list(range(50))


@pytest.mark.parametrize("seed", range(20))
def test_unlucky_rounds_are_no_reason_to_rest(seed):
    """A head that is right every other time, and twice as often not at all as four times in a row."""
    rest, luck = Rest(CHEAP), random.Random(seed)
    often = sum(len(asked(rest, 1, luck.choice((1, 1, 1, 2, 2, 4)), cost=1.4)) for _ in range(500))
    assert often > 450


def test_rests_grow_where_it_does_not_pay():
    found = asked(Rest(CHEAP), 600, tokens=1.0, cost=1.3)
    gaps = [after - before for before, after in zip(found[-6:], found[-5:], strict=False)]
    assert gaps == [33] * 5 and len(found) < 80


def test_many_texts_tell_at_once():
    assert len(asked(Rest(CHEAP), 100, tokens=1.0, cost=1.3, texts=64)) < 9


def test_where_nodes_are_dear_it_begins_with_a_rest_and_comes_back_when_it_pays():
    rest = Rest(DEAR)
    assert rest.takes()
    found = asked(rest, 900, tokens=2.5, cost=1.2)
    assert found[-100:] == list(range(800, 900))


@pytest.mark.parametrize("cost", [1.0, 1.5])
def test_what_decides_is_tokens_over_cost(cost):
    often = [len(asked(Rest(CHEAP), 600, tokens, cost)) for tokens in (0.9 * cost, 1.1 * cost)]
    assert often[0] < 120 and often[1] == 600
