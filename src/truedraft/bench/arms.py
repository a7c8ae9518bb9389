"""One way to write texts, timed: the same prompts in, token ids and times out, whoever writes them.

Arms that are compared write at the same time and take turns, so that what a machine does to one it does to all; a clock
runs for an arm only while it has its turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, TypeAlias, runtime_checkable

from truedraft.core import Round, Session, Timings
from truedraft.model import Model
from truedraft.planning.counts import Counts
from truedraft.request import Parameters, make_session

__all__ = ["Arm", "AtOnce", "ModelArm", "Order", "Sample", "Writing", "each_of", "write"]

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """What every arm is asked to write: prompts decoded at once, each with its seed."""

    prompts: tuple[Ids, ...]
    seeds: tuple[int, ...]
    tokens: int = 64
    temperature: float = 0.0
    fixed_length: bool = False
    """Forbid the end of a text before its last token; else it ends where the model ends it."""

    def parameters(self, place: int) -> Parameters:
        """Of one prompt."""
        least = self.tokens if self.fixed_length else 0
        return Parameters(
            max_new_tokens=self.tokens, min_new_tokens=least, temperature=self.temperature, seed=self.seeds[place]
        )


@dataclass(frozen=True)
class Sample:
    """What writing an order took.

    ids: the output of every prompt; None where an engine gives only text. seconds: from the request to the last token.
    first: seconds to the first token of a text on average; each: for every later one, or None where the ends of single
    texts are not seen. decoded, decoding: tokens and seconds of the rounds in which the whole batch was decoding and no
    prompt was read, or of everything after the first token where rounds are not seen. parts: seconds of these rounds by
    part. counts: a prompt each; none where rounds are not seen.
    """

    ids: tuple[Ids, ...] | None
    tokens: int
    seconds: float
    first: float
    decoded: int
    decoding: float
    parts: Mapping[str, float] = field(default_factory=dict)
    counts: tuple[Counts, ...] = ()
    rounds: int = 0
    each: float | None = None


def each_of(texts: Sequence[tuple[int, float, float]]) -> float | None:
    """Seconds of a text for each token after its first, on average; None without any.

    texts: of every one its tokens, and seconds to its first and last.
    """
    found = [(last - first) / (tokens - 1) for tokens, first, last in texts if tokens > 1]
    return statistics.mean(found) if found else None


Writing: TypeAlias = Generator[float, None, Sample]
"""An order being written. The first turn makes ready and is not timed; each yields the share that is written so far."""


@runtime_checkable
class Arm(Protocol):
    """A way to write texts."""

    @property
    def name(self) -> str:
        """What it is called in reports."""
        ...

    @property
    def comparable(self) -> bool:
        """Whether greedy ids must be those of plain decoding."""
        ...

    def begin(self, order: Order) -> Writing:
        """Write the texts of an order, turn by turn. Raises `OutOfMemoryError` where they do not fit."""
        ...


def write(arm: Arm, order: Order) -> Sample:
    """All turns of an arm, one right after another."""
    writing = arm.begin(order)
    while True:
        try:
            next(writing)
        except StopIteration as end:
            found: Sample = end.value
            return found


class AtOnce:
    """An arm whose rounds nobody sees: its second turn writes everything."""

    def begin(self, order: Order) -> Writing:
        """Write the texts of an order."""
        yield 0.0
        return self.write(order)

    def write(self, order: Order) -> Sample:
        """All texts."""
        raise NotImplementedError


@dataclass(frozen=True)
class ModelArm:
    """A model of this package. tidy: done before and after, such as forgetting what texts left that are over."""

    name: str
    model: Model
    comparable: bool = True
    tidy: Callable[[], None] = field(default=lambda: None, repr=False)
    clock: Callable[[], float] = field(default=perf_counter, repr=False)

    def begin(self, order: Order) -> Writing:
        """All texts as one batch; a turn is a round."""
        facts, decoder = self.model.facts, self.model.decoder
        sessions = [make_session(list(ids), order.parameters(place), facts) for place, ids in enumerate(order.prompts)]
        longest = max(len(session.tokens) + session.ending.room for session in sessions)
        self.tidy()
        log = _Log(len(sessions))
        try:
            decoder.target.require(len(sessions), longest)
            yield 0.0
            with closing(decoder.run(sessions, batch=len(sessions))) as steps:
                for step, seconds in _timed(steps, self.clock):
                    log.note(step, seconds)
                    yield sum(len(session.output) for session in sessions) / (order.tokens * len(sessions))
        finally:
            self.tidy()
        return log.sample(sessions)


_Step: TypeAlias = list[tuple[Session, Round]]


def _timed(steps: Iterator[_Step], clock: Callable[[], float]) -> Iterator[tuple[_Step, float]]:
    """Each step with the seconds that it took; what happens between steps is not in them."""
    while True:
        start = clock()
        step = next(steps, None)
        if step is None:
            return
        yield step, clock() - start


class _Log:
    """The rounds of one run, as they come."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._seconds = 0.0
        self._first: dict[Session, float] = {}
        self._end: dict[Session, float] = {}
        self._rounds: dict[Session, list[Round]] = {}
        self._decoded, self._decoding, self._steps = 0, 0.0, 0
        self._parts = Timings()

    def note(self, step: _Step, seconds: float) -> None:
        self._seconds += seconds
        for session, record in step:
            self._first.setdefault(session, self._seconds)
            self._end[session] = self._seconds
            self._rounds.setdefault(session, []).append(record)
        if len(step) == self._batch and not any(record.index == 0 for _, record in step):
            self._decoded += sum(record.emitted for _, record in step)
            self._decoding += seconds
            self._parts += step[0][1].timings
            self._steps += 1

    def sample(self, sessions: Sequence[Session]) -> Sample:
        parts: dict[str, Any] = {
            "draft": self._parts.draft,
            "target": self._parts.target,
            "rule": self._parts.rule,
            "rest": self._parts.rest,
        }
        return Sample(
            ids=tuple(tuple(session.output) for session in sessions),
            tokens=sum(len(session.output) for session in sessions),
            seconds=self._seconds,
            first=statistics.mean(self._first.values()),
            decoded=self._decoded,
            decoding=self._decoding,
            parts=parts,
            counts=tuple(Counts.of(self._rounds[session]) for session in sessions),
            rounds=self._steps,
            each=each_of([(len(session.output), self._first[session], self._end[session]) for session in sessions]),
        )
