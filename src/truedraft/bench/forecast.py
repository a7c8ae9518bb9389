"""Predictions beside measurements: each cell's speedup from acceptance that was counted and the profile's costs.

Acceptance of a chain is taken from the longest chain of the same drafter, task, temperature and batch, so most cells
are predicted from rounds other than their own; a tree's is its own. The batch is the cell's, because drafters bet less
where more texts share a pass. What is predicted is time: no clock of the bench has a part in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from truedraft.bench.summary import Cell
from truedraft.planning.predict import Estimate, predicted_speedup, resampled
from truedraft.planning.profile import Profile

__all__ = ["CLOSE", "Forecast", "drafter_of", "family_of", "forecasts_of", "foretold", "length_of", "rule_of"]

CLOSE = 0.15
"""How far a prediction may be from the measured speedup, as a share of that, to count as right."""


@dataclass(frozen=True)
class Forecast:
    """A cell with its predicted speedup.

    source: the arm and batch whose acceptance it rests on; tokens: what a round was foreseen to emit by that.
    """

    cell: Cell
    predicted: Estimate
    source: str
    tokens: float

    @property
    def measured(self) -> float:
        """The cell's speedup over all units together."""
        return self.cell.total_speedup

    @property
    def miss(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.value / self.measured - 1.0

    @property
    def is_close(self) -> bool:
        """Whether it counts as right."""
        return abs(self.miss) <= CLOSE

    def why(self, profile: Profile) -> str:
        """What a miss comes from: acceptance that differs from the source's, else passes or drafts that do."""
        emitted = self.cell.total.acceptance_length
        if abs(emitted / self.tokens - 1) > CLOSE / 2:
            return f"a round emitted {emitted:.2f} tokens, where {self.tokens:.2f} were foreseen"
        outside = 1.0 - self.cell.parts.get("target", 1.0)
        foreseen = profile.outside_seconds(
            drafter_of(self.cell.arm), self.cell.total.drafted_per_round, batch=self.cell.batch
        ) / profile.pass_seconds(1, batch=self.cell.batch, context=self.cell.context)
        return (
            f"{outside:.0%} of the time went outside the pass, where {foreseen / (1 + foreseen):.0%} was foreseen; "
            "the rest is passes that cost other than profiled"
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "task": self.cell.task,
            "batch": self.cell.batch,
            "temperature": self.cell.temperature,
            "arm": self.cell.arm,
            "predicted": self.predicted.value,
            "low": self.predicted.low,
            "high": self.predicted.high,
            "measured": self.measured,
            "miss": self.miss,
            "close": self.is_close,
            "source": self.source,
        }


def forecasts_of(cells: Sequence[Cell], profile: Profile) -> list[Forecast]:
    """A forecast for every cell that drafts, whose rounds were seen, and whose drafter the profile knows."""
    return [_forecast(cell, _source(cell, cells), profile) for cell in cells if foretold(cell, profile)]


def foretold(cell: Cell, profile: Profile) -> bool:
    """Whether a profile can speak of a cell: of rounds seen here, of a fixed shape, by a drafter whose cost it has."""
    drafter = drafter_of(cell.arm)
    seen = drafter != "none" and bool(cell.counts) and bool(cell.parts)  # of another engine no parts are seen
    return seen and " policy " not in cell.arm and profile.knows(drafter)


def _forecast(cell: Cell, source: Cell, profile: Profile) -> Forecast:
    drafter, length = drafter_of(cell.arm), length_of(cell.arm)
    predicted = resampled(
        source.counts,
        lambda counts: predicted_speedup(
            counts, profile, drafter, draft_tokens=length, batch=cell.batch, context=cell.context
        ),
    )
    survival = source.total.survival
    return Forecast(cell, predicted, f"{source.arm}, batch {source.batch}", 1.0 + sum(survival[:length]))


def _source(cell: Cell, cells: Sequence[Cell]) -> Cell:
    """The cell whose acceptance predicts this one."""

    def load(one: Cell) -> tuple[object, ...]:
        return one.task, one.temperature, one.batch, family_of(one.arm)

    alike = [other for other in cells if load(other) == load(cell) and other.counts]
    return max(alike, key=lambda other: length_of(other.arm) or 0)


_K = re.compile(r" k=(\d+)")
_SHAPE = re.compile(r" k=\d+| tree \S+")


def drafter_of(arm: str) -> str:
    """The drafter of an arm of this package."""
    return arm.split(" ")[0]


def family_of(arm: str) -> str:
    """An arm's name without the length of its chains; arms with other shapes are a family each."""
    return _K.sub(" chain", arm)


def rule_of(arm: str) -> str:
    """The acceptance rule of an arm."""
    return _SHAPE.sub("", arm.partition(" policy ")[0]).partition(" ")[2] or "auto"


def length_of(arm: str) -> int | None:
    """The draft length of a chain; None for other shapes."""
    match = _K.search(arm)
    return int(match[1]) if match else None
