"""The search for a tree, against trying all trees, and the tests that a node must pass."""

from itertools import product

import pytest

from truedraft.errors import ParameterError
from truedraft.planning.account import expected_tokens_by_position
from truedraft.planning.trees import (
    best_first_tree,
    best_tree,
    branching_of,
    branching_text,
    expected_tokens_of_tree,
    next_node_pays,
)

RATES = (0.5, 0.2, 0.1)


def depth_of(parents, node):
    return 0 if node == 0 else 1 + depth_of(parents, parents[node])


def tokens_of(parents, rates):
    """Expected tokens with rates by rank; minus infinity for a node with more children than there are rates."""
    ranks = [list(parents[:node]).count(parents[node]) for node in range(len(parents))]
    if max(ranks) >= len(rates):
        return float("-inf")
    return expected_tokens_of_tree(parents, [rates[rank] for rank in ranks])


def all_trees(nodes):
    """Every tree of so many drafted nodes, some of them many times."""
    for parents in product(*(range(node) for node in range(1, nodes + 1))):
        yield (-1, *parents)


def best_of_all(rates, nodes, depth):
    allowed = (tree for tree in all_trees(nodes) if max(depth_of(tree, node) for node in range(len(tree))) <= depth)
    return max(tokens_of(tree, rates) for tree in allowed)


def test_expected_tokens_add_up_path_probabilities():
    assert expected_tokens_of_tree((-1,), (1.0,)) == 1
    assert expected_tokens_of_tree((-1, 0, 0, 1), (1.0, 0.6, 0.3, 0.5)) == pytest.approx(1 + 0.6 + 0.3 + 0.3)
    rates = (0.8, 0.5, 0.4)
    assert expected_tokens_of_tree((-1, 0, 1, 2), (1.0, *rates)) == pytest.approx(expected_tokens_by_position(rates))


@pytest.mark.parametrize("rates", [RATES, (0.4, 0.35), (0.9,)])
@pytest.mark.parametrize(("nodes", "depth"), [(1, 1), (3, 2), (5, 2), (6, 3), (6, 6)])
def test_the_dynamic_program_finds_the_best_of_all_trees(rates, nodes, depth):
    best = max(best_of_all(rates, size, depth) for size in range(1, nodes + 1))
    free = best_tree(rates, lambda tokens: 1.0 + 1e-9 * tokens, nodes=nodes, depth=depth)
    assert free.tokens == pytest.approx(best, abs=1e-12)
    assert tokens_of(free.parents, rates) == pytest.approx(free.tokens, abs=1e-12)
    assert free.nodes <= nodes and free.depth <= depth


@pytest.mark.parametrize("rates", [(0.0, 0.5), (0.0, 0.0, 0.3), (0.6, 0.0, 0.2), (0.0,)])
@pytest.mark.parametrize(("nodes", "depth"), [(2, 1), (4, 2), (5, 3)])
def test_a_rank_that_is_never_right_makes_no_impossible_tree_win(rates, nodes, depth):
    free = best_tree(rates, lambda tokens: 1.0 + 1e-9 * tokens, nodes=nodes, depth=depth)
    best = max(1.0, *(best_of_all(rates, size, depth) for size in range(1, nodes + 1)))
    assert free.tokens == pytest.approx(best, abs=1e-12)
    assert free.nodes <= nodes and free.depth <= depth


def test_half_a_token_for_the_second_guess():
    assert best_tree([0.0, 0.5], lambda n: 1.0, nodes=2, depth=1).tokens == 1.5


@pytest.mark.parametrize("price", [0.02, 0.1, 0.3, 0.7])
def test_it_stops_where_the_next_node_costs_more_than_it_brings(price):
    def seconds(tokens):
        return 1.0 + price * (tokens - 1)

    plan = best_tree(RATES, seconds, nodes=6, depth=6)
    rates_of_all = [1.0] + [best_of_all(RATES, size, 6) / seconds(size + 1) for size in range(1, 7)]
    assert plan.rate == pytest.approx(max(rates_of_all))
    if price == 0.7:
        assert plan.nodes == 0, "half a token does not pay for seven tenths of a pass"


def test_draft_levels_cost_depth_and_prefer_bushes():
    deep = best_tree(RATES, lambda tokens: 1.0, nodes=8, depth=8)
    flat = best_tree(RATES, lambda tokens: 1.0, nodes=8, depth=8, draft_step=0.2)
    assert flat.depth < deep.depth


@pytest.mark.parametrize("nodes", [1, 3, 6])
def test_best_first_takes_the_likeliest_paths(nodes):
    tree = best_first_tree(RATES, nodes=nodes, depth=4)
    assert len(tree) == nodes + 1
    assert tokens_of(tree, RATES) == pytest.approx(best_of_all(RATES, nodes, 4))


def test_best_first_knows_its_limits():
    assert best_first_tree(RATES, nodes=9, depth=0) == (-1,) == best_first_tree((), nodes=3, depth=3)
    assert len(best_first_tree((0.5, 0.0), nodes=9, depth=3)) == 4, "what is never accepted is not drafted"


def test_a_node_pays_if_it_raises_tokens_a_second():
    assert next_node_pays(0.3, tokens=2.0, seconds=1.0, extra=0.1)
    assert not next_node_pays(0.2, tokens=2.0, seconds=1.0, extra=0.1), "equal is not more"


def test_trees_made_even():
    assert branching_of((-1, 0, 1, 2), nodes=3) == (1, 1, 1)
    assert branching_of((-1, 0, 0, 1, 2), nodes=4) == (2, 1)
    assert branching_of((-1, 0, 0, 0, 1, 1, 2), nodes=6) == (3, 1)
    assert branching_of((-1,), nodes=4) == ()


def test_a_tree_of_one_level_is_not_written_as_a_number_of_nodes():
    flat = best_tree((0.5, 0.3, 0.15), lambda tokens: 1.0, nodes=3, depth=1)
    assert flat.parents == (-1, 0, 0, 0)
    assert branching_text(branching_of(flat.parents, nodes=3)) == "3x"
    assert branching_text((3, 2, 1)) == "3x2x1" and branching_text((1, 1)) == "1x1" and branching_text(()) == ""


def test_impossible_searches_are_named():
    with pytest.raises(ParameterError, match="rates"):
        best_tree((1.5,), lambda tokens: 1.0)
