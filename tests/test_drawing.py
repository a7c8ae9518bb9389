from __future__ import annotations

import pytest
import torch

from tests.enumeration import outcomes
from truedraft import drawing
from truedraft.noise import SeededNoise, winners

Q = torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2], dtype=torch.float64)


def law(draw, k):
    chances: dict[tuple[int, ...], float] = {}
    for chance, tokens in outcomes(lambda dice: tuple(draw(Q, k, dice))):
        chances[tokens] = chances.get(tokens, 0.0) + chance
    return chances


def test_sampled_tokens_are_independent():
    chances = law(drawing.sampled, 2)
    assert chances == pytest.approx({(a, b): float(Q[a] * Q[b]) for a in (0, 1, 3, 4) for b in (0, 1, 3, 4)})


def test_without_replacement_the_rest_is_renormalised():
    chances = law(drawing.without_replacement, 2)
    pairs = {(a, b) for a in (0, 1, 3, 4) for b in (0, 1, 3, 4) if a != b}
    assert chances == pytest.approx({(a, b): float(Q[a] * Q[b] / (1 - Q[a])) for a, b in pairs})


def test_a_greedy_draft_is_the_top_and_one_of_the_rest():
    assert law(drawing.greedy_draft, 3) == pytest.approx({(1, 3, 0): 1 / 3, (1, 3, 4): 2 / 3})
    assert law(drawing.greedy_draft, 1) == pytest.approx({(a,): float(Q[a]) for a in (0, 1, 3, 4)})


def test_chosen_tokens_are_the_top():
    assert drawing.chosen(Q, 3) == [1, 3, 4]


def test_coupled_tokens_are_the_first_of_the_race():
    noise = SeededNoise(5)
    assert drawing.coupled(Q, 2, noise, 7) == winners(Q, 2, noise, 7)


@pytest.mark.parametrize("k", [4, 5, 9])
def test_never_more_children_than_the_support(k):
    distinct = [drawing.without_replacement, drawing.greedy_draft, lambda q, k, dice: drawing.chosen(q, k)]
    for draw in distinct:
        for _, tokens in outcomes(lambda dice, draw=draw: draw(Q, k, dice)):
            assert sorted(tokens) == [0, 1, 3, 4]
    assert sorted(drawing.coupled(Q, k, SeededNoise(5), 7)) == [0, 1, 3, 4]


@pytest.mark.parametrize("k", [0, -1])
def test_no_children_when_none_are_wanted(k):
    for draw in (drawing.sampled, drawing.without_replacement, drawing.greedy_draft):
        assert [tokens for _, tokens in outcomes(lambda dice, draw=draw: draw(Q, k, dice))] == [[]]
    assert drawing.chosen(Q, k) == drawing.coupled(Q, k, SeededNoise(5), 7) == []


def test_q_is_left_alone():
    before = Q.clone()
    for draw in (drawing.sampled, drawing.without_replacement, drawing.greedy_draft):
        law(draw, 2)
    assert torch.equal(Q, before)
