"""The policy by a table: so many drafted tokens for every batch size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truedraft.core import Round, Session, Shape
from truedraft.errors import ParameterError

__all__ = ["ByBatch", "parse_schedule"]


@dataclass(frozen=True)
class ByBatch:
    """`core.Policy` by rows of (first batch size, last batch size, shape). A batch in no row takes the row below it."""

    rows: tuple[tuple[int, int, Shape], ...]

    def __post_init__(self) -> None:
        ends = [0]
        for first, last, _ in self.rows:
            if not ends[-1] < first <= last:
                raise ParameterError(f"schedule has the row {first} to {last} after {ends[-1]}: expected rising rows")
            ends.append(last)
        if not self.rows or self.rows[0][0] != 1:
            raise ParameterError("schedule must begin at batch 1, such as [[1, 4, 5], [5, 16, 2], [17, 999, 0]]")

    def shape(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> list[Shape]:
        """The shape of the batch's row, a session."""
        fitting = [shape for first, _, shape in self.rows if first <= len(sessions)]
        return [fitting[-1] if fitting else self.rows[0][2]] * len(sessions)


def parse_schedule(said: str | Sequence[Sequence[int]]) -> ByBatch:
    """From rows of first batch size, last batch size and draft tokens, also as JSON: [[1, 4, 5], [5, 16, 2]]."""
    try:
        rows = [tuple(map(int, row)) for row in (json.loads(said) if isinstance(said, str) else said)]
        return ByBatch(tuple((first, last, Shape.chain(tokens)) for first, last, tokens in rows))
    except (ValueError, TypeError, OverflowError) as error:
        raise ParameterError(
            f"schedule is {said!r} ({error}): expected rows of batch from, batch to and draft tokens, "
            "such as [[1, 4, 5], [5, 16, 2], [17, 999, 0]]"
        ) from None
