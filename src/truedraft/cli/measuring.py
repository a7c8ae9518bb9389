"""What commands that measure share: one target with many drafters, its prompts, and runs behind a bar."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from truedraft.bench.arms import Arm, Ids, ModelArm, Order
from truedraft.bench.forecast import CLOSE
from truedraft.bench.grid import Load, Setting
from truedraft.bench.machine import clock_of, describe, model_size, name_of
from truedraft.bench.profiling import Grid, draft_costs, pass_times
from truedraft.bench.report import Report
from truedraft.bench.runs import Journal, run_units, units_of
from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import parse_shape, redraft
from truedraft.build.loading import Loaded
from truedraft.build.options import USERS
from truedraft.build.policies import glance, policy_named
from truedraft.cli.bars import Bar
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.planning.profile import Profile
from truedraft.targets.cached import CachedModel
from truedraft.targets.memory import available_memory
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

__all__ = ["Fleet", "about", "extras_of", "here", "measured", "run", "show", "warnings_of"]

_FEW = 10
"""Prompts of a task below which it is said that they are few."""


class Fleet:
    """Models that share a target. extras: options of single drafters, such as the small model's, by drafter."""

    def __init__(self, plain: Model, extras: Mapping[str, Mapping[str, Any]], profile: Profile | None = None) -> None:
        self._plain, self._extras, self._profile = plain, extras, profile
        self._made: dict[tuple[str, str, str], Model] = {}
        self._small: dict[str, Loaded] = {}
        self._caches: list[CachedModel] = []

    def model(self, setting: Setting) -> Model:
        """The model of a setting; lengths of one drafter share it, since it keeps nothing of a text that is over."""
        return self._shaped(self._shared(setting), setting)

    def arm(self, setting: Setting) -> ModelArm:
        """The same as an arm, on a clock that waits for the device, and with rows of its own.

        So an arm can write while others do, and finds nothing read that they have read.
        """
        own = _model_of(self._plain).fork(self._left)
        clock, target = clock_of(own.device), TorchTarget(own)
        plain = replace(self._plain, decoder=replace(self._plain.decoder, target=target))
        base = self._redrafted(plain, setting) if setting.drafter in _WITH_ROWS else self._shared(setting)
        model = self._shaped(base, setting)
        caches = [own, *(part for part in vars(model.decoder.drafter).values() if isinstance(part, CachedModel))]
        self._caches += caches

        def forget() -> None:
            """What is over is not there for the next text."""
            for cache in caches:
                cache.forget()

        model = replace(model, decoder=replace(model.decoder, target=target, clock=clock))
        return ModelArm(str(setting), model, tidy=forget, clock=clock)

    def _shared(self, setting: Setting) -> Model:
        key = setting.drafter, setting.rule, setting.tree
        if key not in self._made:
            self._made[key] = self._redrafted(self._plain, setting)
        return self._made[key]

    def _redrafted(self, plain: Model, setting: Setting) -> Model:
        options = {"drafter": setting.drafter, "rule": setting.rule, "tree": setting.tree or None}
        return redraft(plain, small=self._small, **options, **self._extras.get(setting.drafter, {}))

    def _shaped(self, base: Model, setting: Setting) -> Model:
        """A drafter's model with a setting's rule and policy."""
        usual, target = base.decoder.policy, _model_of(base)
        assert isinstance(usual, Fixed)
        shape = parse_shape(setting.draft_tokens, setting.tree or None) or usual.allowed
        name = setting.policy or "fixed"
        if name == "auto" and self._profile is None:
            self._profile = glance(target, base.facts)
        policy = policy_named(name, shape, target, base.facts, profile=self._profile)
        return replace(base, decoder=replace(base.decoder, rule=rule_named(setting.rule), policy=policy))

    def _left(self, device: torch.device) -> int:
        """Bytes that a cache may still take: on a CPU what others hold may be memory that they have not grown into."""
        untouched = sum(cache.held for cache in self._caches) if device.type == "cpu" else 0
        return max(0, available_memory(device) - untouched)


_WITH_ROWS = ("model", "layer-skip")
"""Drafters that keep rows of a model, or read the target's: every arm needs its own."""


def _model_of(model: Model) -> CachedModel:
    target = model.decoder.target
    assert isinstance(target, TorchTarget)
    return target.model


def extras_of(
    drafters: Sequence[str], *, head: str | None = None, draft_model: str | None = None, **loading: Any
) -> dict[str, dict[str, Any]]:
    """Options of every drafter. loading: those that small models are loaded by, and the profile to bet by.

    Raises `ParameterError` for a head or a small model that no drafter uses, and for two where one is asked.
    """
    given = {name: value for name, value in (("head", head), ("draft_model", draft_model)) if value is not None}
    for name, value in given.items():
        if not set(drafters) & set(USERS[name]):
            raise ParameterError(
                f"{name} is {value!r} and drafters {', '.join(drafters)}: expected one that uses it, "
                f"{', '.join(USERS[name])}"
            )
    if len(given) > 1 and "cascade" in drafters:
        raise ParameterError("head and draft_model are given, and drafter cascade asks one of them: leave one out")
    return {
        drafter: loading | {name: value for name, value in given.items() if drafter in USERS[name]}
        for drafter in drafters
    }


