"""The log of a run: one CSV file, a line an event, that a plot or a spreadsheet reads as it is."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Record"]

_COLUMNS = ("step", "tokens", "seconds", "loss", "rate", "gradient", "tokens_per_pass", "near", "acceptance")


class Record:
    """Lines of step, tokens seen, seconds, and whatever else is known by then; `acceptance` lists it by position.

    A run that resumes at a step takes back the lines that come after it.
    """

    def __init__(self, path: Path, *, step: int = 0) -> None:
        self._path = path
        kept = [line for line in self.read(path) if int(line["step"]) <= step] if path.is_file() else []
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _COLUMNS)
            writer.writeheader()
            writer.writerows(kept)

    def write(self, values: Mapping[str, object]) -> None:
        """Add a line."""
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, _COLUMNS).writerow(values)

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        """The lines of a log."""
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
