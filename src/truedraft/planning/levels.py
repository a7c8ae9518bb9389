"""How much may be bet, as a ladder of shapes, and what each rung has brought so far.

A round that was allowed a rung tells about every rung below it as well where the nodes of a draft come in an order in
which smaller drafts are its beginnings. Trees that are drawn are spread over their levels by how many nodes there are,
so a smaller one is another tree: they tell about their own rung. This file refuses to know seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from truedraft.core import Law, Round, Shape

__all__ = ["Yield", "allowed_level", "ladder"]

Row = NDArray[np.float64]

_FIRST, _GOES_ON = 0.5, 0.8
"""What is believed of a drafter before anything was seen: its first bet is right half of the time, and after a right
one the next is right with this probability."""

_DOUBT = 4.0
"""In rounds, how much is believed of the rungs below one that tells about itself alone."""


def ladder(shape: Shape) -> tuple[Shape, ...]:
    """Shapes from the smallest to the whole one: chains by length, fixed trees by level, others by doubling nodes."""
    if shape.branching or shape.width == 1:
        return tuple(shape.clip(depth) for depth in range(1, shape.depth + 1))
    sizes = [1 << power for power in range(shape.nodes.bit_length()) if 1 << power < shape.nodes] + [shape.nodes]
    return tuple(Shape(min(shape.depth, size), min(shape.width, size), size) for size in sizes if size)


def allowed_level(levels: Sequence[Shape], shape: Shape) -> int:
    """How many rungs of the ladder fit into a shape; 0: not even the first."""
    return sum(level.nodes <= shape.nodes for level in levels) if shape.depth else 0


class Yield:
    """By rung: how many more tokens a round emits thanks to it, and how much of it gets drafted; old rounds fade.

    weight [L]: rounds in which the rung was allowed. Where there are few, what the rung below brought is carried on.
    """

    def __init__(self, levels: Sequence[Shape], fading: float) -> None:
        self._edges = [0, *(level.nodes for level in levels)]
        self._fading = fading
        self.weight: Row = np.zeros(len(levels))
        self._gained: Row = np.zeros(len(levels))
        self._filled: Row = np.zeros(len(levels))

    def learn(self, record: Round, allowed: int) -> None:
        """Take a round that was allowed so many rungs."""
        if not allowed:
            return
        first = 0 if _holds_smaller_ones(record) else allowed - 1
        below = float(self.rates(_DOUBT)[0][:first].sum()) if first else 0.0
        for row in (self.weight, self._gained, self._filled):
            row[first:] *= self._fading
        path, drafted = record.verdict.path[: record.accepted], len(record.draft)
        for rung in range(first, allowed):
            low, high = self._edges[rung], self._edges[rung + 1]
            self.weight[rung] += 1.0
            self._gained[rung] += len(path) - below if first else sum(low < node <= high for node in path)
            self._filled[rung] += min(max(drafted - low, 0) / (high - low), 1.0)

    def rates(self, strength: float, prior: tuple[Row, Row] | None = None) -> tuple[Row, Row]:
        """(tokens gained, share filled) by rung [L]; `strength`: in rounds, that of the prior."""
        gained, filled = prior if prior is not None else self._carried(strength)
        weight = self.weight + strength
        mean = (self._gained + strength * gained) / weight
        return np.maximum(mean, 0.0), (self._filled + strength * filled) / weight

    def _carried(self, strength: float) -> tuple[Row, Row]:
        """A prior for every rung from the rung below it."""
        gained, filled = list[float](), list[float]()
        before, share, fill = 1.0, _FIRST, 1.0
        seen = zip(self.weight.tolist(), self._gained.tolist(), self._filled.tolist(), strict=True)
        for rung, (weight, gain, full) in enumerate(seen):
            gained.append(before * share)
            filled.append(fill)
            here = max((gain + strength * gained[-1]) / (weight + strength), 0.0)
            fill = (full + strength * fill) / (weight + strength)
            share = _GOES_ON if rung == 0 else min(max(here / before if before else 0.0, 0.3), 0.95)
            before = here
        return np.array(gained), np.array(filled)


def _holds_smaller_ones(record: Round) -> bool:
    """Whether the first nodes of a round's draft are the draft of a smaller shape."""
    shape = record.shape
    return record.draft.law is Law.CHOSEN or bool(shape.branching) or shape.width == 1
