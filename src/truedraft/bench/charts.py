"""Charts as data, and their drawing: as SVG that needs nothing else, and as PNG with Matplotlib where it is installed.

A chart is lines or points over two axes. This file refuses to know what it shows.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truedraft.errors import ParameterError

__all__ = ["Chart", "Series", "require_png", "svg", "write_png"]

Point = tuple[float, float]

_COLOURS = ("#2563eb", "#d97706", "#059669", "#be185d", "#7c3aed", "#0891b2", "#65a30d", "#dc2626")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 360, 56, 36, 16, 44


@dataclass(frozen=True)
class Series:
    """Points in the order of x, joined unless they are scattered; bars: low and high of every point.

    like: the name of the series whose colour this one shares.
    """

    name: str
    points: tuple[Point, ...]
    bars: tuple[Point, ...] = ()
    joined: bool = True
    dashed: bool = False
    like: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart. level: a horizontal line, such as the break-even at 1; diagonal: draw y = x; logarithmic: the x axis."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    level: float | None = None
    diagonal: bool = False
    logarithmic: bool = False

    def colour(self, number: int) -> str:
        """The colour of the series with this number."""
        names = [series.name for series in self.series]
        like = self.series[number].like
        return _COLOURS[(names.index(like) if like in names else number) % len(_COLOURS)]

    def bounds(self) -> tuple[Point, Point]:
        """(least, most) of x, and of y with 0 in it."""
        xs = [x for series in self.series for x, _ in series.points]
        ys = [y for series in self.series for _, y in series.points]
        ys += [bound for series in self.series for bar in series.bars for bound in bar]
        ys += [] if self.level is None else [self.level]
        least, most = min(xs, default=0.0), max(xs, default=1.0)
        if self.diagonal:
            least, most = 0.0, max([most, *ys])
        if least == most:
            least, most = (least / 2, most * 2) if self.logarithmic else (least - 0.5, most + 0.5)
        return (least, most), (min([0.0, *ys]), 1.06 * max([0.0, *ys]) or 1.0)


def svg(chart: Chart) -> str:
    """The chart as one SVG element; its colours follow the page."""
    place = _Places(chart)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(chart.title)}">',
        f'<text x="{_LEFT}" y="18" class="title">{html.escape(chart.title)}</text>',
        *_axes(chart, place),
    ]
    if chart.level is not None:
        height = place.y(chart.level)
        parts.append(f'<line class="level" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
    if chart.diagonal:
        low, high = place.x_bounds
        parts.append(
            f'<line class="level" x1="{place.x(low):.1f}" y1="{place.y(low):.1f}" '
            f'x2="{place.x(high):.1f}" y2="{place.y(high):.1f}"/>'
        )
    for number, series in enumerate(chart.series):
        parts += _series(series, place, chart.colour(number))
    return "".join(parts) + "</svg>" + _legend(chart)


class _Places:
    """From values to places on the page."""

    def __init__(self, chart: Chart) -> None:
        self.x_bounds, self.y_bounds = chart.bounds()
        self._scale = math.log2 if chart.logarithmic else float

    def x(self, value: float) -> float:
        low, high = map(self._scale, self.x_bounds)
        return _LEFT + (self._scale(value) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_bounds
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(chart: Chart, place: _Places) -> list[str]:
    """Grid lines with their values, and what the axes are."""
    parts = []
    for value in _ticks(*place.y_bounds):
        height = place.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in _x_ticks(chart, place):
        across = place.x(value)
        parts.append(
            f'<text class="tick" x="{across:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{html.escape(chart.x)}</text>')
    centre = (_TOP + _HEIGHT - _BOTTOM) / 2
    turned = f'text-anchor="middle" transform="rotate(-90 14 {centre})"'
    parts.append(f'<text x="14" y="{centre}" {turned}>{html.escape(chart.y)}</text>')
    return parts


def _x_ticks(chart: Chart, place: _Places) -> list[float]:
    """Where values stand, if they are few, else round numbers."""
    values = sorted({x for series in chart.series for x, _ in series.points})
    if len(values) <= 12 and not chart.diagonal:
        return values
    return _ticks(*place.x_bounds)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers in a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step)
    return [round(number * step, 10) for number in range(first, math.floor(high / step) + 1)]


def _series(series: Series, place: _Places, colour: str) -> list[str]:
    parts = []
    dots = [(place.x(x), place.y(y)) for x, y in series.points]
    if series.joined and len(dots) > 1:
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
    for (x, _), (low, high) in zip(dots, series.bars, strict=False):
        ends = f'y1="{place.y(low):.1f}" y2="{place.y(high):.1f}"'
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{colour}" stroke-opacity=".5" stroke-width="3"/>')
    for (x, y), (value, height) in zip(dots, series.points, strict=True):
        tip = html.escape(f"{series.name}: {value:g}, {height:.3g}")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{tip}</title></circle>')
    return parts


def _legend(chart: Chart) -> str:
    entries = [
        f'<span><i style="background:{chart.colour(number)}"></i>{html.escape(series.name)}</span>'
        for number, series in enumerate(chart.series)
    ]
    return f'<p class="legend">{"".join(entries)}</p>'


def require_png() -> None:
    """Raise `ParameterError` without Matplotlib: asked before a long run, not after it."""
    if find_spec("matplotlib") is None:
        raise ParameterError("PNG files need Matplotlib: install truedraft[plots], or leave them out")


def write_png(chart: Chart, path: Path) -> None:
    """The chart as a PNG file. Raises `ParameterError` without Matplotlib."""
    require_png()
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6.4, 3.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, series in enumerate(chart.series):
        style: dict[str, Any] = {"color": chart.colour(number), "marker": "o", "markersize": 4}
        style["linestyle"] = ("--" if series.dashed else "-") if series.joined else "none"
        xs: Sequence[float] = [x for x, _ in series.points]
        axes.plot(xs, [y for _, y in series.points], label=series.name, **style)
        if series.bars:
            axes.vlines(xs, [low for low, _ in series.bars], [high for _, high in series.bars], colors=style["color"])
    (left, right), bounds = chart.bounds()
    if chart.level is not None:
        axes.axhline(chart.level, color="grey", linestyle=":")
    if chart.diagonal:
        axes.plot([left, right], [left, right], color="grey", linestyle=":")
    if chart.logarithmic:
        values = sorted({x for series in chart.series for x, _ in series.points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y, ylim=bounds)
    axes.legend(fontsize="small")
    figure.savefig(path)
