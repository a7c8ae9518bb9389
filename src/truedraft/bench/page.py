"""A run as one HTML page that needs nothing else: what was measured, tables, charts, forecasts and warnings."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from truedraft.bench.charts import svg
from truedraft.bench.forecast import CLOSE, Forecast
from truedraft.bench.plots import charts_of
from truedraft.bench.summary import Cell
from truedraft.planning.profile import Profile

__all__ = ["page_of"]


def page_of(
    about: Mapping[str, Any],
    cells: Sequence[Cell],
    *,
    warnings: Sequence[str] = (),
    forecasts: Sequence[Forecast] = (),
    profile: Profile | None = None,
) -> str:
    """The page; all text is escaped."""
    facts = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in about.items())
    notes = "".join(f'<p class="warning">{_text(note)}</p>' for note in warnings)
    loads = dict.fromkeys((cell.task, cell.batch, cell.temperature) for cell in cells)
    tables = "".join(
        _table(load, [cell for cell in cells if (cell.task, cell.batch, cell.temperature) == load]) for load in loads
    )
    charts = "".join(f"<figure>{svg(chart)}</figure>" for chart in charts_of(cells, forecasts).values())
    foreseen = _forecasts(forecasts, profile) if forecasts and profile is not None else ""
    return _PAGE.format(facts=facts, notes=notes, tables=tables, charts=charts, foreseen=foreseen)


_HEADINGS = (
    "",
    "tokens/s",
    "speedup",
    "whole requests",
    "first token, ms",
    "later tokens, ms",
    "tokens a round",
    "drafted a round",
    "by position",
    "draft / target / rule / rest",
    "c",
    "same ids",
)


def _table(load: tuple[str, int, float], cells: Sequence[Cell]) -> str:
    task, batch, temperature = load
    title = f"{task}, batch {batch}, {'greedy' if temperature == 0 else f'temperature {temperature:g}'}"
    head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in _row(cell))}</tr>" for cell in cells)
    return f'<h2>{_text(title)}</h2><div class="wide"><table class="cells"><tr>{head}</tr>{rows}</table></div>'


def _row(cell: Cell) -> list[str]:
    total = cell.total
    parts = " / ".join(f"{cell.parts[part]:.0%}" for part in ("draft", "target", "rule", "rest") if cell.parts)
    return [
        cell.arm,
        f"{cell.speed.median:.1f}",
        f"{cell.speedup.median:.2f}x ({cell.speedup.low:.2f} to {cell.speedup.high:.2f})",
        f"{cell.request_speedup.median:.2f}x",
        f"{1e3 * cell.first.median:.0f}",
        f"{1e3 * cell.each.median:.1f}",
        f"{total.acceptance_length:.2f}" if total.rounds else "",
        f"{total.drafted_per_round:.2f}" if total.rounds else "",
        " ".join(f"{rate:.2f}" for rate in total.by_position[:8]),
        parts,
        "" if cell.cost is None else f"{cell.cost:.3f}",
        {True: "yes", False: "no", None: ""}[cell.identical],
    ]


def _forecasts(forecasts: Sequence[Forecast], profile: Profile) -> str:
    """How many were right, and why the others were not."""
    close = sum(item.is_close for item in forecasts)
    said = f"{close} of {len(forecasts)} cells were predicted within {CLOSE:.0%} of the measured speedup."
    misses = "".join(
        f"<tr><td>{_text(item.cell.arm)}, {_text(item.cell.task)}, batch {item.cell.batch}, "
        f"T = {item.cell.temperature:g}</td><td>{item.predicted}</td><td>{item.measured:.2f}</td>"
        f"<td>{_text(item.why(profile))}</td></tr>"
        for item in forecasts
        if not item.is_close
    )
    head = "<tr><th>missed</th><th>predicted</th><th>measured</th><th>why</th></tr>"
    table = f'<div class="wide"><table class="cells">{head}{misses}</table></div>' if misses else ""
    return f"<h2>Predictions</h2><p>{said}</p>{table}"


def _text(value: Any) -> str:
    return html.escape(str(value))


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>truedraft bench</title>
<style>
:root {{ color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }}
body {{ max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; }} th {{ text-align: left; font-weight: 500; opacity: .7; }}
th, td {{ padding: .15rem .8rem .15rem 0; vertical-align: top; }}
.cells td, .cells th {{ border-bottom: 1px solid #8884; white-space: nowrap; }} .wide {{ overflow-x: auto; }}
.warning {{ border-left: 4px solid #d97706; padding-left: .8rem; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }}
figure {{ margin: 0; }} svg {{ width: 100%; height: auto; font-size: 12px; }} svg text {{ fill: currentColor; }}
.title {{ font-size: 14px; font-weight: 600; }} .tick {{ opacity: .7; }}
.grid {{ stroke: #8883; }} .level {{ stroke: #888; stroke-dasharray: 2 3; stroke-width: 1.5; }}
.legend {{ font-size: .8rem; margin: 0; }} .legend span {{ margin-right: 1rem; }}
.legend i {{ display: inline-block; width: .8em; height: .8em; margin-right: .3em; border-radius: 2px; }}
</style>
<h1>truedraft bench</h1>{notes}<table>{facts}</table>{tables}<h2>Charts</h2><div class="charts">{charts}</div>{foreseen}
<p>Speedup is that of decoding, after the prompts are read; whole requests have prompts in them. The bonus token counts
in tokens a round and in no rate. Medians over batches of prompts, with their quartiles.</p></html>
"""
