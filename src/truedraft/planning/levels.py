"""How much may be bet, as a ladder of shapes, and what each rung has brought so far.

A round that was allowed a rung tells about every rung below it as well where the nodes of a draft come in an order in
which smaller drafts are its beginnings. Trees that are drawn are spread over their levels by how many nodes there are,
so a smaller one is another tree: they tell about their own rung. This file refuses to know seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from truedraft.core import Law, Round, Shape

__all__ = ["Seen", "Yield", "allowed_level", "ladder"]

Row = NDArray[np.float64]

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
    """What a round tells about the rungs, a row a text [B, L]: whether anything, tokens gained, share filled.

    whole: where a round tells about its own rung alone; gained has in it what lower rungs brought.
    """

    told: NDArray[np.bool_]
    gained: Row
    filled: Row
    whole: NDArray[np.bool_]

    @classmethod
    def of(cls, records: Sequence[Round | None], levels: Sequence[Shape]) -> Seen:
        """The record of every text; None is one that tells nothing."""
        edges = [0, *(level.nodes for level in levels)]
        nothing = (0, 0, 0), [0] * len(edges)
        rows = [_row(record, levels, edges) if record and record.shape.depth else nothing for record in records]
        allowed, drafted, apart = np.array([facts for facts, _ in rows]).T[:, :, None]
        reached, low, high = np.array([reached for _, reached in rows]), np.array(edges[:-1]), np.array(edges[1:])
        rungs = np.arange(1, len(edges))
        whole = (apart == 1) & (rungs == allowed)
        gained = np.where(whole, reached[:, -1:], reached[:, 1:] - reached[:, :-1])
        filled = ((drafted - low) / (high - low)).clip(0.0, 1.0)
        return cls((rungs <= allowed) & (whole | (apart == 0)), gained.astype(float), filled, whole)


def _row(record: Round, levels: Sequence[Shape], edges: Sequence[int]) -> tuple[tuple[int, int, int], list[int]]:
    """Rungs allowed, tokens drafted, whether it tells about its own rung alone; accepted nodes up to every edge."""
    path = record.verdict.path[: record.accepted]
    facts = allowed_level(levels, record.shape), len(record.draft), int(not _holds_smaller_ones(record))
    return facts, [bisect_right(path, edge) for edge in edges]


class Yield:
    """By rung: how many more tokens a round emits thanks to it, and how much of it gets drafted; old rounds fade.

    What a rung gains is counted against what the one below it gained in the same rounds, as acceptance by position is:
    a round that lost its first bet says nothing of the second.

    fading [R]: a number a row. Either every row is a text, or all are of all texts.
    """

    def __init__(self, rungs: int, fading: Sequence[float]) -> None:
        self._fading = np.array(fading)[:, None]
        self._sums: Row = np.zeros((4, len(fading), rungs))

    @property
    def weight(self) -> Row:
        """Rounds [R, L] in which the rung was allowed."""
        return self._sums[0]

    @property
    def tests(self) -> Row:
        """Tokens [R, L] that the rung below gained in these rounds; for the first, the rounds."""
        return self._sums[1]

    @property
    def filled(self) -> Row:
        """Shares [R, L] of the rung that were drafted, summed up."""
        return self._sums[3]

    def among(self, places: Sequence[int | None], fading: float) -> Yield:
        """Rows in another order; None is a text of which nothing is known."""
        chosen = Yield(self._sums.shape[2], [fading] * len(places))
        known = [(here, there) for here, there in enumerate(places) if there is not None]
        if known:
            here, there = map(list, zip(*known, strict=True))
            chosen._sums[:, here] = self._sums[:, there]
        return chosen

    def learn(self, seen: Seen, *, together: bool = False) -> None:
        """Take a round: a row a text, or together into every row, as if one had come after another."""
        gained, below = seen.gained, _below(seen.gained)
        if seen.whole.any():
            expected = self.rates(_DOUBT)[0][: 1 if together else None]
            gained = np.where(seen.whole, gained - (expected.cumsum(1) - expected), gained)
            below = np.where(seen.whole, _below(expected), below)
        found = np.stack([np.ones_like(gained), below, gained, seen.filled]) * seen.told
        if together:
            found = found.sum(1, keepdims=True)
        # n rounds that fade one after another weigh (1 - f^n) / (1 - f) together.
        kept = self._fading ** found[0]
        share = (1.0 - kept) / (1.0 - self._fading) / np.maximum(found[0], 1.0)
        self._sums = kept * self._sums + share * found

    def rates(self, strength: float, prior: tuple[Row, Row] | None = None) -> tuple[Row, Row]:
        """(tokens gained, share filled) by rung [R, L]; `strength`: in rounds, that of the prior.

        Where there are few rounds and no prior, a rung goes on as the one below it.
        """
        if prior is None:
            carried = np.array([_carried(strength, *row) for row in self._sums.swapaxes(0, 1).tolist()])
            return carried[:, 0], carried[:, 1]
        (weight, tests, gains, fills), (gained, filled) = self._sums, prior
        ratio = np.maximum(gains + strength * gained, 0.0) / np.maximum(tests + strength * _below(gained), _LEAST)
        return ratio.cumprod(1), (fills + strength * filled) / (weight + strength)


def _below(gained: Row) -> Row:
    """What the rung below each gained [R, L]; below the first a round emits its one token."""
    below = np.ones_like(gained)
    below[:, 1:] = gained[:, :-1]
    return below


def _carried(
    strength: float, weights: Sequence[float], tests: Sequence[float], gains: Sequence[float], fills: Sequence[float]
) -> tuple[list[float], list[float]]:
    """The rates of one row, each with the rung below as its prior."""
    gained, filled = list[float](), list[float]()
    before, share, fill = 1.0, _FIRST, 1.0
    for rung, (weight, test, gain, full) in enumerate(zip(weights, tests, gains, fills, strict=True)):
        ratio = max(gain + strength * before * share, 0.0) / max(test + strength * before, _LEAST)
        before *= ratio
        fill = (full + strength * fill) / (weight + strength)
        share = _GOES_ON if rung == 0 else min(max(ratio, 0.3), 0.95)
        gained.append(before)
        filled.append(fill)
    return gained, filled


def _holds_smaller_ones(record: Round) -> bool:
    """Whether the first nodes of a round's draft are the draft of a smaller shape."""
    shape = record.shape
    return record.draft.law is Law.CHOSEN or bool(shape.branching) or shape.width == 1
