"""The four charts of a report: acceptance by position, speed over batch, speed over k, predicted against measured.

Values come from cells; nothing is computed here but which cell stands where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from truedraft.bench.charts import Chart, Series
from truedraft.bench.forecast import Forecast, drafter_of, family_of, length_of
from truedraft.bench.summary import Cell

__all__ = ["charts_of"]


def charts_of(cells: Sequence[Cell], forecasts: Sequence[Forecast] = ()) -> dict[str, Chart]:
    """Charts by file name; only those that the cells have something to show in."""
    found: dict[str, Chart] = {}
    loads = {(cell.task, cell.temperature) for cell in cells}
    for task, temperature in sorted(loads):
        own = [cell for cell in cells if (cell.task, cell.temperature) == (task, temperature)]
        name = f"{task}-t{temperature:g}".replace(":", "-")
        title = f"{task}, {'greedy' if temperature == 0 else f'T = {temperature:g}'}"
        drawn = {f"positions-{name}": _positions(own, title), f"k-{name}": _lengths(own, title)}
        for drafter in dict.fromkeys(drafter_of(cell.arm) for cell in own if cell.arm != "none"):
            lines = [cell for cell in own if drafter_of(cell.arm) == drafter]
            drawn[f"batch-{drafter}-{name}"] = _batches(lines, title, forecasts)
        found |= {key: chart for key, chart in drawn.items() if chart is not None}
    if forecasts:
        found["predicted"] = _predicted(forecasts)
    return found


def _positions(cells: Sequence[Cell], title: str) -> Chart | None:
    """Acceptance by position at the smallest batch, of the longest chain of every family."""
    least = min(cell.batch for cell in cells)
    longest: dict[str, Cell] = {}
    for cell in cells:
        if cell.batch == least and cell.total.by_position:
            known = longest.setdefault(family_of(cell.arm), cell)
            if (length_of(cell.arm) or 0) > (length_of(known.arm) or 0):
                longest[family_of(cell.arm)] = cell
    series = [Series(cell.arm, tuple(enumerate(cell.total.by_position, start=1))) for cell in longest.values()]
    return Chart(f"Acceptance by position: {title}", "position", "accepted", tuple(series)) if series else None


def _batches(cells: Sequence[Cell], title: str, forecasts: Sequence[Forecast]) -> Chart | None:
    """Speedup over batch, break-even at 1, predictions dashed."""
    if len({cell.batch for cell in cells}) < 2:
        return None
    series = []
    for arm, own in _by_arm(cells).items():
        points = tuple((float(cell.batch), cell.speedup.median) for cell in own)
        bars = tuple((cell.speedup.low, cell.speedup.high) for cell in own)
        series.append(Series(arm, points, bars))
        foreseen = [item for item in forecasts if any(item.cell is cell for cell in own)]
        if foreseen:
            dashes = tuple((float(item.cell.batch), item.predicted.value) for item in foreseen)
            series.append(Series(f"{arm}, predicted", dashes, dashed=True, like=arm))
    name = f"Speed over batch size: {title}"
    return Chart(name, "batch", "times plain", tuple(series), level=1.0, logarithmic=True)


def _lengths(cells: Sequence[Cell], title: str) -> Chart | None:
    """Speedup over the draft length, by drafter and batch."""
    groups: dict[str, list[tuple[float, Cell]]] = defaultdict(list)
    for cell in cells:
        length = length_of(cell.arm)
        if length is not None:
            groups[f"{family_of(cell.arm)}, batch {cell.batch}"].append((float(length), cell))
    series = [
        Series(
            name,
            tuple((k, cell.speedup.median) for k, cell in sorted(group, key=lambda pair: pair[0])),
            tuple((cell.speedup.low, cell.speedup.high) for _, cell in sorted(group, key=lambda pair: pair[0])),
        )
        for name, group in groups.items()
        if len(group) > 1
    ]
    if not series:
        return None
    return Chart(f"Speed over draft length: {title}", "k", "times plain", tuple(series), level=1.0)


def _predicted(forecasts: Sequence[Forecast]) -> Chart:
    """A point a cell."""
    groups: dict[str, list[Forecast]] = defaultdict(list)
    for item in forecasts:
        groups[drafter_of(item.cell.arm)].append(item)
    series = [
        Series(drafter, tuple((item.predicted.value, item.measured) for item in own), joined=False)
        for drafter, own in groups.items()
    ]
    return Chart("Predicted and measured speedup", "predicted", "measured", tuple(series), diagonal=True)


def _by_arm(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of every arm but plain decoding, by batch."""
    arms: dict[str, list[Cell]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: cell.batch):
        if cell.arm != "none":
            arms[cell.arm].append(cell)
    return arms
