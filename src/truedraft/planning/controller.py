"""The policy that keeps accounts: bets as much as pays by past rounds, stops betting when it does not, and tries again.

Each round it takes the rung of the ladder, and the texts that may climb it, with the most expected tokens a second
(Liu et al. 2024, arXiv 2406.14066, call it goodput). It sees past rounds only. To look at the tokens just drawn and
then drop or keep them would change the law of the text: with p(A) = 0.7 and q(A) = 0.5, dropping a drawn B makes A come
out with probability 0.85.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from operator import mul

from truedraft.core import Round, Session, Shape
from truedraft.planning.costs import RoundCosts
from truedraft.planning.curves import along
from truedraft.planning.levels import Rates, Row, Seen, Yield, allowed_level, ladder
from truedraft.planning.profile import Profile

__all__ = ["Controller"]

_OFF = Shape(0)
_OWN_FADING, _COMMON_FADING, _LATELY_FADING = 0.92, 0.97, 0.88
_OWN_STRENGTH, _COMMON_STRENGTH = 8.0, 4.0
_MARGIN = 1.02
"""Betting must promise this much more than plain decoding."""
_TRYING, _PAUSE = 0.015, 4
"""Share of the time without bets that trials may cost, and rounds of it without which there is none."""
_BOLD = 0.3
"""Share of a round that a trial may cost more if all of its bets are made and lost, but for one of the smallest."""
_SAVED = 0.5
"""Most of a round that may be saved up for trials, beyond one of the smallest bet of all texts, and most of a debt."""
_SOON = 64
"""Tokens of a new text on whose credit it may be tried at once."""
_HARDLY = 1.0
"""Tests, old ones fading, of a rung in a text."""
_FIRST_LOOK, _BLIND_LOOK = 8, 2
"""After so many rounds of bets one goes without, to see what a pass costs then, and the next after twice as many; the
second is for batch sizes at which no such pass was seen."""


@dataclass(frozen=True, eq=False)
class _Trial:
    """Texts that were given a rung without a promise. estimate: seconds that it was thought to cost.

    passes, outside: what rounds were thought to take by rung.
    """

    texts: frozenset[Session]
    rung: int
    estimate: float
    passes: Row
    outside: Row


class Controller:
    """`core.Policy` by measured goodput. shape: the most that may be bet; profile: what passes cost on this machine."""

    def __init__(self, shape: Shape, profile: Profile) -> None:
        self._levels, self._ragged = ladder(shape), profile.ragged
        self._sizes = [0, *(level.nodes for level in self._levels)]
        self._costs = RoundCosts(profile, self._sizes)
        self._chained = bool(shape.branching) or shape.width == 1
        self._common, self._lately = self._unknown(_COMMON_FADING), self._unknown(_LATELY_FADING)
        self._own: dict[Session, Yield] = {}
        self._rates: list[Rates] | None = None
        self._hopeless = False
        self._seen: dict[Session, int] = {}
        self._credit = 0.0
        self._entry = 0.0
        self._trial: _Trial | None = None
        self._in_vain = False
        self._bets, self._look = 0, _FIRST_LOOK

    def shape(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> list[Shape]:
        """The rung for the texts that are to climb it, no bet for the others."""
        if not self._levels:
            return [_OFF] * len(sessions)
        self._meet(sessions)
        self._learn(sessions, history)
        batch, context = len(sessions), _mean_length(sessions)
        passes, outside = self._costs.passes(batch, context), self._costs.outside(batch)
        self._entry = self._costs.entry(batch, context, passes)
        rates = self._rates_of(sessions)
        chosen, promise = ([0] * batch, 1.0) if self._hopeless else self._best(rates, passes, outside)
        self._hopeless = not any(chosen)  # and so it stays until something is learned or a text comes or goes
        if self._is_time_to_look(batch, promise):
            return [_OFF] * batch
        chosen = self._raised(chosen, sessions, history)
        self._try(chosen, sessions, rates, passes, outside)
        return [self._levels[rung - 1] if rung else _OFF for rung in chosen]

    def _unknown(self, fading: float) -> Yield:
        """What is known of a text, or of all, before anything was seen."""
        return Yield(len(self._levels), fading, chained=self._chained)

    def _rates_of(self, sessions: Sequence[Session]) -> list[Rates]:
        """What is expected of every text [B]; as before where nothing was learned since."""
        if self._rates is None:
            prior = self._prior()
            self._rates = [self._own[session].rates(_OWN_STRENGTH, prior) for session in sessions]
            self._hopeless = False
        return self._rates

    def _best(self, rates: Sequence[Rates], passes: Row, outside: Row) -> tuple[list[int], float]:
        """The rung of every text [B] that together have the highest goodput: all texts of a group the same.

        Also how many times the goodput of plain decoding that is.
        """
        batch, plain = len(rates), passes[0] + outside[0]
        order = sorted(range(batch), key=lambda place: -sum(rates[place][0]))
        promise, texts, rung, total = 1.0, 0, 0, [0.0] * len(self._levels)
        filled = (rates[place][1] for place in order)
        for count, seconds in enumerate(self._seconds(filled, batch, passes, outside), start=1):
            emitted = float(batch)
            for level, gained in enumerate(rates[order[count - 1]][0]):
                total[level] += gained
                emitted += total[level]
                goodput = emitted * plain / (batch * seconds[level])
                if goodput > promise:
                    promise, texts, rung = goodput, count, level + 1
        chosen = [0] * batch
        if promise > _MARGIN:
            for place in order[:texts]:
                chosen[place] = rung
        return chosen, promise

    def _seconds(self, filled: Iterable[Row], batch: int, passes: Row, outside: Row) -> Iterator[Row]:
        """By rung [L], of a round in which one text climbs it and fills so much of it, then of one in which two do…"""
        steps = [high - low for low, high in pairwise(passes)]
        more = [(seconds - outside[0]) / batch for seconds in outside[1:]]
        total, left, silent = [0.0] * len(steps), [1.0] * len(steps), 1.0
        for count, row in enumerate(filled, start=1):
            silent *= 1.0 - row[0]  # the chance that nobody drafts at all
            # A padded pass is as wide as the longest draft among the texts that bet, another one as the mean of all.
            if self._ragged:
                total = [before + share for before, share in zip(total, row, strict=True)]
                widened = [drafted / batch for drafted in total]
            else:
                left = [before * (1.0 - share) for before, share in zip(left, row, strict=True)]
                widened = [1.0 - none for none in left]
            passed = accumulate(map(mul, steps, widened), initial=passes[0] + outside[0] + self._entry * (1.0 - silent))
            yield [before + count * extra for before, extra in zip(islice(passed, 1, None), more, strict=True)]

    def _raised(
        self, chosen: Sequence[int], sessions: Sequence[Session], history: Mapping[Session, Round]
    ) -> list[int]:
        """Twice as much for texts whose last bet was accepted whole, if what lies beyond it was hardly ever tested."""
        raised = list(chosen)
        for place, (rung, session) in enumerate(zip(chosen, sessions, strict=True)):
            record = history.get(session)
            if rung and record is not None and 0 < record.shape.depth == record.accepted:
                beyond = self._own[session].tests[allowed_level(self._levels, record.shape) :]
                if beyond and beyond[0] < _HARDLY:
                    raised[place] = max(rung, sum(level.nodes <= 2 * record.shape.nodes for level in self._levels))
        return raised

    def _prior(self) -> Rates:
        """What is expected of a text before it is known: the worse of what all did lately and for longer.

        So bets stop within a few rounds when a load turns hard, and a lucky round does not bring them back.
        """
        longer, lately = self._common.rates(_COMMON_STRENGTH), self._lately.rates(_COMMON_STRENGTH)
        return list(map(min, longer[0], lately[0])), list(map(max, longer[1], lately[1]))

    def _is_time_to_look(self, batch: int, promise: float) -> bool:
        """Whether to go without a bet, so as to know what plain decoding would cost.

        The more bets promise, the less is to be learned by it, unless passes are not what they were thought to be.
        """
        self._bets = self._bets + 1 if promise > _MARGIN else 0
        blind = self._costs.plain_passes(batch) == 0
        patience = (_BLIND_LOOK if blind else self._look) * (promise**2 if self._costs.as_foreseen else 1.0)
        if self._bets == 0 or self._bets < patience:
            return False
        self._bets, self._look = 0, self._look if blind else 2 * self._look
        return True

    def _try(
        self,
        chosen: list[int],
        sessions: Sequence[Session],
        rates: Sequence[Rates],
        passes: Row,
        outside: Row,
    ) -> None:
        """Let texts without a bet try as much as a small share of the time pays for, by what they usually draft.

        With a text the load may have changed, so one that has not drafted yet tries on credit of the time it will take.
        """
        rest = [place for place, rung in enumerate(chosen) if not rung]
        if not rest or self._in_vain:  # at once again it would be in vain as well, as often as not
            self._in_vain = False
            return
        batch, plain = len(sessions), passes[0] + outside[0]
        most = passes[1] + outside[1] - plain + _SAVED * plain
        self._credit = min(max(self._credit, -_SAVED * plain) + _TRYING * plain, most)
        new = [place for place in rest if not any(self._own[sessions[place]].filled)]
        soon = sum(min(sessions[place].ending.room, _SOON) for place in new) / batch
        bold = max(1, sum(one + other - plain <= _BOLD * plain for one, other in zip(passes, outside, strict=True)) - 1)
        for places, credit in ((rest, self._credit), (new, self._credit + _TRYING * plain * soon)):
            if places and credit >= _PAUSE * _TRYING * plain:
                *_, seconds = self._seconds((rates[place][1] for place in places), batch, passes, outside)
                if rung := min(sum(price - plain <= credit for price in seconds), bold):
                    tried = frozenset(sessions[place] for place in places)
                    self._trial = _Trial(tried, rung, seconds[rung - 1] - plain, passes, outside)
                    self._credit -= self._trial.estimate
                    for place in places:
                        chosen[place] = rung
                    return

    def _settle(self, fresh: Mapping[Session, Round]) -> None:
        """Correct what was paid for a trial to what its drafts cost more than they brought.

        So texts that have become easy are bet on at once, and those in which nothing was drafted may try again.
        """
        trial, self._trial = self._trial, None
        tried = [] if trial is None else [record for session, record in fresh.items() if session in trial.texts]
        if trial is not None and tried:
            batch, drafts = tried[0].batch, [len(record.draft) for record in tried]
            width = sum(drafts) / batch if self._ragged else max(drafts)
            accepted = sum(record.accepted for record in tried)
            worth = (trial.passes[0] + trial.outside[0]) / batch * accepted
            price = (
                along(list(zip(self._sizes, trial.passes, strict=True)), width)
                - trial.passes[0]
                + (self._entry if width else 0.0)
            )
            price += (trial.outside[trial.rung] - trial.outside[0]) * len(tried) / batch
            self._credit += trial.estimate - max(price - worth, 0.0)
            self._in_vain = not accepted

    def _meet(self, sessions: Sequence[Session]) -> None:
        """Begin with texts that have come and forget those that have left."""
        if list(self._own) != list(sessions):
            self._own = {s: self._own.get(s) or self._unknown(_OWN_FADING) for s in sessions}
            self._seen = {session: self._seen[session] for session in sessions if session in self._seen}
            self._rates = None

    def _learn(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> None:
        """Take the rounds that were not taken yet, each once."""
        fresh = {
            session: history[session]
            for session in sessions
            if session in history and self._seen.get(session) != history[session].index
        }
        if not fresh:
            return
        self._seen.update((session, record.index) for session, record in fresh.items())
        for session, record in fresh.items():
            if record.shape.depth and (record.index or len(record.draft)):  # a head has read nothing before the prompt
                seen = Seen.of(record, self._levels)
                for known in (self._own[session], self._common, self._lately):
                    known.learn(seen)
                self._rates = None
        if all(record.index for record in fresh.values()):  # a pass that read a prompt says nothing of passes
            self._learn_costs(fresh)
        self._settle(fresh)

    def _learn_costs(self, fresh: Mapping[Session, Round]) -> None:
        """The last round's seconds, if all its texts are still here."""
        records = list(fresh.values())
        last = records[0]
        if len(records) != last.batch or not last.timings.target > 0:
            return
        drafts = [len(record.draft) for record in records]
        self._costs.learn(last.batch, drafts, _mean_length(list(fresh)), last.timings.target)
        rung = allowed_level(self._levels, max((record.shape for record in records), key=lambda shape: shape.nodes))
        if rung == 0 or all(record.shape.depth for record in records):
            self._costs.learn_outside(last.batch, rung, last.timings.total - last.timings.target)


def _mean_length(sessions: Sequence[Session]) -> float:
    return sum(len(session.tokens) for session in sessions) / len(sessions)
