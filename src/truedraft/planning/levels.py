"""How much may be bet, as a ladder of shapes, and what each rung has brought so far.

A round that was allowed a rung tells about every rung below it as well where the nodes of a draft come in an order in
which smaller drafts are its beginnings. Trees that are drawn are spread over their levels by how many nodes there are,
so a smaller one is another tree: they tell about their own rung. This file refuses to know seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

from truedraft.core import Law, Round, Shape

__all__ = ["Rates", "Row", "Seen", "Yield", "allowed_level", "ladder"]

Row: TypeAlias = list[float]
"""A number by rung [L]. Lists, because there are few: an array operation costs what a dozen numbers do."""
Rates: TypeAlias = tuple[Row, Row]
"""By rung [L], tokens gained and the share that gets drafted."""

_FIRST, _GOES_ON = 0.5, 0.8
"""What is believed of a drafter before anything was seen: its first bet is right half of the time, and after a right
one the next is right with this probability."""

_LEAST = 1e-9
"""Tests, where there was none."""

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
    return bisect_right(levels, shape.nodes, key=attrgetter("nodes")) if shape.depth else 0


@dataclass(frozen=True)
class Seen:
    """What a round tells of a text's rungs, from `first` on: tokens gained, share filled.

    whole: whether it tells about one rung alone; gained has in it what lower rungs brought.
    """

    first: int
    gained: Row
    filled: Row
    whole: bool

    @classmethod
    def of(cls, record: Round, levels: Sequence[Shape]) -> Seen:
        """A record; one without a bet tells nothing."""
        allowed, drafted = allowed_level(levels, record.shape), len(record.draft)
        if not drafted:
            return cls(0, [0.0] * allowed, [0.0] * allowed, whole=False)
        path = record.verdict.path[: record.accepted]
        edges = [0, *(level.nodes for level in levels[:allowed])]
        filled = [min(max(drafted - low, 0) / (high - low), 1.0) for low, high in pairwise(edges)]
        if allowed and not _holds_smaller_ones(record):
            return cls(allowed - 1, [float(len(path))], filled[-1:], whole=True)
        reached = [bisect_right(path, edge) for edge in edges]
        return cls(0, [float(high - low) for low, high in pairwise(reached)], filled, whole=False)


class Yield:
    """By rung: how many more tokens a round emits thanks to it, and how much of it gets drafted; old rounds fade.

    chained: whether what a rung gains follows what the one below gains, as in chains and levels of a fixed tree. It is
    then counted against that, as acceptance by position is: a round that lost its first bet says nothing of the second.
    Where siblings stand on several rungs, one gains what the other has lost, and rounds are what is counted against.

    weight [L]: rounds in which the rung was allowed. tests [L]: the same, or tokens that the rung below gained in them.
    gained, filled [L]: tokens and shares, summed up.
    """

    def __init__(self, rungs: int, fading: float, *, chained: bool = True) -> None:
        self._fading, self._chained = fading, chained
        self.weight, self.tests, self.gained, self.filled = ([0.0] * rungs for _ in range(4))

    def learn(self, seen: Seen) -> None:
        """Take a round."""
        rest, keep = 0.0, self._fading
        if seen.whole:
            rest = sum(self.rates(_DOUBT)[0][: seen.first])
        gains = [gained - rest for gained in seen.gained]
        rounds = [1.0] * len(gains)
        told = slice(seen.first, seen.first + len(gains))
        for sums, added in (
            (self.weight, rounds),
            (self.tests, [1.0, *gains][: len(gains)] if self._chained else rounds),
            (self.gained, gains),
            (self.filled, seen.filled),
        ):
            sums[told] = [keep * before + now for before, now in zip(sums[told], added, strict=True)]

    def rates(self, strength: float, prior: Rates | None = None) -> Rates:
        """What a round brings; strength: in rounds, that of the prior. Without one a rung goes on as the one below."""
        if prior is None:
            return self._carried(strength)
        gained, filled, here, below = Row(), Row(), 1.0, 1.0
        rows = zip(self.weight, self.tests, self.gained, self.filled, *prior, strict=True)
        for weight, tests, gain, full, their_gain, their_full in rows:
            here = self._rate(gain + strength * their_gain, tests, strength, here, below)
            below = their_gain
            gained.append(here)
            filled.append((full + strength * their_full) / (weight + strength))
        return gained, filled

    def _carried(self, strength: float) -> Rates:
        """The rates, each with those of the rung below as its prior."""
        gained, filled, here, fill, share = Row(), Row(), 1.0, 1.0, _FIRST
        for weight, tests, gain, full in zip(self.weight, self.tests, self.gained, self.filled, strict=True):
            before, here = here, self._rate(gain + strength * here * share, tests, strength, here, here)
            fill = (full + strength * fill) / (weight + strength)
            share = min(max(here / before, 0.3), 0.95) if gained and before > 0.0 else _GOES_ON
            gained.append(here)
            filled.append(fill)
        return gained, filled

    def _rate(self, gain: float, tests: float, strength: float, here: float, below: float) -> float:
        """Tokens of a rung, from those it gained. here: what is found of the rung below; below: what the prior says."""
        tested = tests + strength * (below if self._chained else 1.0)
        return gain / tested * (here if self._chained else 1.0) if gain > 0.0 and tested > _LEAST else 0.0


def _holds_smaller_ones(record: Round) -> bool:
    """Whether the first nodes of a round's draft are the draft of a smaller shape."""
    shape = record.shape
    return record.draft.law is Law.CHOSEN or bool(shape.branching) or shape.width == 1
