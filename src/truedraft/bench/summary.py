"""From results to figures: a cell for every load and arm, with medians, their spread and the counts behind them.

Definitions are in docs/measuring.md. This file refuses to know clocks, models and pages.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

from truedraft.planning.counts import Counts

__all__ = ["Cell", "Spread", "cells_of", "csv_of", "mismatches"]

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high)

    def to_json(self) -> dict[str, float]:
        """A JSON object."""
        return {"median": self.median, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Cell:
    """One arm under one load.

    speed: output tokens a second of whole requests; decoding: of rounds with the full batch and no prompt being read.
    speedup: decoding over that of plain decoding in the same unit; request_speedup: the same of whole requests, from
    their times a token. total_speedup: of the sums of decoding time a token. first, each: seconds to the first token
    and for each later one. parts: share of decoding time by part. cost: draft seconds of a drafted token over a plain
    pass. counts: a prompt each, all repetitions added. identical: whether greedy ids are plain decoding's; None if
    that cannot be said.
    """

    task: str
    batch: int
    temperature: float
    arm: str
    speed: Spread
    decoding: Spread
    speedup: Spread
    request_speedup: Spread
    total_speedup: float
    first: Spread
    each: Spread
    identical: bool | None
    comparable: bool
    context: float
    parts: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None
    counts: tuple[Counts, ...] = ()

    @property
    def total(self) -> Counts:
        """The counts of all prompts."""
        return reduce(add, self.counts, Counts())

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        total = self.total
        return {
            "task": self.task,
            "batch": self.batch,
            "temperature": self.temperature,
            "arm": self.arm,
            "tokens_per_second": self.speed.to_json(),
            "decoding_tokens_per_second": self.decoding.to_json(),
            "speedup": self.speedup.to_json(),
            "request_speedup": self.request_speedup.to_json(),
            "total_speedup": self.total_speedup,
            "time_to_first_token": self.first.to_json(),
            "time_per_output_token": self.each.to_json(),
            "identical": self.identical,
            "comparable": self.comparable,
            "context": self.context,
            "acceptance_length": total.acceptance_length if total.rounds else None,
            "acceptance_rate": total.acceptance_rate if total.rounds else None,
            "acceptance_by_position": list(total.by_position),
            "drafted_per_round": total.drafted_per_round if total.rounds else None,
            "rounds": total.rounds,
            "parts": dict(self.parts),
            "cost": self.cost,
            "counts": [counts.to_json() for counts in self.counts],
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Cell:
        """From `to_json`."""
        return cls(
            task=entry["task"],
            batch=entry["batch"],
            temperature=entry["temperature"],
            arm=entry["arm"],
            speed=Spread(**entry["tokens_per_second"]),
            decoding=Spread(**entry["decoding_tokens_per_second"]),
            speedup=Spread(**entry["speedup"]),
            request_speedup=Spread(**entry["request_speedup"]),
            total_speedup=entry["total_speedup"],
            first=Spread(**entry["time_to_first_token"]),
            each=Spread(**entry["time_per_output_token"]),
            identical=entry["identical"],
            comparable=entry["comparable"],
            context=entry["context"],
            parts=entry["parts"],
            cost=entry["cost"],
            counts=tuple(map(Counts.from_json, entry["counts"])),
        )


def cells_of(lines: Iterable[Line]) -> list[Cell]:
    """A cell for every load and arm, in the order in which they first appear; the first arm of a load is plain."""
    loads: dict[tuple[str, int, float], dict[str, dict[str, Line]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        loads[line["task"], line["batch"], line["temperature"]][line["arm"]][line["unit"]] = line
    cells = []
    for arms in loads.values():
        plain = next(iter(arms.values()))
        cells += [_cell(list(units.values()), plain) for units in arms.values()]
    return cells


def _cell(lines: Sequence[Line], plain: Mapping[str, Line]) -> Cell:
    """One arm's units beside plain decoding's."""
    pairs = [_bases(line, plain[line["unit"]]) for line in lines if line["unit"] in plain]
    requests = [_pace(_whole(line)) / _pace(_whole(plain[line["unit"]])) for line in lines if line["unit"] in plain]
    first = lines[0]
    return Cell(
        task=first["task"],
        batch=first["batch"],
        temperature=first["temperature"],
        arm=first["arm"],
        speed=Spread.of([_pace(_whole(line)) for line in lines]),
        decoding=Spread.of([_pace(_basis(line)) for line in lines]),
        speedup=Spread.of([_pace(own) / _pace(base) for own, base in pairs]),
        request_speedup=Spread.of(requests),
        total_speedup=_total([base for _, base in pairs]) / _total([own for own, _ in pairs]),
        first=Spread.of([line["first"] for line in lines]),
        each=Spread.of([_each(line) for line in lines]),
        identical=all(line["differs"] is None for line in lines) if first["greedy"] else None,
        comparable=first["comparable"],
        context=_context(lines),
        parts=_parts(lines),
        cost=_cost(lines, list(plain.values())),
        counts=_by_prompt(lines),
    )


Basis = tuple[int, float]
"""Tokens, and the seconds that they took."""


def _whole(line: Line) -> Basis:
    """Of the whole request."""
    return int(line["tokens"]), float(line["seconds"])


def _decodes(line: Line) -> bool:
    """Whether a round with the whole batch was seen."""
    return bool(line["decoded"] and line["decoding"])


def _basis(line: Line) -> Basis:
    """Of the rounds with the whole batch; of the whole request where no such round was seen."""
    if _decodes(line):
        return int(line["decoded"]), float(line["decoding"])
    return _whole(line)


def _bases(line: Line, plain: Line) -> tuple[Basis, Basis]:
    """An arm's and plain decoding's, of the same kind: a text that one bet ends has no rounds to compare.

    Nor has a batch whose rounds nobody saw: that of it which was decoded when some texts were over already is in what
    is known, and not in rounds with the whole batch.
    """
    seen = line["batch"] == 1 or line["rounds"]
    if seen and _decodes(line) and _decodes(plain):
        return _basis(line), _basis(plain)
    return _whole(line), _whole(plain)


def _pace(basis: Basis) -> float:
    """Tokens a second."""
    return basis[0] / basis[1]


def _total(bases: Sequence[Basis]) -> float:
    """Seconds a token, all units together."""
    return sum(seconds for _, seconds in bases) / sum(tokens for tokens, _ in bases)


def _each(line: Line) -> float:
    """Seconds of a text for each token after its first; as if all ended with the last where ends were not seen."""
    if line.get("each") is not None:
        return float(line["each"])
    later = line["tokens"] - line["batch"]
    return float((line["seconds"] - line["first"]) * line["batch"] / later) if later > 0 else 0.0


def _context(lines: Sequence[Line]) -> float:
    """Tokens of a text on average, halfway through its output."""
    prompts = [length for line in lines for length in line["prompt_tokens"]]
    output = statistics.mean(line["tokens"] / line["batch"] for line in lines)
    return float(statistics.mean(prompts) + output / 2)


def _parts(lines: Sequence[Line]) -> dict[str, float]:
    """Share of the seconds of decoding rounds, by part."""
    seconds = {name: sum(line["parts"].get(name, 0.0) for line in lines) for name in lines[0]["parts"]}
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()} if total else {}


def _cost(lines: Sequence[Line], plain: Sequence[Line]) -> float | None:
    """c: draft seconds of a drafted token of every text, over the seconds of a plain pass; None without drafts."""
    steps = sum(line["rounds"] for line in plain)
    passes = sum(line["parts"].get("target", 0.0) for line in plain)
    drafted = reduce(add, _by_prompt(lines), Counts()).drafted_per_round
    rounds = sum(line["rounds"] for line in lines)
    if not (steps and passes and drafted and rounds):
        return None
    drafting = sum(line["parts"].get("draft", 0.0) for line in lines)
    return float(drafting / rounds / drafted / (passes / steps))


def _by_prompt(lines: Sequence[Line]) -> tuple[Counts, ...]:
    """Counts of every prompt of every unit, its repetitions added."""
    found: dict[tuple[str, int], Counts] = defaultdict(Counts)
    for line in lines:
        batch_of_prompts = line["unit"].rsplit(" · ", 1)[0]
        for place, entry in enumerate(line["counts"]):
            found[batch_of_prompts, place] += Counts.from_json(entry)
    return tuple(found.values())


def mismatches(lines: Iterable[Line]) -> list[str]:
    """Where greedy ids of an arm that must agree differ from plain decoding's, a sentence each."""
    return [
        f"{line['arm']} differs from plain decoding in {line['unit']}: text {line['differs'][0]}, "
        f"token {line['differs'][1]}"
        for line in lines
        if line["comparable"] and line["differs"] is not None
    ]


_COLUMNS = ("task", "batch", "temperature", "arm", "identical", "acceptance_length", "acceptance_rate", "cost")
_SPREADS = ("tokens_per_second", "speedup", "request_speedup", "time_to_first_token", "time_per_output_token")


def csv_of(cells: Sequence[Cell]) -> str:
    """A line a cell: what it is, its medians and quartiles, shares of time, and acceptance by position."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    deepest = max((len(cell.total.by_position) for cell in cells), default=0)
    spreads = [f"{name}_{part}" for name in _SPREADS for part in ("median", "low", "high")]
    parts = ("draft", "target", "rule", "rest")
    positions = [f"acceptance_{place}" for place in range(1, deepest + 1)]
    writer.writerow([*_COLUMNS, "drafted_per_round", *spreads, *(f"share_{part}" for part in parts), *positions])
    for cell in cells:
        entry = cell.to_json()
        row = [entry[name] for name in (*_COLUMNS, "drafted_per_round")]
        row += [entry[name][part] for name in _SPREADS for part in ("median", "low", "high")]
        row += [entry["parts"].get(part) for part in parts]
        writer.writerow(
            row + entry["acceptance_by_position"] + [None] * (deepest - len(entry["acceptance_by_position"]))
        )
    return text.getvalue()
