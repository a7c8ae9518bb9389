import math

import pytest

from tests.drafters.helpers import make
from truedraft.core import Policy, Shape
from truedraft.errors import ParameterError
from truedraft.planning.schedule import ByBatch, parse_schedule


def test_a_batch_has_the_shape_of_its_row():
    policy = parse_schedule("[[1, 4, 5], [5, 16, 2], [20, 999, 0]]")
    assert isinstance(policy, Policy)
    depths = {batch: policy.shape([make([1])] * batch, {}) for batch in (1, 4, 5, 16, 18, 20, 2000)}
    assert [len(shapes) for shapes in depths.values()] == list(depths)
    assert [shapes[0].depth for shapes in depths.values()] == [5, 5, 2, 2, 2, 0, 0]
    assert policy.shape([], {}) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[[1, 4]]",
        "[[2, 4, 5]]",
        "[]",
        "[[1, 4, 5], [4, 9, 1]]",
        "[[3, 1, 5]]",
        "[[1, 4, -1]]",
        "[[1, 1e999, 0]]",
        "[[1, 4, -Infinity]]",
        "[[1, NaN, 0]]",
        [[1, math.inf, 0]],
    ],
)
def test_other_tables_are_refused(text):
    with pytest.raises(ParameterError) as raised:
        parse_schedule(text)
    assert "\n" not in str(raised.value)


def test_rows_may_hold_any_shape():
    assert ByBatch(((1, 9, Shape.tree(2, 1)),)).shape([make([1])], {}) == [Shape.tree(2, 1)]
