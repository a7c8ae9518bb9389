"""The round: bet, score, decide, keep. Plain decoding is the same loop with empty bets.

This file knows no model, no drafter and no rule. It alone moves text from verdicts into sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter

import torch

from truedraft.core import (
    Distributions,
    Draft,
    Drafter,
    Policy,
    Round,
    Rule,
    Scores,
    Session,
    Shape,
    Target,
    Timings,
    TokenLogprobs,
    Verdict,
)

__all__ = ["Decoder"]


@dataclass(frozen=True)
class Decoder:
    """A target, a drafter, a rule and a policy at work on a list of sessions.

    trace: fill in p and q of every drafted token (costs a distribution per node). clock: seconds, for the timings.
    """

    target: Target
    drafter: Drafter
    rule: Rule
    policy: Policy
    trace: bool = False
    clock: Callable[[], float] = field(default=perf_counter, repr=False)

    def run(self, sessions: Iterable[Session], *, batch: int = 1) -> Generator[list[tuple[Session, Round]], None, None]:
        """Decode all sessions, at most `batch` at a time, yielding every round's records.

        A session whose `finish` is set, by its text or from outside, leaves before the next round; its neighbours do
        not notice. Closing the iterator frees everything that target and drafter hold.
        """
        waiting, active = deque(sessions), list[Session]()
        history: dict[Session, Round] = {}
        try:
            while waiting or active:
                while waiting and len(active) < batch:
                    active.append(waiting.popleft())
                if going := [session for session in active if session.finish is None]:
                    rounds = self.round(going, history)
                    history.update(zip(going, rounds, strict=True))
                    yield list(zip(going, rounds, strict=True))
                for session in [session for session in active if session.finish is not None]:
                    active.remove(session)
                    history.pop(session, None)
                    self._release(session)
        finally:
            for session in active:
                self._release(session)

    def round(self, sessions: Sequence[Session], history: dict[Session, Round]) -> list[Round]:
        """One target pass over all sessions; each emits at least one token."""
        ticks = [self.clock()]
        shapes = self._shapes(sessions, history)
        ticks.append(self.clock())
        drafts = self.drafter.propose(sessions, shapes)
        _check(sessions, shapes, drafts)
        ticks.append(self.clock())
        scores = self.target.score(sessions, [draft.tree for draft in drafts], self.drafter.taps)
        ticks.append(self.clock())
        laws = [
            session.sampler.distributions(session.tokens, draft.tree, score.logits)
            for session, draft, score in zip(sessions, drafts, scores, strict=True)
        ]
        verdicts = [
            self.rule.verify(draft, p, session.dice) for session, draft, p in zip(sessions, drafts, laws, strict=True)
        ]
        ticks.append(self.clock())
        traces = [self._traced(draft, p) for draft, p in zip(drafts, laws, strict=True)]
        self.target.commit(sessions, [verdict.path for verdict in verdicts])
        emitted = [
            _grow(session, verdict, p, score)
            for session, verdict, p, score in zip(sessions, verdicts, laws, scores, strict=True)
        ]
        self.drafter.observe(sessions, verdicts, scores)
        ticks.append(self.clock())
        timings = _timings(ticks)
        batch = len(sessions)
        return [
            _record(session, Round(session.statistics.rounds, shape, draft, verdict, count, timings, batch, *trace))
            for session, shape, draft, verdict, count, trace in zip(
                sessions, shapes, drafts, verdicts, emitted, traces, strict=True
            )
        ]

    def _shapes(self, sessions: Sequence[Session], history: dict[Session, Round]) -> list[Shape]:
        """The policy's shapes, no deeper than the text may still grow before the bonus token."""
        shapes = self.policy.shape(sessions, history)
        return [shape.clip(session.ending.room - 1) for session, shape in zip(sessions, shapes, strict=True)]

    def _release(self, session: Session) -> None:
        self.drafter.release(session)
        self.target.release(session)

    def _traced(self, draft: Draft, p: Distributions) -> tuple[_Column, _Column]:
        """Probabilities of each drafted token under target and draft, for the record.

        Behind a token of probability 0 all are 0: no text goes on there, and logits processors need not know how.
        """
        if not self.trace:
            return None, None
        edges, rows = list(zip(draft.tree.tokens, draft.tree.parents, strict=True))[1:], draft.q
        under_p = [1.0]
        for token, parent in edges:
            under_p.append(float(p[parent][token]) if under_p[parent] > 0 else 0.0)
        under_q = None if rows is None else (None, *(_mass(rows[parent], token) for token, parent in edges))
        return (None, *under_p[1:]), under_q


_Column = tuple[float | None, ...] | None


def _mass(row: torch.Tensor | None, token: int) -> float | None:
    return None if row is None else float(row[token])


def _check(sessions: Sequence[Session], shapes: Sequence[Shape], drafts: Sequence[Draft]) -> None:
    """The contract with drafters: rooted at the last token, and no deeper than allowed."""
    for session, shape, draft in zip(sessions, shapes, drafts, strict=True):
        if draft.tree.tokens[0] != session.root or max(draft.tree.depth) > shape.depth:
            raise AssertionError(f"the drafter broke its contract: {draft.tree} for root {session.root} and {shape}")


def _record(session: Session, record: Round) -> Round:
    """Count a round in its session's statistics."""
    session.statistics = session.statistics.add(record)
    return record


def _grow(session: Session, verdict: Verdict, p: Distributions, scores: Scores) -> int:
    """Let the text and its log-probabilities grow; returns how many tokens stayed."""
    session.sampler = session.sampler.settle(p, verdict.last)
    emitted = session.extend(verdict.tokens)
    if session.top_logprobs is not None:
        nodes = (0, *verdict.path)
        for node, token in zip(nodes, verdict.tokens, strict=True):
            session.logprobs.append(_logprobs(scores.logits[node], token, session.top_logprobs))
        del session.logprobs[len(session.output) :]
    return emitted


def _logprobs(logits: torch.Tensor, token: int, count: int) -> TokenLogprobs:
    """Log-softmax of raw logits [V] at `token` and at the `count` most probable tokens."""
    row = logits.float().log_softmax(0)
    top = row.topk(count) if count else None
    pairs = () if top is None else tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    return TokenLogprobs(token, float(row[token]), pairs)


def _timings(ticks: Sequence[float]) -> Timings:
    """From the clock's readings around shape, draft, target, rule and the rest of a round."""
    shape, draft, target, rule, rest = (after - before for before, after in pairwise(ticks))
    return Timings(draft=draft, target=target, rule=rule, rest=shape + rest)
