"""The drafter that never bets: every round is plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from truedraft.core import Draft, Scores, Session, Shape, Verdict

__all__ = ["NoDrafter"]


class NoDrafter:
    """`core.Drafter` of empty drafts."""

    taps: tuple[int, ...] = ()

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """An empty draft a session."""
        return [Draft.empty(session.root) for session in sessions]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """There is nothing to learn."""

    def release(self, session: Session) -> None:
        """Nothing is kept."""
