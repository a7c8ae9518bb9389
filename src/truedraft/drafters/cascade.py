"""Cascade: a drafter that costs nothing bets where it is sure enough, another one everywhere else.

Source: the hybrid of suffix decoding (Oliaro et al. 2024) uses the suffix tree where its score beats what the model
drafter usually gets. Here both are compared by expected tokens over cost: the bettor by its own bet, the other by what
its rounds have yielded so far in this session. The draft of the one that is chosen goes out as it is, so every law and
rule it needs stays valid; the choice looks at past rounds and at chosen tokens only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from truedraft.core import Draft, Drafter, Scores, Session, Shape, Verdict
from truedraft.drafters.bets import Bettor
from truedraft.drafters.pass_cost import USUAL, NodeCosts, PassCost, mean_length
from truedraft.errors import ParameterError

__all__ = ["CascadeDrafter", "within"]

_FORGETTING = 0.1
"""How much the latest round of the other drafter counts in what it usually yields."""


@dataclass(eq=False, slots=True)
class _Record:
    """What the other drafter's rounds yielded in a session: running means of emitted tokens and of cost."""

    emitted: float
    cost: float
    drafted: int | None = None
    """Nodes of the draft that is out, if it is the other drafter's."""

    @property
    def yields(self) -> float:
        return self.emitted / self.cost

    def settle(self, emitted: int, cost: float) -> None:
        self.emitted += _FORGETTING * (emitted - self.emitted)
        self.cost += _FORGETTING * (cost - self.cost)


def within(shape: Shape, reach: Shape) -> Shape:
    """A shape, no larger than another one; a branching that was asked for stays as it is, but for its depth."""
    if shape.branching:
        return shape.clip(reach.depth)
    return Shape(min(shape.depth, reach.depth), min(shape.width, reach.width), min(shape.nodes, reach.nodes))


class CascadeDrafter:
    """`core.Drafter` that asks `first` and, where its bet promises too little, `other`.

    passes: what the target's cost. effort: what one drafting of `other` costs, in passes of one token. usual: tokens
    that a round of `other` is taken to emit until it has shown what it does. reach: the most that `other` is asked for,
    where its steps cost more than those of `first`. alone: choose for every text as if it were the only one. Where
    `other` draws its drafts, a text's dice are used up by whoever drafts, so a seed's text would else depend on who
    writes beside it.
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
            record = self._record(session)
            record.drafted = None
            bet = self._first.bet(session, shape, batch=batch)
            drafts[session] = bet.draft
            if shape.depth and bet.yields(costs(session)) < record.yields:
                rest[session] = shape if self._reach is None else within(shape, self._reach)
        if rest:
            others = self._other.propose(list(rest), list(rest.values()))
            for session, draft in zip(rest, others, strict=True):
                if len(draft):
                    drafts[session] = draft
                self._record(session).drafted = len(draft)
        return [drafts[session] for session in sessions]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Both see every round; a drafter whose draft was not used, or that was not asked, has no bet to settle."""
        costs = self._costs(sessions)
        for session, verdict in zip(sessions, verdicts, strict=True):
            record = self._record(session)
            if record.drafted is not None:
                emitted = len(verdict.tokens) if record.drafted else 1
                record.settle(emitted, costs(session)[record.drafted] + self._effort)
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
            self._records[session] = _Record(self._usual, 1.0 + self._effort)
        return self._records[session]
