"""Draft trees while they grow: level by level, from the logits of whatever scores their nodes.

A drafter runs the nodes of `frontier` and hands their logits to `grow`, until the frontier is empty; `finish` gives the
draft. `FixedGrowth` has a shape that is known before anything is drawn and serves every law; `best_growth` has the
other kind. This file refuses to know models and caches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from torch import Tensor

from truedraft import drawing
from truedraft.core import Draft, Law, Session, Shape, Tree
from truedraft.drafters.best_growth import UNPRICED, BestGrowth, Price
from truedraft.drafters.growing import GrowingNodes, likeliest, ranking
from truedraft.errors import ParameterError
from truedraft.noise import noise_of

__all__ = ["FixedGrowth", "Growth", "begin", "spread"]


class Growth(Protocol):
    """A tree that grows. Its nodes are numbered as they come; node 0 is the root."""

    @property
    def frontier(self) -> Sequence[int]:
        """The nodes whose logits are wanted next, F of them; none when the tree is full-grown."""
        ...

    @property
    def takes_ids(self) -> bool:
        """Whether logits are wanted of the ids that it was begun with, rather than of all tokens."""
        ...

    def token(self, node: int) -> int:
        """The token of a node."""
        ...

    def parent(self, node: int) -> int:
        """The parent of a node, -1 for the root."""
        ...

    def grow(self, logits: Tensor) -> None:
        """Give children to the frontier, from its logits [F, V]. Those that may grow on are the next frontier."""
        ...

    def finish(self) -> tuple[Draft, tuple[int, ...]]:
        """The draft, and the number that each of its nodes had here."""
        ...


def begin(
    session: Session,
    shape: Shape,
    law: Law,
    *,
    confidence: float = 0.0,
    ids: Tensor | None = None,
    price: Price = UNPRICED,
) -> Growth:
    """A tree of one node for a session, to be grown within a shape under a law.

    confidence: a node to which the drafter's own softmax gives less probability than this stays without children. It
    is kept itself: to stop after a token is lawful, to drop it would not be. ids [V]: the tokens that the logits are
    of, under CHOSEN only. Children are then chosen by the drafter's own softmax, all of a level at once, and the
    session's sampler is not asked: far cheaper, and as good wherever the sampler keeps the order of the logits. price:
    trees of the likeliest nodes get no node and no level that is not expected to pay.
    """
    if ids is not None and law is not Law.CHOSEN:
        raise ParameterError(f"law is {law}: only chosen tokens may be ranked without the session's sampler")
    if law is Law.CHOSEN and shape.width > 1 and not shape.branching:
        return BestGrowth(session, shape, confidence, ids, price)
    return FixedGrowth(session, shape, law, confidence, ids)


def spread(shape: Shape) -> tuple[int, ...]:
    """Children a node, level by level: the shape's branching, or else a chain that is widened while the nodes last.

    The top is widened first: every round passes there.
    """
    if shape.branching:
        return shape.branching
    branching = [1] * min(shape.depth, shape.nodes)
    for level in range(len(branching)):
        for width in range(2, shape.width + 1):
            wider = [*branching[:level], width, *branching[level + 1 :]]
            if _size(wider) > shape.nodes:
                return tuple(branching)
            branching = wider
    return tuple(branching)


def _size(branching: Sequence[int]) -> int:
    """Nodes below the root."""
    return sum(math.prod(branching[: level + 1]) for level in range(len(branching)))


class FixedGrowth(GrowingNodes):
    """A tree with so many children a node at every level (fewer only where q has too few tokens), under any law."""

    def __init__(
        self,
        session: Session,
        shape: Shape,
        law: Law,
        confidence: float = 0.0,
        ids: Tensor | None = None,
    ) -> None:
        super().__init__(session, ids)
        self._session, self._law, self._confidence = session, law, confidence
        self._branching = spread(shape)
        self._q: dict[int, Tensor] = {}
        if not self._branching:
            self.frontier = []

    def grow(self, logits: Tensor) -> None:
        """Draw the children of the frontier from its logits [F, V]."""
        grown: list[int] = []
        for node, (tokens, sure) in zip(self.frontier, self._drawn(logits), strict=True):
            children = [self.append(node, token) for token in tokens]
            grown += [child for child, goes_on in zip(children, sure, strict=True) if goes_on]
        self.frontier = [node for node in grown if self.depths[node] < len(self._branching)]

    def _drawn(self, logits: Tensor) -> Iterator[tuple[list[int], list[bool]]]:
        """The children of every node of the frontier, and which of them may have children."""
        k = self._branching[self.depths[self.frontier[0]]]
        if self.ids is not None:
            for tokens, shares in likeliest(logits, self.ids, k):
                yield tokens, [share >= self._confidence for share in shares]
            return
        for node, row in zip(self.frontier, logits, strict=True):
            q = self.law(node, row)
            tokens = [] if q is None else self._draw(node, q, row, k)
            if q is None or not tokens:
                yield [], []
                continue
            if self._law is not Law.CHOSEN:
                self._q[node] = q
            yield tokens, self.may_grow(q, row, tokens, self._confidence)

    def _draw(self, node: int, q: Tensor, logits: Tensor, k: int) -> list[int]:
        """k children of a node under the law."""
        if self._law is Law.CHOSEN:
            return drawing.chosen(q if k == 1 else ranking(q, logits), k)
        if self._law is Law.COUPLED:
            position = len(self._session.tokens) + self.depths[node]
            return drawing.coupled(q, k, noise_of(self._session.dice), position)
        draw = _DRAWS[self._law]
        return draw(q, k, self._session.dice)

    def finish(self) -> tuple[Draft, tuple[int, ...]]:
        """The draft; its nodes have the numbers they had here."""
        nodes = range(len(self.tokens))
        q = None if self._law is Law.CHOSEN else tuple(self._q.get(node) for node in nodes)
        return Draft(Tree(tuple(self.tokens), tuple(self.parents)), self._law, q), tuple(nodes)


_DRAWS = {
    Law.SAMPLED: drawing.sampled,
    Law.SAMPLED_WITHOUT_REPLACEMENT: drawing.without_replacement,
    Law.GREEDY_DRAFT: drawing.greedy_draft,
}
