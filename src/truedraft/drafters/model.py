"""A smaller language model as the drafter, with a cache of its own.

Source: speculative decoding (Leviathan et al. 2023) and speculative sampling (Chen et al. 2023); trees of drafts:
SpecInfer (Miao et al. 2024). Every level of all sessions' trees is one pass of the model. Between rounds its cache
holds the committed tokens that it happened to run while drafting; the few it did not, it runs together with the next
root. This file refuses to know rules and targets: of the target it knows the number of logits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from truedraft.core import Draft, Law, Scores, Session, Shape, Verdict
from truedraft.drafters.growth import Growth, begin
from truedraft.drafters.laws import GreedySessions, law_for
from truedraft.drafters.translation import SameIds, Translation
from truedraft.errors import ParameterError
from truedraft.targets.cached import Nodes

__all__ = ["DraftModel", "ModelDrafter"]

_FEW = 8
"""Committed tokens that the cache lacks are run with the root if they are this few, else read before."""


class DraftModel(Protocol):
    """A language model with a row a session, such as `CachedModel`, whose methods these are."""

    context_length: int | None
    vocab_size: int
    device: torch.device

    def known(self, key: Hashable, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first one on, the row holds already."""
        ...

    def reserve(self, key: Hashable, length: int) -> None:
        """Make sure that the row can hold `length` slots."""
        ...

    def catch_up(self, key: Hashable, tokens: Sequence[int]) -> Tensor | None:
        """Make the row's committed tokens exactly these."""
        ...

    def extend(self, keys: Sequence[Hashable], nodes: Sequence[Nodes]) -> list[Scores]:
        """One pass over new nodes of several rows."""
        ...

    def keep(self, key: Hashable, path: Sequence[int]) -> None:
        """The uncommitted nodes on `path` become committed; all others vanish."""
        ...

    def release(self, key: Hashable) -> None:
        """Free the row."""
        ...


@dataclass(eq=False)
class _Bet:
    """A session's draft in the making, and where its nodes sit in the model's row.

    missing: committed tokens that the row lacks, the root last, as the model reads them. row [n]: for every uncommitted
    node of the row, the node of the growth that it is; None for the missing tokens. kept: for every node of the
    finished draft, the node of the growth that it was.
    """

    growth: Growth
    missing: Sequence[int]
    node: Callable[[int], int]
    row: list[int | None] = field(default_factory=list)
    kept: tuple[int, ...] = ()

    def level(self) -> tuple[list[int], list[int]]:
        """Tokens and parents of the row's next nodes: the growth's frontier, and before the root what is missing."""
        frontier = self.growth.frontier
        if not self.row:
            self.row = [*[None] * (len(self.missing) - 1), *frontier]
            return list(self.missing), list(range(-1, len(self.missing) - 1))
        parents = [self.row.index(self.growth.parent(node)) for node in frontier]
        self.row += frontier
        return [self.node(self.growth.token(node)) for node in frontier], parents

    def accepted(self, path: Sequence[int]) -> list[int]:
        """The row's nodes that are committed once the draft's nodes on `path` are; the deepest was never run."""
        places = {node: place for place, node in enumerate(self.row) if node is not None}
        nodes = [self.kept[node] for node in path]
        return [*range(places[0] + 1), *(places[node] for node in nodes if node in places)]


class ModelDrafter:
    """`core.Drafter` by a causal language model.

    vocabulary: the target's number of logits. translation: between the target's ids and the model's; None: they are the
    same, and the model's logits are padded or cut to the target's number. law: how children are drawn;
    None leaves it to the session: a greedy one gets CHOSEN, else chains are SAMPLED and trees GREEDY_DRAFT. (A 0.5B
    model's two to four siblings for a 1.5B target were rejected a fifth less often so than without replacement, on
    average over settings.) Trees whose shape lists no branching are grown to the likeliest nodes under CHOSEN, and to
    a fixed branching within the same numbers under the other laws. COUPLED shares the noise of the session's dice with
    the coupled rule. confidence: see `growth.begin`.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        model: DraftModel,
        *,
        vocabulary: int,
        translation: Translation | None = None,
        law: Law | None = None,
        confidence: float = 0.0,
    ) -> None:
        if not 0 <= confidence < 1:
            raise ParameterError(f"confidence is {confidence}: expected a probability below 1")
        self._model, self._vocabulary = model, vocabulary
        self._translation = translation or SameIds(vocabulary, model.vocab_size)
        self._law, self._confidence = law, confidence
        self._greedy = GreedySessions(vocabulary, model.device)
        self._met: set[Session] = set()
        self._bets: dict[Session, _Bet] = {}

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """A draft a session, all grown together; empty beyond the model's context."""
        bets: dict[Session, _Bet] = {}
        for session, wanted in zip(sessions, shapes, strict=True):
            if min(wanted.depth, wanted.nodes) < 1:
                continue
            text = self._translation.read(session.tokens)
            shape = self._fitting(session, text, wanted)
            if shape.depth > 0:
                self._meet(session, text, shape)
                law = law_for(shape, asked=self._law, greedy=self._greedy[session])
                growth = begin(session, shape, law, confidence=self._confidence)
                bets[session] = _Bet(growth, self._catch_up(session, text), self._translation.node)
        while growing := {session: bet for session, bet in bets.items() if bet.growth.frontier}:
            self._grow(growing)
        self._bets.update(bets)
        return [self._finish(bets[session]) if session in bets else Draft.empty(session.root) for session in sessions]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Keep the accepted path in the cache."""
        for session, verdict in zip(sessions, verdicts, strict=True):
            if bet := self._bets.pop(session, None):
                self._model.keep(session, bet.accepted(verdict.path))

    def release(self, session: Session) -> None:
        """Free the session's cache row."""
        self._bets.pop(session, None)
        self._met.discard(session)
        self._greedy.release(session)
        self._model.release(session)

    def _fitting(self, session: Session, text: Sequence[int], shape: Shape) -> Shape:
        """The shape, no deeper than the model can read. The deepest nodes are only drawn, never read."""
        limit = self._model.context_length
        if limit is None:
            return shape
        if len(text) > limit:
            self._model.release(session)
        return shape.clip(limit - len(text) + 1)

    def _meet(self, session: Session, text: Sequence[int], shape: Shape) -> None:
        """On first sight: make room for all of the session's text.

        Raises `OutOfMemoryError` here, when the text's first round begins, rather than in the middle of it. What the
        target's own rows take is known before that; a drafter may never be asked.
        """
        if session in self._met:
            return
        self._met.add(session)
        longest, limit = len(text) + session.ending.room, self._model.context_length
        self._model.reserve(session, shape.nodes + (longest if limit is None else min(longest, limit)))

    def _catch_up(self, session: Session, text: Sequence[int]) -> Sequence[int]:
        """Make the model's row a beginning of the text, and all of it but the last few tokens, which are returned."""
        known = self._model.known(session, text[:-1])
        if len(text) - 1 - known > _FEW:
            known = len(text) - 1
        self._model.catch_up(session, text[:known])
        return text[known:]

    def _grow(self, bets: dict[Session, _Bet]) -> None:
        """One level of all trees, in one pass."""
        levels = [bet.level() for bet in bets.values()]
        nodes = [Nodes(tuple(tokens), tuple(parents)) for tokens, parents in levels]
        scores = self._model.extend(list(bets), nodes)
        for bet, score in zip(bets.values(), scores, strict=True):
            bet.growth.grow(self._translation.logits(score.logits[-len(bet.growth.frontier) :]))

    def _finish(self, bet: _Bet) -> Draft:
        draft, bet.kept = bet.growth.finish()
        return draft
