from tests.drafters.helpers import make
from truedraft.core import Policy, Shape
from truedraft.planning.fixed import Fixed


def test_every_session_gets_the_same_shape():
    policy = Fixed(Shape.tree(2, 1))
    assert isinstance(policy, Policy)
    assert policy.shape([make([1]), make([2])], {}) == [Shape.tree(2, 1)] * 2
    assert policy.shape([], {}) == []
