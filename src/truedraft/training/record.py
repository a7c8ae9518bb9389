"""The log of a run: one CSV file, a line an event, that a plot or a spreadsheet reads as it is."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from truedraft.training.writing import write_whole, writing

__all__ = ["Record"]

_COLUMNS = ("step", "tokens", "seconds", "loss", "rate", "gradient", "tokens_per_pass", "near", "acceptance")


class Record:
    """Lines of step, tokens seen, seconds, and whatever else is known by then; `acceptance` lists it by position.

    A run that resumes at a step takes back the lines that come after it. Raises `ParameterError` where it cannot write.
    """

    def __init__(self, path: Path, *, step: int = 0) -> None:
        self._path = path
        lines = self.read(path) if path.is_file() else []
        kept = [line for line in lines if None not in line.values() and int(line["step"]) <= step]
        write_whole(path, lambda part: self._fresh(part, kept))

    @staticmethod
    def _fresh(path: Path, lines: Sequence[Mapping[str, object]]) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _COLUMNS)
            writer.writeheader()
            writer.writerows(lines)

    def write(self, values: Mapping[str, object]) -> None:
        """Add a line."""
        with writing(self._path), self._path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, _COLUMNS).writerow(values)

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        """The lines of a log."""
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
