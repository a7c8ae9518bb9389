"""What a target's pass costs by the tokens in it, and what a text pays for the nodes of its tree.

A pass over a few tokens waits for the weights and is nearly flat; beyond some width it waits for arithmetic and grows
by the token. So early nodes are cheap and later ones are not, and where texts share a pass they reach the slope
together. Behind a long text a pass also reads its keys and values, once for all nodes, and every node attends to them.
Costs are in passes of one token behind a short text: this file refuses to know seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from truedraft.core import Session
from truedraft.errors import ParameterError

__all__ = ["FREE", "NO_COST", "ON_CPU", "ON_GPU", "USUAL", "NodeCosts", "PassCost", "mean_length"]

_TABLED = 256  # nodes whose cost is looked up; those beyond cost what the last of them did
_GRAIN = 256  # tokens of context that make no difference worth another table


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
    """T(n) / T(1) of a pass over n tokens: a bent line that only ever gets steeper, and what lies before them.

    slopes: (from how many tokens on, what each further one adds), the first from 1 token on. reading, attending: what
    1,000 tokens before them add for each text, and for each token that attends to them. Raises `ParameterError` if
    one of these is negative, or a slope less than the one before.
    """

    slopes: tuple[tuple[float, float], ...]
    reading: float = 0.0
    attending: float = 0.0

    def __post_init__(self) -> None:
        starts, steepness = zip(*self.slopes, strict=True) if self.slopes else ((), ())
        rising = all(one < other for one, other in pairwise(starts)) and all(
            one <= other for one, other in pairwise(steepness)
        )
        if not self.slopes or starts[0] != 1 or not steepness[0] >= 0 or not rising:
            raise ParameterError(
                f"a pass costs {self.slopes}: expected (tokens, what a further one adds) from 1 token and 0 on, rising"
            )
        if not min(self.reading, self.attending) >= 0:
            raise ParameterError(
                f"1,000 tokens of context add {self.reading} and {self.attending}: expected numbers from 0 on"
            )

    @classmethod
    def even(cls, price: float) -> PassCost:
        """Every further token adds the same."""
        return cls(((1, price),))

    @classmethod
    def measured(
        cls, points: Iterable[tuple[float, float]], longer: Iterable[tuple[float, float, float, float]] = ()
    ) -> PassCost:
        """The line that is closest below measured times (tokens, T), the first of one token, and only gets steeper.

        longer: (texts, tokens, 1,000 tokens of context more, seconds more) of passes behind longer texts; what these
        add is fitted by least squares.
        """
        (_, unit), *_ = measured = sorted(points)
        rows = np.array([(texts * more, tokens * more, seconds / unit) for texts, tokens, more, seconds in longer])
        reading, attending = _fitted(rows[:, :2], rows[:, 2]) if len(rows) else (0.0, 0.0)
        hull: list[tuple[float, float]] = []
        for point in ((tokens, max(seconds / unit, 1.0)) for tokens, seconds in measured):
            while len(hull) > 1 and _slope(hull[-2], point) <= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append(point)
        slopes = tuple((one[0], _slope(one, other)) for one, other in pairwise(hull)) or ((1, 0.0),)
        return cls(slopes, reading, attending)

    def of(self, tokens: float, *, texts: float = 1, context: float = 0) -> float:
        """Of a pass over n tokens of so many texts, each behind so many tokens."""
        cost = 1.0 + (self.reading * texts + self.attending * tokens) * context / 1000
        for (start, slope), end in zip(self.slopes, [*(start for start, _ in self.slopes[1:]), tokens], strict=True):
            cost += slope * max(0.0, min(end, tokens) - start)
        return cost

    def among(self, batch: int, context: float = 0) -> NodeCosts:
        """What each of `batch` texts of so many tokens pays that share a pass and add as many nodes as one another.

        T(B (1 + n)) / T(B): drafts shrink as a batch fills the pass that one text leaves nearly empty.
        """
        return self._among(batch, round(context / _GRAIN) * _GRAIN)

    @lru_cache(maxsize=1024)  # noqa: B019  # a handful of costs, batch sizes and lengths a program
    def _among(self, batch: int, context: int) -> NodeCosts:
        def cost(nodes: int) -> float:
            return self.of(batch * (1 + nodes), texts=batch, context=context)

        return NodeCosts(tuple(cost(nodes) / cost(0) for nodes in range(_TABLED + 1)))


def _fitted(rows: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """The two factors of columns [n, 2], neither negative, that come closest to values [n] by least squares.

    SciPy has it for any number of factors, and takes half a second to import.
    """
    one, other = np.linalg.lstsq(rows, values, rcond=None)[0]
    if min(one, other) >= 0:
        return float(one), float(other)
    alone = [max(float(column @ values / (column @ column)), 0.0) if column.any() else 0.0 for column in rows.T]
    pairs = [(alone[0], 0.0), (0.0, alone[1])]
    return min(pairs, key=lambda pair: float(((rows @ np.array(pair) - values) ** 2).sum()))


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def mean_length(sessions: Sequence[Session]) -> float:
    """Tokens of a text, on average over those that share a pass."""
    return sum(len(session.tokens) for session in sessions) / len(sessions) if sessions else 0.0


def _on_cpu(speed: float, *slopes: tuple[float, float]) -> PassCost:
    """speed: of plain passes, over that in float32; keys and values stay float32 and take the time that they take."""
    return PassCost(slopes, reading=0.08 * speed, attending=0.022 * speed)


USUAL = _on_cpu(1.0, (1, 0.019), (8, 0.055))
"""Of a model in float32 on two CPU cores: 1.13 passes for 8 tokens, 1.57 for 16."""

ON_CPU: Mapping[str, PassCost] = {
    "auto": USUAL,
    "float16": _on_cpu(1.9, (1, 0.06), (8, 0.12)),
    "bfloat16": _on_cpu(1.25, (1, 0.02), (8, 0.045)),
    "int8": _on_cpu(1.6, (1, 0.12)),
    "int4": _on_cpu(1.9, (1, 0.075), (8, 0.13)),
}
"""By the kind of its weights: a pass that reads less has less to hide arithmetic behind."""

ON_GPU = PassCost.even(0.004)
"""On a GPU passes stay flat for hundreds of tokens."""

FREE = PassCost.even(0.0)
"""Where the shape alone limits a tree."""

NO_COST = FREE.among(1)
"""The same for one text."""
