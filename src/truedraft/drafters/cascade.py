"""Cascade: a drafter that costs nothing bets where it is sure enough, another one everywhere else.

Source: the hybrid of suffix decoding (Oliaro et al. 2024) uses the suffix tree where its score beats what the model
drafter usually gets. Here both are compared by expected tokens over cost: the bettor by its own bet, the other by what
its rounds have yielded so far in this session. It begins with the benefit of the doubt, and where it has lost that it
is asked again now and then, since texts change. The draft of the one that is chosen goes out as it is, so every law and
rule it needs stays valid; the choice looks at past rounds and at chosen tokens only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from truedraft.core import Draft, Drafter, Scores, Session, Shape, Verdict
from truedraft.drafters.bets import Bettor
from truedraft.drafters.pass_cost import USUAL, NodeCosts, PassCost, mean_length
from truedraft.errors import ParameterError

__all__ = ["CascadeDrafter", "within"]

_FORGETTING = 0.1
"""How much the latest round of the other drafter counts in what it usually yields."""
_TRIAL = 0.3
"""How much it counts where it had lost: it stands for all the rounds in which the other drafter was not asked."""
_DOUBT = 5
"""What is taken for granted at first counts as much as so many rounds."""
_PAUSE, _LONGEST = 8, 128
"""Rounds until a drafter that lost is asked again: at first, and at most, twice as many after every time."""


@dataclass(eq=False, slots=True)
class _Record:
    """What the other drafter's rounds yielded in a session: running means of emitted tokens and of cost.

    out: nodes and levels of its draft that is out, if it was asked. waited: rounds since then.
    """

    emitted: float
    cost: float = 1.0
    out: tuple[int, int] | None = None
    waited: int = 0
    _pause: int = _PAUSE
    _weight: float = _FORGETTING
    _rounds: int = _DOUBT

    @property
    def yields(self) -> float:
        return self.emitted / self.cost

    @property
    def is_due(self) -> bool:
        return self.waited >= self._pause

    def ask(self, *, lost: bool) -> None:
        """It is asked in this round, although it lost or because it promises more."""
        self.waited, self._weight = 0, _TRIAL if lost else _FORGETTING
        self._pause = min(2 * self._pause, _LONGEST) if lost else _PAUSE

    def settle(self, emitted: int, cost: float) -> None:
        self._rounds += 1
        news = max(self._weight, 1 / self._rounds)
        self.emitted += news * (emitted - self.emitted)
        self.cost += news * (cost - self.cost)


def within(shape: Shape, reach: Shape) -> Shape:
    """A shape, no larger than another one; a branching that was asked for stays as it is, but for its depth."""
    if shape.branching:
        return shape.clip(reach.depth)
    return Shape(min(shape.depth, reach.depth), min(shape.width, reach.width), min(shape.nodes, reach.nodes))


class CascadeDrafter:
    """`core.Drafter` that asks `first` and, where its bet promises too little, `other`.

    passes: what the target's cost. effort: what a level of `other`'s drafts costs, in passes of one token. usual:
    tokens over cost that rounds of `other` are taken to yield until they have shown what they do, where plain decoding
    has 1. reach: the most that `other` is asked for, where its steps cost more than those of `first`. alone: choose for
    every text as if it were the only one. Where `other` draws its drafts, a text's dice are used up by whoever drafts,
    so a seed's text would else depend on who writes beside it.
    """

    def __init__(
        self,
        first: Bettor,
        other: Drafter,
        *,
        passes: PassCost = USUAL,
        effort: float = 0.0,
        usual: float = 1.5,
        reach: Shape | None = None,
        alone: bool = False,
    ) -> None:
        if effort < 0 or usual < 1:
            raise ParameterError(f"effort is {effort} and usual {usual}: expected at least 0 and at least 1")
        self._first, self._other = first, other
        self._passes, self._effort, self._usual, self._reach = passes, effort, usual, reach
        self._alone = alone
        self._records: dict[Session, _Record] = {}

    @property
    def taps(self) -> Sequence[int]:
        """Those of the other drafter."""
        return self._other.taps

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """A draft a session, by one of the two; `other` is asked for all its sessions at once."""
        drafts: dict[Session, Draft] = {}
        rest: dict[Session, Shape] = {}
        batch, costs = 1 if self._alone else len(sessions), self._costs(sessions)
        for session, shape in zip(sessions, shapes, strict=True):
            bet = self._first.bet(session, shape, batch=batch)
            drafts[session] = bet.draft
            if self._asks(self._record(session), shape, bet.yields(costs(session))):
                rest[session] = shape if self._reach is None else within(shape, self._reach)
        for session, draft in self._others(rest, len(sessions)).items():
            if len(draft):
                drafts[session] = draft
            self._record(session).out = len(draft), max(draft.tree.depth)
        return [drafts[session] for session in sessions]

    def _asks(self, record: _Record, shape: Shape, promised: float) -> bool:
        """Whether the other one is asked, given what the bettor's bet promises."""
        record.out = None
        if not shape.depth:
            return False
        wins = promised < record.yields
        if wins or (record.is_due and promised < self._usual):  # a sure bet is not given up for a trial
            record.ask(lost=not wins)
            return True
        record.waited += 1
        return False

    def _others(self, rest: Mapping[Session, Shape], batch: int) -> dict[Session, Draft]:
        """What the other one drafts for its sessions, in a pass that `batch` texts share."""
        if not rest:
            return {}
        asked = list(rest), list(rest.values())
        bettor = self._other if isinstance(self._other, Bettor) else None
        found = bettor.propose(*asked, batch=batch) if bettor is not None else self._other.propose(*asked)
        return dict(zip(rest, found, strict=True))

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Both see every round; a drafter whose draft was not used, or that was not asked, has no bet to settle."""
        costs = self._costs(sessions)
        for session, verdict in zip(sessions, verdicts, strict=True):
            record = self._record(session)
            if record.out is not None:
                nodes, levels = record.out  # none if it had nothing to say: then the round was another's
                record.settle(len(verdict.tokens) if nodes else 1, costs(session)[nodes] + self._effort * levels)
        self._first.observe(sessions, verdicts, scores)
        self._other.observe(sessions, verdicts, scores)

    def release(self, session: Session) -> None:
        """Free what both hold."""
        self._records.pop(session, None)
        self._first.release(session)
        self._other.release(session)

    def _costs(self, sessions: Sequence[Session]) -> Callable[[Session], NodeCosts]:
        """What a pass of so many nodes of a text costs, in passes of one: in this batch, or alone."""
        if self._alone:
            return lambda session: self._passes.among(1, len(session.tokens))
        costs = self._passes.among(len(sessions), mean_length(sessions))
        return lambda session: costs

    def _record(self, session: Session) -> _Record:
        if session not in self._records:
            self._records[session] = _Record(self._usual)
        return self._records[session]
