"""Running a grid: arms take turns on the same prompts, a line of results is written at once, and a run can be resumed.

A unit is one batch of prompts under one load in one repetition, and every ratio is taken within a unit. Its arms write
at the same time: whoever is least far has the next turn, so that all are at the same place of their texts while a
machine is quick or slow. This file refuses to know models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from truedraft.bench.arms import Arm, Ids, Order, Sample, write
from truedraft.bench.grid import Load
from truedraft.errors import OutOfMemoryError, ParameterError

__all__ = ["Journal", "Unit", "differs_at", "in_turn", "run_units", "units_of"]

T = TypeVar("T")

_WARM_UP = 8
"""Tokens of the text that every arm writes before the first unit of a load."""


@dataclass(frozen=True)
class Unit:
    """A batch of prompts under a load, in one repetition."""

    load: Load
    number: int
    repeat: int
    order: Order

    @property
    def key(self) -> str:
        """What it is called in the journal."""
        return f"{self.load} · {self.number} · {self.repeat}"


def units_of(
    prompts: Mapping[str, Sequence[Ids]], loads: Sequence[Load], order: Order, *, repeats: int = 3
) -> list[Unit]:
    """Every unit of a grid, repetition by repetition; order: what is common to all of them.

    A task with fewer prompts than the batch is gone through again until the batch is full.
    """
    units = []
    for repeat in range(repeats):
        for load in loads:
            texts = prompts[load.task]
            for number, start in enumerate(range(0, len(texts), load.batch)):
                places = [place % len(texts) for place in range(start, start + load.batch)]
                own = replace(
                    order,
                    prompts=tuple(texts[place] for place in places),
                    seeds=tuple(1000 * repeat + start + offset for offset in range(load.batch)),
                    temperature=load.temperature,
                )
                units.append(Unit(load, number, repeat, own))
    return units


class Journal:
    """Results in a file, an object a line; the first line says what is measured."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.lines: list[dict[str, Any]] = []
        """The results so far."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size:
                self._resume(dict(header))
            else:
                path.write_text(json.dumps(dict(header)) + "\n", "utf-8")
        except OSError as error:
            raise ParameterError(f"out is {str(path.parent)!r}: cannot write there ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise ParameterError(
                f"out is {str(path.parent)!r}: expected results in UTF-8, and {path.name} has other bytes; "
                "take another folder, or remove that file"
            ) from error

    def _resume(self, header: dict[str, Any]) -> None:
        content = self._path.read_text("utf-8")
        first, *rest = content.splitlines()
        if _read(first) != header:
            raise ParameterError(
                f"{self._path.parent} holds results of other settings: take another folder, or remove {self._path.name}"
            )
        for line in map(_read, rest):
            if line is None:
                break  # cut off while it was written
            self.lines.append(line)
        if len(self.lines) < len(rest) or not content.endswith("\n"):
            part = self._path.with_suffix(".part")
            part.write_text("".join(json.dumps(entry) + "\n" for entry in [header, *self.lines]), "utf-8")
            part.replace(self._path)

    def has(self, unit: Unit, arms: Sequence[Arm]) -> bool:
        """Whether all arms of a unit are in it."""
        done = {line["arm"] for line in self.lines if line["unit"] == unit.key}
        return {arm.name for arm in arms} <= done

    def add(self, lines: Sequence[dict[str, Any]]) -> None:
        """Write the lines of a unit. Raises `ParameterError` where that is not possible."""
        self.lines += lines
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
        except OSError as error:
            raise ParameterError(
                f"{self._path} cannot be written ({error.strerror}): the units before are kept, and a run goes on there"
            ) from error


def _read(line: str) -> dict[str, Any] | None:
    """An object; None if it is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def run_units(
    units: Sequence[Unit], arms: Callable[[Load], Sequence[Arm]], journal: Journal, *, told: Callable[[str], None]
) -> Iterator[Unit]:
    """Run what the journal lacks; yields every unit when it is done. The first arm of a load is plain decoding."""
    warm: set[Load] = set()
    for place, unit in enumerate(units):
        here = arms(unit.load)
        if not journal.has(unit, here):
            if unit.load not in warm:
                warm.add(unit.load)
                for arm in here:
                    told(f"{unit.load}: {arm.name}, warming up")
                    write(arm, replace(unit.order, tokens=min(_WARM_UP, unit.order.tokens)))
            journal.add(_run(unit, here, place, told))
        yield unit


def in_turn(items: Sequence[T], turn: int) -> list[T]:
    """All of them, beginning `turn` places on, so that no arm always comes first."""
    start = turn % len(items)
    return [*items[start:], *items[:start]]


def _run(unit: Unit, arms: Sequence[Arm], place: int, told: Callable[[str], None]) -> list[dict[str, Any]]:
    """All arms of a unit; the lines of the journal."""
    order = in_turn(arms, place)
    told(f"{unit.load}: {len(arms)} arms in turns")
    try:
        samples = _together(order, unit.order)
    except OutOfMemoryError:  # the texts of all at once are too many
        samples = {}
        for arm in order:
            told(f"{unit.load}: {arm.name}")
            samples[arm.name] = write(arm, unit.order)
    plain = samples[arms[0].name]
    return [_line(unit, arm, samples[arm.name], plain) for arm in arms]


def _together(arms: Sequence[Arm], order: Order) -> dict[str, Sample]:
    """What every arm writes by turns; of those that are equally far the first in the list goes on."""
    with ExitStack() as stack:
        writings = {arm.name: stack.enter_context(closing(arm.begin(order))) for arm in arms}
        shares = {name: next(writing) for name, writing in writings.items()}
        samples: dict[str, Sample] = {}
        while shares:
            name = min(shares, key=shares.__getitem__)
            try:
                shares[name] = next(writings[name])
            except StopIteration as end:
                samples[name] = end.value
                del shares[name]
        return samples


def _line(unit: Unit, arm: Arm, sample: Sample, plain: Sample) -> dict[str, Any]:
    """What the journal keeps of a sample."""
    greedy = unit.load.temperature == 0
    differs = differs_at(sample.ids, plain.ids) if greedy and sample.ids is not None else None
    return {
        "unit": unit.key,
        "arm": arm.name,
        "task": unit.load.task,
        "batch": unit.load.batch,
        "temperature": unit.load.temperature,
        "comparable": arm.comparable,
        "greedy": greedy and sample.ids is not None,
        "differs": differs,
        "tokens": sample.tokens,
        "seconds": sample.seconds,
        "first": sample.first,
        "each": sample.each,
        "decoded": sample.decoded,
        "decoding": sample.decoding,
        "rounds": sample.rounds,
        "parts": dict(sample.parts),
        "counts": [counts.to_json() for counts in sample.counts],
        "prompt_tokens": [len(prompt) for prompt in unit.order.prompts],
    }


def differs_at(ids: Sequence[Ids] | None, plain: Sequence[Ids] | None) -> list[int] | None:
    """(prompt, token) of the first difference; None if there is none."""
    for prompt, (mine, theirs) in enumerate(zip(ids or (), plain or (), strict=True)):
        if mine != theirs:
            same = next((place for place, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            return [prompt, min(len(mine), len(theirs)) if same is None else same]
    return None
