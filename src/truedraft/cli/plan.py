"""`truedraft plan`: does speculation pay, and with what; from a few numbers, or from measurements of one's own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from truedraft.bench.report import read_cells
from truedraft.cli import options as opt
from truedraft.cli.lists import fractions_of
from truedraft.cli.recommendation import recommended
from truedraft.errors import ParameterError
from truedraft.planning.account import (
    Advice,
    advise,
    expected_tokens_by_position,
    overall_speedup,
    speedup,
    sweet_spot,
)
from truedraft.planning.profile import Profile

__all__ = ["plan"]

_COST, _LENGTH, _LONGEST = 0.1, 4, 16

_MOST = 1024
"""Positions of a draft: the work grows with their square, and more are a slip of the keyboard."""

_WORDS = {
    Advice.WORTH_IT: "worth it",
    Advice.OTHER_LENGTH: "take another draft length: this one does not pay, the best one does",
    Advice.PAST_THE_RIDGE: "do not speculate at this batch: the pass over all drafted tokens is past the ridge",
    Advice.OVERHEAD_TOO_LARGE: "do not speculate: too little of the time is decoding, which is what gets shorter",
    Advice.DRAFT_TOO_EXPENSIVE: "do not speculate: the drafter is too expensive for what it gets accepted",
    Advice.ACCEPTANCE_TOO_LOW: "do not speculate: too little is accepted; the drafter does not fit this load",
}


def plan(
    alpha: Annotated[float | None, typer.Option("--alpha", help="Acceptance rate, the same at every position.")] = None,
    rates: Annotated[str | None, typer.Option("--rates", help="Acceptance by position: 0.8,0.7,0.6")] = None,
    cost: Annotated[float, typer.Option("--cost", help="One draft step over one target step.")] = _COST,
    draft_tokens: Annotated[int, typer.Option("--draft-tokens", "-k", help="Drafted tokens a round.")] = _LENGTH,
    batch: Annotated[int, typer.Option("--batch", help="Texts decoded at once.")] = 1,
    ridge: Annotated[
        float | None, typer.Option("--ridge", help="Tokens in a pass at which it stops being free.")
    ] = None,
    overhead: Annotated[
        float, typer.Option("--overhead", help="Share of plain decoding's time that reads prompts.")
    ] = 0.0,
    longest: Annotated[int, typer.Option("--longest", help="Longest draft to consider.")] = _LONGEST,
    profile: Annotated[Path | None, typer.Option("--profile", help="File of truedraft profile.")] = None,
    bench: Annotated[Path | None, typer.Option("--bench", help="Folder of truedraft bench.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only this task of the bench.")] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the bench's cells.")] = 0.0,
    json_: opt.Json = False,
) -> int:
    """Say what a draft is expected to yield and to cost, which length is best, and when not to speculate."""
    if (profile is None) != (bench is None):
        raise ParameterError("plan needs --profile and --bench together, or neither")
    if profile is not None and bench is not None:
        given: dict[str, tuple[Any, Any]] = {"alpha": (alpha, None), "rates": (rates, None), "ridge": (ridge, None)}
        given |= {"cost": (cost, _COST), "draft_tokens": (draft_tokens, _LENGTH), "batch": (batch, 1)}
        given |= {"overhead": (overhead, 0.0), "longest": (longest, _LONGEST)}
        _refuse_unheeded(given, "--profile and --bench, which measured it")
        cells, about = read_cells(bench)
        return recommended(Profile.load(profile), cells, (task, temperature), of=about.get("model"), as_json=json_)
    if task is not None or temperature:
        raise ParameterError("task and temperature are of a bench: name one with --bench, and --profile")
    if (alpha is None) == (rates is None):
        raise ParameterError(
            "plan needs exactly one of --alpha (0.7) and --rates (0.8,0.7,0.6), or --profile and --bench"
        )
    if not 0 <= overhead < 1:
        raise ParameterError(f"overhead is {overhead}: expected a share from 0 to below 1")
    measured = _measured(alpha, rates, longest, draft_tokens)
    load = _Load(measured, cost, batch, math.inf if ridge is None else ridge, overhead)
    report = load.report(draft_tokens)
    if json_:
        print(json.dumps(report))
    else:
        _print(report, Console(highlight=False))
    return 0


def _refuse_unheeded(given: Mapping[str, tuple[Any, Any]], beside: str) -> None:
    """Raise `ParameterError` for an option, (value, usual value), that was given and could not be heeded."""
    said = [name for name, (value, usual) in given.items() if value != usual]
    if said:
        raise ParameterError(f"{said[0]} is not heeded with {beside}: leave it out")


def _measured(alpha: float | None, rates: str | None, longest: int, draft_tokens: int) -> list[float]:
    """Acceptance by position, up to the longest draft to consider: alpha at all of them, or the given rates."""
    for name, value in (("longest", longest), ("draft_tokens", draft_tokens)):
        if not 1 <= value <= _MOST:
            raise ParameterError(f"{name} is {value}: expected 1 to {_MOST}")
    if alpha is not None:
        return [alpha] * max(longest, draft_tokens)
    _refuse_unheeded({"longest": (longest, _LONGEST)}, "--rates, which has one for every position")
    found = fractions_of("rates", rates or "")
    if len(found) > _MOST:
        raise ParameterError(f"rates has {len(found)} positions: expected at most {_MOST}")
    if draft_tokens > len(found):
        raise ParameterError(f"draft_tokens is {draft_tokens}: expected 1 to {len(found)}, one rate a position")
    return found


class _Load:
    """Rates by position, and what rounds cost."""

    def __init__(self, rates: list[float], cost: float, batch: int, ridge: float, overhead: float) -> None:
        self._rates, self._cost, self._overhead = rates, cost, overhead
        self._batch, self._ridge = batch, ridge

    def report(self, k: int) -> dict[str, Any]:
        rows = [self._row(length) for length in range(len(self._rates) + 1)]
        best, _ = sweet_spot(self._rates, self._cost, batch=self._batch, ridge=self._ridge)
        load: dict[str, Any] = {"batch": self._batch, "ridge": self._ridge, "overhead": self._overhead}
        advice = advise(self._rates, self._cost, k, **load)
        return {
            "draft_tokens": k,
            "expected_tokens": rows[k]["expected_tokens"],
            "speedup": rows[k]["speedup"],
            "best_draft_tokens": best,
            "best_speedup": rows[best]["speedup"],
            "advice": str(advice),
            "advice_in_words": _WORDS[advice],
            "rates": self._rates[:k],
            "cost": self._cost,
            "batch": self._batch,
            "ridge": self._ridge if math.isfinite(self._ridge) else None,
            "overhead": self._overhead,
            "table": rows,
        }

    def _row(self, k: int) -> dict[str, Any]:
        tokens = expected_tokens_by_position(self._rates[:k])
        decoding = speedup(tokens, k, self._cost, batch=self._batch, ridge=self._ridge)
        return {
            "draft_tokens": k,
            "expected_tokens": tokens,
            "speedup": overall_speedup(decoding, self._overhead),
        }


def _print(report: dict[str, Any], console: Console) -> None:
    table = Table("draft tokens", "expected tokens", "speedup", "")
    for column in table.columns[:3]:
        column.justify = "right"
    marks = {report["best_draft_tokens"]: "best", report["draft_tokens"]: "asked for"}
    if report["draft_tokens"] == report["best_draft_tokens"]:
        marks = {report["draft_tokens"]: "asked for, and best"}
    for row in report["table"]:
        k = row["draft_tokens"]
        style = "bold" if k in marks else ""
        table.add_row(str(k), f"{row['expected_tokens']:.2f}", f"{row['speedup']:.2f}x", marks.get(k, ""), style=style)
    console.print(table)
    console.print(report["advice_in_words"])
