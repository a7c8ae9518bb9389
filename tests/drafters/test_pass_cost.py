"""What passes and nodes cost, against lines that are written out here."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from truedraft.drafters.pass_cost import FREE, NO_COST, ON_CPU, ON_GPU, USUAL, PassCost
from truedraft.errors import ParameterError
from truedraft.targets.kernels import KERNELS

BENT = PassCost(((1, 0.02), (8, 0.05)))
POINTS = st.dictionaries(st.integers(2, 40), st.floats(0.5, 9.0), max_size=8).map(lambda more: {1: 2.0, **more})


@pytest.mark.parametrize(("tokens", "cost"), [(1, 1.0), (2, 1.02), (8, 1.14), (10, 1.24), (4.5, 1.07), (100, 5.74)])
def test_a_pass_costs_what_lies_on_the_bent_line(tokens, cost):
    assert BENT.of(tokens) == pytest.approx(cost)


@pytest.mark.parametrize("cost", [FREE, *ON_CPU.values(), ON_GPU, BENT, PassCost.even(0.3)])
@pytest.mark.parametrize("batch", [1, 2, 7, 16])
def test_a_text_pays_its_share_of_the_pass(cost, batch):
    """Also beyond the nodes that are tabled."""
    nodes = cost.among(batch)
    for count in (0, 1, 5, 17, 255, 256, 257, 300):
        assert nodes[count] == pytest.approx(cost.of(batch * (1 + count)) / cost.of(batch))
        assert nodes.next(count) == pytest.approx(nodes[count + 1] - nodes[count])
    assert nodes[0] == 1.0


def test_where_texts_fill_a_pass_their_first_node_costs_more():
    firsts = [BENT.among(batch).next(0) for batch in (1, 2, 4, 8, 16, 32)]
    assert firsts == sorted(firsts) and firsts[-1] > 10 * firsts[0]


def test_every_kind_of_weights_has_its_line():
    assert set(ON_CPU) == set(KERNELS) and ON_CPU["auto"] is USUAL


LONG = PassCost(((1, 0.02), (8, 0.1)), reading=0.2, attending=0.03)


@pytest.mark.parametrize("batch", [1, 3, 20])
def test_long_texts_are_read_once_a_text_and_attended_to_by_every_node(batch):
    def seconds(nodes):
        return LONG.of(batch * (1 + nodes)) + 4 * (0.2 * batch + 0.03 * batch * (1 + nodes))

    costs = LONG.among(batch, 4000)
    for nodes in (0, 1, 7, 40):
        assert costs[nodes] == pytest.approx(seconds(nodes) / seconds(0), rel=0.02)  # lengths are told apart roughly


def test_behind_long_texts_nodes_cost_what_attending_does():
    nexts = [LONG.among(1, context).next(20) for context in (0, 1000, 8000, 10**6)]
    assert nexts[0] == pytest.approx(0.1)
    assert nexts[-1] == pytest.approx(0.03 / 0.23, rel=0.01)
    assert nexts == sorted(nexts)


def test_what_a_context_adds_is_found_in_measured_passes():
    points = [(tokens, 3.0 * LONG.of(tokens)) for tokens in (1, 4, 8, 16)]
    longer = [
        (texts, texts * width, more, 3.0 * (0.2 * texts + 0.03 * texts * width) * more)
        for texts in (1, 4)
        for width in (1, 4, 8, 16)
        for more in (1.0, 4.0)
    ]
    found = PassCost.measured(points, longer)
    assert (found.reading, found.attending) == pytest.approx((0.2, 0.03))
    assert (PassCost.measured(points).reading, PassCost.measured(points).attending) == (0.0, 0.0)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.floats(-3, 9)), min_size=1, max_size=9))
def test_what_a_context_adds_is_the_closest_that_is_not_negative(passes):
    longer = [(texts, texts * width, 1.0, seconds) for texts, width, seconds in passes]
    found = PassCost.measured([(1, 1.0)], longer)
    rows = np.array([[texts, tokens] for texts, tokens, _, _ in longer], dtype=float)
    seconds = np.array([more for *_, more in longer])
    _, least = nnls(rows, seconds)
    assert np.linalg.norm(rows @ [found.reading, found.attending] - seconds) == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("wrong", [{"reading": -0.1}, {"attending": -1.0}, {"reading": float("nan")}])
def test_contexts_that_save_time_are_refused(wrong):
    with pytest.raises(ParameterError, match="context"):
        PassCost(((1, 0.1),), **wrong)


def test_what_costs_nothing_costs_nothing():
    assert {NO_COST[count] for count in range(400)} == {1.0} and {NO_COST.next(count) for count in range(400)} == {0.0}


@given(POINTS)
def test_a_measured_line_lies_closest_below_what_was_measured(points):
    line = PassCost.measured(points.items())
    costs = {tokens: max(seconds / 2.0, 1.0) for tokens, seconds in points.items()}
    assert line.of(1) == 1.0
    for tokens, cost in costs.items():
        assert line.of(tokens) <= cost + 1e-9
    # No line that only gets steeper lies above it anywhere: each of its bends is at a measured point.
    assert all(line.of(start) == pytest.approx(costs[start]) for start, _ in line.slopes)


def test_a_line_that_was_measured_without_bumps_is_kept():
    points = [(tokens, 3.0 * BENT.of(tokens)) for tokens in (1, 3, 8, 9, 17)]
    line = PassCost.measured(points)
    assert all(line.of(tokens) == pytest.approx(BENT.of(tokens)) for tokens in range(1, 60))


def test_one_measured_point_is_no_reason_to_draft_less():
    assert PassCost.measured([(1, 0.04)]) == FREE


@pytest.mark.parametrize(
    "slopes",
    [
        (),
        ((2, 0.1),),
        ((1, -0.1),),
        ((1, math.nan),),
        ((1, 0.2), (8, 0.1)),
        ((1, 0.1), (1, 0.2)),
        ((1, 0.1), (8, math.nan)),
    ],
)
def test_a_line_that_is_none_is_refused(slopes):
    with pytest.raises(ParameterError, match="a pass costs"):
        PassCost(slopes)


def test_a_line_only_gets_steeper():
    for cost in (*ON_CPU.values(), ON_GPU, BENT):
        steps = [cost.among(3).next(count) for count in range(300)]
        assert all(one <= other + 1e-12 for one, other in itertools.pairwise(steps))
