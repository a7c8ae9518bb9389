"""A PyTorch model as the target: every tree of a round is scored in one forward pass.

What a session's row must hold follows from its text alone, so this file keeps no state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from truedraft.core import Scores, Session, Tree
from truedraft.targets.cached import CachedModel, Nodes

__all__ = ["TorchTarget"]


@dataclass(frozen=True, eq=False)
class TorchTarget:
    """Scores trees with a model. Between rounds the model's row of a session holds tokens[:-1]."""

    model: CachedModel

    def require(self, texts: int, length: int) -> None:
        """Raise `OutOfMemoryError` if the cache cannot hold so many texts of so many tokens."""
        self.model.require(texts, length)

    def score(self, sessions: Sequence[Session], trees: Sequence[Tree], taps: Sequence[int] = ()) -> list[Scores]:
        """One forward pass over all trees; before it, whatever of a text the model has not read yet is read."""
        prefixes = [self.model.catch_up(session, session.tokens[:-1], taps) for session in sessions]
        scores = self.model.extend(sessions, [Nodes(tree.tokens, tree.parents) for tree in trees], taps)
        return [replace(score, prefix_features=prefix) for score, prefix in zip(scores, prefixes, strict=True)]

    def commit(self, sessions: Sequence[Session], paths: Sequence[tuple[int, ...]]) -> None:
        """Keep each tree's root and path, forget its other nodes."""
        for session, path in zip(sessions, paths, strict=True):
            self.model.keep(session, (0, *path))

    def release(self, session: Session) -> None:
        """Free the session's row; nothing happens if it has none."""
        self.model.release(session)
