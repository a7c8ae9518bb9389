"""What a target's pass costs by the tokens in it, and what a text pays for the nodes of its tree.

A pass over a few tokens waits for the weights and is nearly flat; beyond some width it waits for arithmetic and grows
by the token. So early nodes are cheap and later ones are not, and where texts share a pass they reach the slope
together. Costs are in passes of one token: this file refuses to know seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from truedraft.errors import ParameterError

__all__ = ["FREE", "NO_COST", "ON_CPU", "ON_GPU", "USUAL", "NodeCosts", "PassCost"]

_TABLED = 256  # nodes whose cost is looked up; those beyond cost what the last of them did


@dataclass(frozen=True, eq=False)
class NodeCosts:
    """What a round costs a text by the nodes that it adds to a pass, in passes without any.

    totals: with 0, 1, 2, ... nodes; no node costs less than the one before.
    """

    totals: tuple[float, ...]

    def __getitem__(self, nodes: int) -> float:
        """Of a round with so many nodes."""
        beyond = nodes - len(self.totals) + 1
        return self.totals[nodes] if beyond <= 0 else self.totals[-1] + beyond * (self.totals[-1] - self.totals[-2])

    def next(self, nodes: int) -> float:
        """What one more adds to so many nodes."""
        return self[nodes + 1] - self[nodes]


@dataclass(frozen=True)
class PassCost:
    """T(n) / T(1) of a pass over n tokens: a bent line that only ever gets steeper.

    slopes: (from how many tokens on, what each further one adds), the first from 1 token on. Raises `ParameterError`
    if a slope is negative or less than the one before.
    """

    slopes: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        starts, steepness = zip(*self.slopes, strict=True) if self.slopes else ((), ())
        rising = all(one < other for one, other in pairwise(starts)) and all(
            one <= other for one, other in pairwise(steepness)
        )
        if not self.slopes or starts[0] != 1 or not steepness[0] >= 0 or not rising:
            raise ParameterError(
                f"a pass costs {self.slopes}: expected (tokens, what a further one adds) from 1 token and 0 on, rising"
            )

    @classmethod
    def even(cls, price: float) -> PassCost:
        """Every further token adds the same."""
        return cls(((1, price),))

    @classmethod
    def measured(cls, points: Iterable[tuple[float, float]]) -> PassCost:
        """The line that is closest below measured times (tokens, T), the first of one token, and only gets steeper."""
        (_, unit), *_ = measured = sorted(points)
        hull: list[tuple[float, float]] = []
        for point in ((tokens, max(seconds / unit, 1.0)) for tokens, seconds in measured):
            while len(hull) > 1 and _slope(hull[-2], point) <= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append(point)
        return cls(tuple((one[0], _slope(one, other)) for one, other in pairwise(hull)) or ((1, 0.0),))

    def of(self, tokens: float) -> float:
        """T(n) / T(1)."""
        cost = 1.0
        for (start, slope), end in zip(self.slopes, [*(start for start, _ in self.slopes[1:]), tokens], strict=True):
            cost += slope * max(0.0, min(end, tokens) - start)
        return cost

    @lru_cache(maxsize=1024)  # noqa: B019  # a handful of costs and batch sizes a program
    def among(self, batch: int) -> NodeCosts:
        """What each of `batch` texts pays that share a pass and add as many nodes as one another.

        T(B (1 + n)) / T(B): drafts shrink as a batch fills the pass that one text leaves nearly empty.
        """
        plain = self.of(batch)
        return NodeCosts(tuple(self.of(batch * (1 + nodes)) / plain for nodes in range(_TABLED + 1)))


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


USUAL = PassCost(((1, 0.019), (8, 0.055)))
"""Of a model in float32 on two CPU cores: 1.13 passes for 8 tokens, 1.57 for 16."""

ON_CPU: Mapping[str, PassCost] = {
    "auto": USUAL,
    "bfloat16": PassCost(((1, 0.037), (8, 0.049))),
    "int8": PassCost.even(0.09),
    "int4": PassCost(((1, 0.065), (8, 0.13))),
}
"""By the kind of its weights: a pass that reads less has less to hide arithmetic behind."""

ON_GPU = PassCost.even(0.004)
"""On a GPU passes stay flat for hundreds of tokens."""

FREE = PassCost.even(0.0)
"""Where the shape alone limits a tree."""

NO_COST = FREE.among(1)
"""The same for one text."""
