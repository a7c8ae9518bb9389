"""The page of an experiment: what was run, tables, where the gain ends, and what follows, generated from the figures.

Every sentence states a figure of the run; nothing is written that was not measured or computed from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from truedraft.bench.forecast import CLOSE, drafter_of
from truedraft.bench.report import Report
from truedraft.bench.summary import Cell
from truedraft.planning.roofline import Machine, ModelSize, break_even_batch

__all__ = ["break_even", "findings"]


def break_even(points: Sequence[tuple[float, float]]) -> float | None:
    """The batch at which a speedup over batch sizes falls through 1, on straight lines over log batch.

    None if it never does; the first batch if it is not above 1 there.
    """
    if points[0][1] <= 1.0:
        return points[0][0]
    for (near, high), (far, low) in pairwise(points):
        if low <= 1.0:
            share = (high - 1.0) / (high - low)
            return math.exp(math.log(near) + share * (math.log(far) - math.log(near)))
    return None


def findings(report: Report, *, title: str, command: str, pictures: Mapping[str, str], notes: Sequence[str]) -> str:
    """The page in Markdown. pictures: paths by the name of their chart; notes: what was left out or scaled.

    report.profile must hold the machine's and the model's size.
    """
    greedy = [cell for cell in report.cells if cell.temperature == 0]
    drafting = [cell for cell in report.cells if drafter_of(cell.arm) != "none"]
    equal = [cell for cell in greedy if cell.identical is not None]
    lines = [
        f"# {title}",
        "",
        "This page was written by the run that it describes:",
        "",
        f"    {command}",
        "",
        *_setting(report),
        *(f"- {note}" for note in [*notes, *report.warnings]),
        "",
        "## What follows",
        "",
        *(f"- {sentence}" for sentence in _sentences(report, drafting)),
        f"- Greedy texts are plain decoding's, token by token, in {sum(bool(c.identical) for c in equal)} of "
        f"{len(equal)} cells.",
        "",
        *(f"![{name}]({path})" for name, path in pictures.items()),
        "",
        "## Where the gain ends",
        "",
        *_ends(report),
        "",
        *_misses(report),
        "## Figures",
        "",
        *_figures(report.cells),
        "",
        "Speed-up is that of decoding at the full batch, over plain decoding of the same prompts in the same run:",
        "medians over batches of prompts. A round's tokens include the bonus or correction; acceptance rates do not.",
        "",
    ]
    return "\n".join(lines)


def _setting(report: Report) -> list[str]:
    """What was measured, and where."""
    about, profile = report.about, report.profile
    machine: Mapping[str, Any] = {} if profile is None else profile.machine
    lines = [
        f"- model {about['model']}{', exact mode' if about.get('exact') else ''}; {about['prompts']} prompts a load, "
        f"up to {about['tokens']} tokens a text"
    ]
    if profile is not None and "bandwidth" in machine:
        lines.append(
            f"- {machine['device']}, {machine['threads']} threads: {machine['bandwidth'] / 1e9:.0f} GB/s and "
            f"{machine['peak'] / 1e9:.0f} GFLOP/s measured; the ridge is at {profile.ridge():.0f} tokens in a pass"
        )
    return lines


def _sentences(report: Report, drafting: Sequence[Cell]) -> list[str]:
    """A finding for every arm, then one on temperature, then one on predictions."""
    found = []
    for arm in dict.fromkeys(cell.arm for cell in drafting):
        own = [cell for cell in drafting if cell.arm == arm and cell.temperature == 0]
        least = min((cell.batch for cell in own), default=0)
        loads = [
            f"{cell.task}: {cell.total.acceptance_length:.2f} tokens a round, {cell.total_speedup:.2f} times plain"
            for cell in own
            if cell.batch == least
        ]
        if loads:
            found.append(f"{arm}, greedy at batch {least} – " + "; ".join(loads) + ".")
    found += _warmth(drafting)
    if report.forecasts:
        close = sum(forecast.is_close for forecast in report.forecasts)
        found.append(
            f"The account predicted the speed of {close} of {len(report.forecasts)} cells within {100 * CLOSE:g} %, "
            "from acceptance counted at their batch and the profile of the machine."
        )
    return found


def _warmth(drafting: Sequence[Cell]) -> list[str]:
    """What sampling does to acceptance, at the smallest batch."""
    temperatures = sorted({cell.temperature for cell in drafting})
    if len(temperatures) < 2:
        return []
    least = min(cell.batch for cell in drafting)
    cells = {(cell.arm, cell.task, cell.temperature): cell for cell in drafting if cell.batch == least}
    changes = [
        f"{arm} on {task} from {cell.total.acceptance_length:.2f} to {warm.total.acceptance_length:.2f}"
        for (arm, task, temperature), cell in cells.items()
        if temperature == temperatures[0] and (warm := cells.get((arm, task, temperatures[-1]))) is not None
    ]
    said = f"Temperature {temperatures[-1]:g} instead of {temperatures[0]:g} moves the tokens of a round: "
    return [said + "; ".join(changes) + "."] if changes else []


def _ends(report: Report) -> list[str]:
    """A row for every arm and load: the batch at which the gain vanishes, measured and predicted."""
    rows = [
        "| load | arm | decoding, measured | by the profile | by the roofline | whole requests, measured |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    groups: dict[tuple[str, float, str], list[Cell]] = {}
    for cell in report.cells:
        if drafter_of(cell.arm) != "none":
            groups.setdefault((cell.task, cell.temperature, cell.arm), []).append(cell)
    for (task, temperature, arm), cells in groups.items():
        cells.sort(key=lambda cell: cell.batch)
        foreseen = [
            (float(item.cell.batch), item.predicted.value)
            for cell in cells
            for item in report.forecasts
            if item.cell is cell
        ]
        ends = [
            _end([(float(cell.batch), cell.total_speedup) for cell in cells]),
            _end(foreseen) if foreseen else "",
            _roofline(report, cells[0]),
            _end([(float(cell.batch), cell.request_speedup.median) for cell in cells]),
        ]
        load = f"{task}, {'greedy' if temperature == 0 else f'T = {temperature:g}'}"
        rows.append(f"| {load} | {arm} | {' | '.join(ends)} |")
    return rows


def _misses(report: Report) -> list[str]:
    """What was foreseen otherwise, and why; nothing where all was foreseen."""
    if report.profile is None:
        return []
    rows = [
        f"- {item.cell.task}, batch {item.cell.batch}, T = {item.cell.temperature:g}, {item.cell.arm}: "
        f"{item.measured:.2f} measured, {item.predicted.value:.2f} foreseen; {item.why(report.profile)}"
        for item in report.forecasts
        if not item.is_close
    ]
    return ["## What was foreseen otherwise", "", *rows, ""] if rows else []


def _end(points: Sequence[tuple[float, float]]) -> str:
    """Where the gain ends, of speedups by batch."""
    value = break_even(points)
    if points[0][1] <= 1.0:
        return f"{points[0][0]:.0f}: it never gains"
    return f"beyond {points[-1][0]:.0f}" if value is None else f"{value:.0f}"


def _roofline(report: Report, cell: Cell) -> str:
    """The roofline's break-even for rounds such as this cell's."""
    if report.profile is None or "bandwidth" not in report.profile.machine:
        return ""
    size = {name: report.profile.model[name] for name in ModelSize.__dataclass_fields__}
    machine = Machine(report.profile.machine["bandwidth"], report.profile.machine["peak"])
    batch = break_even_batch(
        machine,
        ModelSize(**size),
        tokens=cell.total.acceptance_length,
        width=1 + cell.total.drafted_per_round,
        context=cell.context,
    )
    return "never" if batch is None else str(batch)


def _figures(cells: Sequence[Cell]) -> list[str]:
    """Every cell."""
    rows = [
        "| load | batch | T | arm | tokens a round | drafted a round | ms a token | tokens/s | speed-up | same ids |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in cells:
        total = cell.total
        values = [
            cell.task,
            str(cell.batch),
            f"{cell.temperature:g}",
            cell.arm,
            f"{total.acceptance_length:.2f}",
            f"{total.drafted_per_round:.2f}",
            f"{1e3 * cell.each.median:.1f}",
            f"{cell.speed.median:.1f}",
            f"{cell.speedup.median:.2f} ({cell.speedup.low:.2f}–{cell.speedup.high:.2f})",
            {True: "yes", False: "**no**", None: ""}[cell.identical],
        ]
        rows.append(f"| {' | '.join(values)} |")
    return rows
