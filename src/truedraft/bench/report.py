"""What a run leaves behind: JSON that planning reads, CSV, the page, and PNG files where they can be drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truedraft.bench.charts import write_png
from truedraft.bench.forecast import Forecast, forecasts_of
from truedraft.bench.page import page_of
from truedraft.bench.plots import charts_of
from truedraft.bench.summary import Cell, cells_of, csv_of, mismatches
from truedraft.errors import ParameterError
from truedraft.planning.profile import Profile

__all__ = ["Report", "read_cells"]

_VERSION = 1


@dataclass(frozen=True)
class Report:
    """The results of a grid. about: what was measured, by name; profile: costs for forecasts."""

    about: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    warnings: Sequence[str] = ()
    profile: Profile | None = None
    cells: Sequence[Cell] = field(init=False)
    forecasts: Sequence[Forecast] = field(init=False)

    def __post_init__(self) -> None:
        cells = cells_of(self.lines)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "forecasts", [] if self.profile is None else forecasts_of(cells, self.profile))

    @property
    def mismatches(self) -> list[str]:
        """Where greedy ids differ that must not, a sentence each."""
        return mismatches(self.lines)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "bench": _VERSION,
            "about": dict(self.about),
            "warnings": list(self.warnings),
            "mismatches": self.mismatches,
            "cells": [cell.to_json() for cell in self.cells],
            "forecasts": [forecast.to_json() for forecast in self.forecasts],
        }

    def write(self, folder: Path, *, plots: bool = False) -> None:
        """report.json, report.csv and report.html; with plots, a PNG file a chart. Raises `ParameterError`."""
        page = page_of(
            self.about,
            self.cells,
            warnings=[*self.warnings, *self.mismatches],
            forecasts=self.forecasts,
            profile=self.profile,
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "report.json").write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8")
            (folder / "report.csv").write_text(csv_of(self.cells), "utf-8")
            (folder / "report.html").write_text(page, "utf-8")
        except OSError as error:
            raise ParameterError(f"out is {str(folder)!r}: cannot write there ({error.strerror})") from error
        if plots:
            for name, chart in charts_of(self.cells, self.forecasts).items():
                write_png(chart, folder / f"{name}.png")


def read_cells(path: Path) -> tuple[list[Cell], dict[str, Any]]:
    """The cells of a report.json, or of the folder that holds one, and what it says of its run.

    Raises `ParameterError` for any other file.
    """
    file = path / "report.json" if path.is_dir() else path
    try:
        entry = json.loads(file.read_text("utf-8"))
        if entry["bench"] != _VERSION:
            raise ValueError(f"version {entry['bench']}")
        return [Cell.from_json(cell) for cell in entry["cells"]], dict(entry.get("about") or {})
    except OSError as error:
        raise ParameterError(f"bench {str(path)!r} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ParameterError(f"{file} is no report of `truedraft bench` ({error})") from None
