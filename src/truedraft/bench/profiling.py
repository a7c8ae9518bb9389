"""Measuring a profile: passes of n tokens at several contexts and batch sizes, and what drafters cost.

Everything that is compared takes turns on one clock, and every figure is a median. This file knows targets and
drafters by their contracts alone.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from truedraft.core import Session, Shape, Target, Tree
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.planning.profile import DraftCost, PassTime
from truedraft.request import Facts, Parameters, make_session

__all__ = ["Grid", "draft_costs", "pass_times"]

Told = Callable[[str], None]


@dataclass(frozen=True)
class Grid:
    """What to measure. widths: new tokens a text. tokens: most of them in one pass. repeats: of every point.

    Of equal values one is measured.
    """

    contexts: tuple[int, ...] = (128, 1024)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    widths: tuple[int, ...] = (1, 2, 3, 5, 9, 17, 33)
    tokens: int = 256
    repeats: int = 7

    def __post_init__(self) -> None:
        for name in ("contexts", "batches", "widths"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ParameterError(f"{name} is {values}: expected positive numbers")
            object.__setattr__(self, name, tuple(dict.fromkeys(values)))  # between two of the same there is no line
        if max(self.widths) == 1:
            raise ParameterError("widths is (1,): expected a wider pass too, for what drafts cost")
        if self.repeats < 1:
            raise ParameterError(f"repeats is {self.repeats}: expected at least 1")

    def points(self, batch: int) -> list[int]:
        """The widths at a batch size: one, plain decoding's, and all that fit, and at least one more."""
        widths = sorted({1, *self.widths})
        fitting = [width for width in widths if batch * width <= self.tokens]
        return fitting if len(fitting) > 1 else widths[:2]


def pass_times(
    target: Target, facts: Facts, grid: Grid, *, clock: Callable[[], float] = perf_counter, told: Told | None = None
) -> tuple[PassTime, ...]:
    """T(n): seconds of the target's pass, prompts being read already, for every point of the grid.

    Raises `ParameterError` for a context that leaves the model no room, `OutOfMemoryError` where the texts do not fit.
    """
    room = max(grid.widths) + 1
    if facts.context_length is not None and max(grid.contexts) + room > facts.context_length:
        raise ParameterError(
            f"context {max(grid.contexts)} and {room} new tokens are beyond the model's {facts.context_length}; "
            "take shorter contexts"
        )
    times: list[PassTime] = []
    for context in grid.contexts:
        if told is not None:
            told(f"passes at {context} tokens of context")
        times += _at_context(target, facts, grid, context, clock)
    return tuple(times)


def _at_context(target: Target, facts: Facts, grid: Grid, context: int, clock: Callable[[], float]) -> list[PassTime]:
    """All points at one context, in turns."""
    target.require(max(grid.batches), context + max(grid.widths) + 1)
    sessions = [_text(facts, context) for _ in range(max(grid.batches))]
    points = [(batch, width) for batch in grid.batches for width in grid.points(batch)]
    seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
    try:
        for number in range(grid.repeats + 1):
            for batch, width in points:
                taken = _pass(target, sessions[:batch], width, clock)
                if number:  # the first time round warms up, and reads the texts
                    seconds[batch, width].append(taken)
    finally:
        for session in sessions:
            target.release(session)
    return [PassTime(context, *point, statistics.median(seconds[point])) for point in points]


def _text(facts: Facts, length: int) -> Session:
    """A text of so many tokens, the same every time."""
    ids = [(7 + 31 * place) % facts.vocabulary for place in range(length)]
    return make_session(ids, Parameters(seed=0), facts)


def _pass(target: Target, sessions: Sequence[Session], width: int, clock: Callable[[], float]) -> float:
    """Seconds of one pass over a chain of `width` nodes a text; nothing of it is kept but the root."""
    trees = [Tree.chain([session.root] * width) for session in sessions]
    start = clock()
    target.score(sessions, trees, ())
    seconds = clock() - start
    target.commit(sessions, [()] * len(sessions))
    return seconds


def draft_costs(
    models: Mapping[str, Model],
    prompts: Sequence[Sequence[int]],
    *,
    batches: Sequence[int] = (1, 4),
    depths: Sequence[int] = (1, 4, 8),
    tokens: int = 32,
    clock: Callable[[], float] = perf_counter,
    told: Told | None = None,
) -> tuple[DraftCost, ...]:
    """What rounds cost outside the target's pass, by drafter and batch, from decoding real prompts.

    models: the same target with each drafter, by name. clock: one that waits for the device. All draft chains, so that
    the cost is one of a step.
    """
    costs: list[DraftCost] = []
    for name, model in models.items():
        if told is not None:
            told(f"drafter {name}")
        for batch in batches:
            timed = replace(model, decoder=replace(model.decoder, clock=clock))
            costs.append(_fit(name, batch, _rounds(timed, prompts, batch, depths, tokens)))
    return tuple(costs)


def _rounds(
    model: Model, prompts: Sequence[Sequence[int]], batch: int, depths: Sequence[int], tokens: int
) -> list[tuple[float, float]]:
    """(drafted tokens a text, seconds outside the pass) of rounds at every depth."""
    rounds: list[tuple[float, float]] = []
    for depth in depths:
        decoder = replace(model.decoder, policy=Fixed(Shape.chain(depth)))
        ids = [prompts[place % len(prompts)] for place in range(batch)]
        parameters = Parameters(max_new_tokens=tokens, min_new_tokens=tokens, seed=0)
        sessions = [make_session(list(prompt), parameters, model.facts) for prompt in ids]
        for step in decoder.run(sessions, batch=batch):
            records = [record for _, record in step]
            if records[0].index and len(records) == batch:
                times = records[0].timings
                drafted = statistics.mean(len(record.draft) for record in records)
                rounds.append((drafted, times.total - times.target))
    return rounds


def _fit(drafter: str, batch: int, rounds: Sequence[tuple[float, float]]) -> DraftCost:
    """A line through the medians by drafted tokens, weighted by their rounds; neither part below zero."""
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for drafted, seconds in rounds:
        groups[round(drafted)].append((drafted, seconds))
    points = [
        (statistics.mean(n for n, _ in group), statistics.median(s for _, s in group), len(group))
        for group in groups.values()
    ]
    weight = sum(count for _, _, count in points)
    if not weight:
        return DraftCost(drafter, batch, 0.0, 0.0)
    middle = sum(n * count for n, _, count in points) / weight
    level = sum(s * count for _, s, count in points) / weight
    spread = sum(count * (n - middle) ** 2 for n, _, count in points)
    slope = sum(count * (n - middle) * (s - level) for n, s, count in points) / spread if spread > 1e-9 else 0.0
    slope = min(max(slope, 0.0), level / middle if middle else 0.0)
    return DraftCost(drafter, batch, max(0.0, level - slope * middle), slope)