def measured(models: dict[str, Model], grid: Grid, *, told: Any = None) -> Profile:
    """The profile of a target; models: it with each drafter by name, "none" among them."""
    plain = models["none"]
    target = _model_of(plain)
    size = model_size(target.model)
    if told is not None:
        told("the machine")
    machine = describe(target.device, target.dtype)
    clock = clock_of(target.device)
    passes = pass_times(plain.decoder.target, plain.facts, grid, clock=clock, told=told)
    prompts = [ids_of(plain.facts, row.text, most=min(grid.contexts)) for row in read_prompts("copy", limit=4)]
    batches = [batch for batch in grid.batches if batch in (1, 4, 16)] or [min(grid.batches)]
    drafting = draft_costs(models, prompts, batches=batches, clock=clock, told=told)
    return Profile(passes, drafting, machine, {"name": plain.name, "ragged": target.ragged, **asdict(size)})


def about(
    model: Model, texts: Mapping[str, Sequence[Ids]], *, files: Sequence[str | Path | None] = (), **more: Any
) -> dict[str, Any]:
    """What a report says of its run, and what tells its results from others'.

    files: of models, heads and profiles, or their folders, which may change under the same name.
    """
    return {
        "model": model.name,
        "exact": model.exact,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "truedraft": version("truedraft"),
        "method": "arms in turns, round by round",
        "texts": f"{zlib.crc32(repr(texts).encode()):08x}",
        "files": f"{zlib.crc32(repr([_stamp(file) for file in files]).encode()):08x}",
    } | more


def here(model: Model) -> dict[str, Any]:
    """Where and when: what a colleague asks of a report, and what results of another day may differ in."""
    device = name_of(_model_of(model).device)
    return {
        "machine": f"{device}, {os.cpu_count()} processors",
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
    }


def _stamp(path: str | Path | None) -> list[tuple[str, int, int]]:
    """Name, size and time of a file, or of a folder's weights; nothing of what is none."""
    if path is None:
        return []
    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def warnings_of(prompts: Mapping[str, Sequence[Ids]], loads: Sequence[Load], order: Order, repeats: int) -> list[str]:
    """What makes the figures say less than they seem to."""
    found = []
    for task, texts in prompts.items():
        most = max((load.batch for load in loads if load.task == task), default=1)
        if len(set(texts)) < len(texts):
            found.append(f"{task} repeats prompts: what is said of it rests on {len(set(texts))} different ones")
        if len(texts) < _FEW:
            found.append(f"{task} has {len(texts)} prompts: they say little of others; measure at least {_FEW}")
        if len(texts) < most:
            found.append(f"{task} has {len(texts)} prompts and is run at batch {most}: they are repeated in the batch")
    if len(prompts) == 1:
        found.append("one task only: acceptance of another one may be far from it")
    if order.fixed_length:
        found.append("texts are written on past their ends, where models repeat themselves and n-grams thrive")
    if repeats == 1:
        found.append("one repetition: the spread is between prompts, not between runs")
    return found


def run(
    prompts: Mapping[str, Sequence[Ids]],
    loads: Sequence[Load],
    arms: Callable[[Load], Sequence[Arm]],
    order: Order,
    *,
    repeats: int,
    journal: Journal,
    console: Console,
) -> None:
    """All units of a grid behind a bar; what the journal has already is not run again."""
    units = units_of(prompts, loads, order, repeats=repeats)
    # Work is about one pass a token: a unit counts as many steps as it has arms, so that the time left is sensible.
    steps = sum(len(arms(unit.load)) for unit in units)
    with Bar(steps, console) as bar:
        for unit in run_units(units, arms, journal, told=bar.step):
            bar.advance(len(arms(unit.load)))


def show(report: Report, console: Console) -> None:
    """The cells as tables, a load each, then what the page says in words."""
    for load in dict.fromkeys((cell.task, cell.batch, cell.temperature) for cell in report.cells):
        table = Table(
            *("", "tokens/s", "speedup", "quartiles", "a round", "drafted", "by position", "same ids"),
            box=SIMPLE,
            title=f"{load[0]}, batch {load[1]}, {'greedy' if load[2] == 0 else f'T = {load[2]:g}'}",
        )
        for cell in report.cells:
            if (cell.task, cell.batch, cell.temperature) == load:
                total = cell.total
                table.add_row(
                    cell.arm,
                    f"{cell.speed.median:.1f}",
                    f"{cell.speedup.median:.2f}x",
                    f"{cell.speedup.low:.2f}-{cell.speedup.high:.2f}",
                    f"{total.acceptance_length:.2f}" if total.rounds else "",
                    f"{total.drafted_per_round:.2f}" if total.rounds else "",
                    " ".join(f"{rate:.2f}" for rate in total.by_position[:4]),
                    {True: "yes", False: "no", None: ""}[cell.identical],
                )
        console.print(table)
    if report.forecasts:
        close = sum(forecast.is_close for forecast in report.forecasts)
        within = f"within {100 * CLOSE:g} % of the measured speedup"
        console.print(f"{close} of {len(report.forecasts)} cells predicted {within}")
    for warning in report.warnings:
        console.print(f"note: {warning}", style="dim")
    for mismatch in report.mismatches:
        console.print(mismatch, style="bold red")
