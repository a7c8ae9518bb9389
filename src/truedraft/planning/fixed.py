"""The policy without a thought: the same shape for every session in every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truedraft.core import Round, Session, Shape

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed:
    """`core.Policy` that always allows one shape."""

    allowed: Shape

    def shape(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> list[Shape]:
        """The shape, a session."""
        return [self.allowed] * len(sessions)
