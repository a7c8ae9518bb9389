"""The policy that keeps accounts: bets as much as pays by past rounds, stops betting when it does not, and tries again.

Each round it takes the rung of the ladder, and the texts that may climb it, with the most expected tokens a second
(Liu et al. 2024, arXiv 2406.14066, call it goodput). It sees past rounds only. To look at the tokens just drawn and
then drop or keep them would change the law of the text: with p(A) = 0.7 and q(A) = 0.5, dropping a drawn B makes A come
out with probability 0.85.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from truedraft.core import Round, Session, Shape
from truedraft.planning.costs import RoundCosts
from truedraft.planning.levels import Yield, allowed_level, ladder
from truedraft.planning.profile import Profile

__all__ = ["Controller"]

Row = NDArray[np.float64]

_OFF = Shape(0)
_OWN_FADING, _COMMON_FADING, _LATELY_FADING = 0.92, 0.97, 0.88
_OWN_STRENGTH, _COMMON_STRENGTH = 8.0, 4.0
_MARGIN = 1.005
"""Betting must promise this much more than plain decoding."""
_TRYING = 0.015
"""Share of the time without bets that trials may cost."""
_HARDLY = 1.0
"""Rounds, old ones fading, in which a rung was allowed to a text."""
_FIRST_LOOK = 8
"""After so many rounds of bets one goes without, to see what a pass costs then; the next after twice as many."""


class Controller:
    """`core.Policy` by measured goodput. shape: the most that may be bet; profile: what passes cost on this machine."""

    def __init__(self, shape: Shape, profile: Profile) -> None:
        self._levels, self._ragged = ladder(shape), profile.ragged
        self._costs = RoundCosts(profile, [level.nodes for level in self._levels])
        self._common = Yield(self._levels, _COMMON_FADING)
        self._lately = Yield(self._levels, _LATELY_FADING)
        self._own: dict[Session, Yield] = {}
        self._seen: dict[Session, int] = {}
        self._credit = 0.0
        self._tried = 0.0
        self._bets, self._look = 0, _FIRST_LOOK

    def shape(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> list[Shape]:
        """The rung for the texts that are to climb it, no bet for the others."""
        self._learn(sessions, history)
        if not self._levels:
            return [_OFF] * len(sessions)
        batch, context = len(sessions), float(np.mean([len(session.tokens) for session in sessions]))
        passes, outside = self._costs.passes(batch, context), self._costs.outside(batch)
        chosen = self._raised(self._best(sessions, passes, outside), sessions, history)
        if self._is_time_to_look(batch, chosen):
            return [_OFF] * batch
        self._try(chosen, passes + outside)
        return [self._levels[rung - 1] if rung else _OFF for rung in chosen]

    def _best(self, sessions: Sequence[Session], passes: Row, outside: Row) -> list[int]:
        """The rung of every session [B] that together have the highest goodput: all texts of a group the same."""
        prior = self._prior()
        rates = [self._own_of(session).rates(_OWN_STRENGTH, prior) for session in sessions]
        gained, filled = (np.stack(rows) for rows in zip(*rates, strict=True))  # [B, L]
        order = np.argsort(-gained.sum(1), kind="stable")
        tokens = len(sessions) + gained[order].cumsum(0).cumsum(1)
        filled = np.clip(filled[order], 0.0, 1.0)
        # A padded pass is as wide as the longest draft among the texts that bet, another one as the mean of all.
        widened = filled.cumsum(0) / len(sessions) if self._ragged else 1.0 - np.cumprod(1.0 - filled, axis=0)
        share = np.arange(1, len(sessions) + 1)[:, None] / len(sessions)
        seconds = passes[0] + (widened * np.diff(passes)).cumsum(1) + outside[0] + share * (outside[1:] - outside[0])
        goodput = tokens / seconds
        texts, rung = np.unravel_index(int(goodput.argmax()), goodput.shape)
        chosen = [0] * len(sessions)
        if goodput[texts, rung] > _MARGIN * len(sessions) / (passes[0] + outside[0]):
            for place in order[: texts + 1]:
                chosen[place] = int(rung) + 1
        return chosen

    def _raised(
        self, chosen: Sequence[int], sessions: Sequence[Session], history: Mapping[Session, Round]
    ) -> list[int]:
        """Twice as much for texts whose last bet was accepted whole, if what lies beyond it was hardly ever tried."""
        raised = list(chosen)
        for place, (rung, session) in enumerate(zip(chosen, sessions, strict=True)):
            record = history.get(session)
            if rung and record is not None and 0 < record.shape.depth == record.accepted:
                beyond = self._own_of(session).weight[allowed_level(self._levels, record.shape) :]
                if len(beyond) and beyond[0] < _HARDLY:
                    raised[place] = max(rung, sum(level.nodes <= 2 * record.shape.nodes for level in self._levels))
        return raised

    def _prior(self) -> tuple[Row, Row]:
        """What is expected of a text before it is known: the worse of what all did lately and for longer.

        So bets stop within a few rounds when a load turns hard, and a lucky round does not bring them back.
        """
        longer, lately = self._common.rates(_COMMON_STRENGTH), self._lately.rates(_COMMON_STRENGTH)
        return np.minimum(longer[0], lately[0]), np.maximum(longer[1], lately[1])

    def _is_time_to_look(self, batch: int, chosen: Sequence[int]) -> bool:
        """Whether to go without a bet, so as to know what plain decoding would cost."""
        self._bets = self._bets + 1 if any(chosen) else 0
        if self._bets < (2 if self._costs.plain_passes(batch) == 0 else self._look):
            return False
        if self._bets >= self._look:
            self._look *= 2
        self._bets = 0
        return True

    def _try(self, chosen: list[int], seconds: Row) -> None:
        """Let the texts without a bet try the smallest one, as often as a small share of the time pays for it."""
        self._tried = 0.0
        if all(chosen):
            return
        self._credit = min(self._credit + _TRYING * float(seconds[0]), 2.0 * float(seconds[1]))
        extra = float(seconds[1] - seconds[min(max(chosen), 1)])
        if self._credit >= max(extra, 4 * _TRYING * float(seconds[0])):
            self._tried = max(extra, 4 * _TRYING * float(seconds[0]))
            self._credit -= self._tried
            for place, rung in enumerate(chosen):
                chosen[place] = rung or 1

    def _learn(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> None:
        """Take the rounds that were not taken yet, each once, and forget texts that have left."""
        fresh = [
            (session, history[session])
            for session in sessions
            if session in history and self._seen.get(session) != history[session].index
        ]
        self._own = {session: self._own_of(session) for session in sessions}
        self._seen = {session: self._seen[session] for session in sessions if session in self._seen}
        if not fresh or not self._levels:
            return
        reading = any(record.index == 0 for _, record in fresh)
        for session, record in fresh:
            self._seen[session] = record.index
            allowed = allowed_level(self._levels, record.shape)
            self._own[session].learn(record, allowed)
            self._common.learn(record, allowed)
            self._lately.learn(record, allowed)
        if not reading:  # a pass that read a prompt says nothing of passes
            self._learn_costs(fresh)
        self._settle(fresh)

    def _learn_costs(self, fresh: Sequence[tuple[Session, Round]]) -> None:
        """The last round's seconds, if all its texts are still here."""
        records = [record for _, record in fresh]
        last = records[0]
        if len(records) != last.batch or not last.timings.target > 0:
            return
        drafts = [len(record.draft) for record in records]
        context = float(np.mean([len(session.tokens) for session, _ in fresh]))
        self._costs.learn(last.batch, drafts, context, last.timings.target)
        rung = max(allowed_level(self._levels, record.shape) for record in records)
        if rung == 0 or all(record.shape.depth for record in records):
            self._costs.learn_outside(last.batch, rung, last.timings.total - last.timings.target)

    def _settle(self, fresh: Sequence[tuple[Session, Round]]) -> None:
        """A trial that paid for itself costs no credit: texts that have become easy are bet on at once."""
        if self._tried:
            seconds = fresh[0][1].timings.total
            worth = seconds / fresh[0][1].batch * sum(record.accepted for _, record in fresh)
            self._credit += min(self._tried, worth)
            self._tried = 0.0

    def _own_of(self, session: Session) -> Yield:
        """What is known of one text."""
        return self._own.get(session) or Yield(self._levels, _OWN_FADING)
