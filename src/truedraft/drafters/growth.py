"""Draft trees while they grow: level by level, from the logits of whatever scores their nodes.

A drafter runs the nodes of `frontier` and hands their logits to `grow`, until the frontier is empty; `finish` gives the
draft. `FixedGrowth` has a shape that is known before anything is drawn and serves every law. `BestGrowth` keeps the
likeliest nodes, so its shape depends on its tokens, which is lawful for chosen tokens only. This file refuses to know
models and caches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from truedraft import drawing
from truedraft.core import Branch, Draft, Law, Session, Shape, Tree
from truedraft.errors import ParameterError
from truedraft.noise import noise_of

__all__ = ["BestGrowth", "FixedGrowth", "Growth", "begin", "spread"]


class Growth(Protocol):
    """A tree that grows. Its nodes are numbered as they come; node 0 is the root."""

    @property
    def frontier(self) -> Sequence[int]:
        """The nodes whose logits are wanted next, F of them; none when the tree is full-grown."""
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


def begin(session: Session, shape: Shape, law: Law, *, confidence: float = 0.0, ids: Tensor | None = None) -> Growth:
    """A tree of one node for a session, to be grown within a shape under a law.

    confidence: a node to which the drafter's own softmax gives less probability than this stays without children. It
    is kept itself: to stop after a token is lawful, to drop it would not be. ids [V]: the tokens that the logits are
    of, under CHOSEN only. Children are then chosen by the drafter's own softmax, all of a level at once, and the
    session's sampler is not asked: far cheaper, and as good wherever the sampler keeps the order of the logits.
    """
    if ids is not None and law is not Law.CHOSEN:
        raise ParameterError(f"law is {law}: only chosen tokens may be ranked without the session's sampler")
    if law is Law.CHOSEN and shape.width > 1 and not shape.branching:
        return BestGrowth(session, shape, confidence, ids)
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


class _Nodes:
    """What both kinds of growth keep of every node: token, parent and depth, and the history that it stands for."""

    def __init__(self, session: Session) -> None:
        self._tokens, self._parents, self._depths = [session.root], [-1], [0]
        self._branches: dict[int, Branch] = {0: session.sampler.branch(session.tokens)}
        self.frontier: list[int] = [0]
        """The nodes whose logits are wanted next."""

    def token(self, node: int) -> int:
        """The token of a node."""
        return self._tokens[node]

    def parent(self, node: int) -> int:
        """The parent of a node, -1 for the root."""
        return self._parents[node]

    def _append(self, parent: int, token: int) -> int:
        """A new node; returns its number."""
        self._tokens.append(token)
        self._parents.append(parent)
        self._depths.append(self._depths[parent] + 1)
        return len(self._tokens) - 1

    def _branch(self, node: int) -> Branch:
        """The history at a node whose parent has been asked for its distribution before."""
        if node not in self._branches:
            self._branches[node] = self._branches[self._parents[node]].child(self._tokens[node])
        return self._branches[node]


class FixedGrowth(_Nodes):
    """A tree with so many children a node at every level (fewer only where q has too few tokens), under any law."""

    def __init__(
        self,
        session: Session,
        shape: Shape,
        law: Law,
        confidence: float = 0.0,
        ids: Tensor | None = None,
    ) -> None:
        super().__init__(session)
        self._session, self._law, self._confidence, self._ids = session, law, confidence, ids
        self._branching = spread(shape)
        self._q: dict[int, Tensor] = {}
        if not self._branching:
            self.frontier = []

    def grow(self, logits: Tensor) -> None:
        """Draw the children of the frontier from its logits [F, V]."""
        grown: list[int] = []
        for node, (tokens, sure) in zip(self.frontier, self._drawn(logits), strict=True):
            children = [self._append(node, token) for token in tokens]
            grown += [child for child, goes_on in zip(children, sure, strict=True) if goes_on]
        self.frontier = [node for node in grown if self._depths[node] < len(self._branching)]

    def _drawn(self, logits: Tensor) -> Iterator[tuple[list[int], list[bool]]]:
        """The children of every node of the frontier, and which of them may have children."""
        k = self._branching[self._depths[self.frontier[0]]]
        if self._ids is not None:
            for tokens, shares in _likeliest(logits, self._ids, k):
                yield tokens, [share >= self._confidence for share in shares]
            return
        for node, row in zip(self.frontier, logits, strict=True):
            q = self._branch(node).distribution(row)
            tokens = self._draw(node, q, row, k)
            if tokens and self._law is not Law.CHOSEN:
                self._q[node] = q
            yield tokens, _surely(row, tokens, self._confidence)

    def _draw(self, node: int, q: Tensor, logits: Tensor, k: int) -> list[int]:
        """k children of a node under the law."""
        if self._law is Law.CHOSEN:
            return drawing.chosen(q if k == 1 else _ranking(q, logits), k)
        if self._law is Law.COUPLED:
            position = len(self._session.tokens) + self._depths[node]
            return drawing.coupled(q, k, noise_of(self._session.dice), position)
        draw = _DRAWS[self._law]
        return draw(q, k, self._session.dice)

    def finish(self) -> tuple[Draft, tuple[int, ...]]:
        """The draft; its nodes have the numbers they had here."""
        nodes = range(len(self._tokens))
        q = None if self._law is Law.CHOSEN else tuple(self._q.get(node) for node in nodes)
        return Draft(Tree(tuple(self._tokens), tuple(self._parents)), self._law, q), tuple(nodes)


_DRAWS = {
    Law.SAMPLED: drawing.sampled,
    Law.SAMPLED_WITHOUT_REPLACEMENT: drawing.without_replacement,
    Law.GREEDY_DRAFT: drawing.greedy_draft,
}


class BestGrowth(_Nodes):
    """The tree of the `nodes` likeliest continuations by the drafter's own probabilities; CHOSEN.

    Source: the dynamic trees of EAGLE-2 (Li et al. 2024) and OPT-Tree (Wang et al. 2024). No rule accepts more of any
    chosen tree of that size if the drafter is right. A node is run only if it is among the likeliest so far: otherwise
    its descendants, which are less likely than itself, cannot be either.
    """

    def __init__(self, session: Session, shape: Shape, confidence: float = 0.0, ids: Tensor | None = None) -> None:
        super().__init__(session)
        self._shape, self._confidence, self._ids = shape, confidence, ids
        self._chances = [1.0]
        self._unsure: set[int] = set()
        if min(shape.depth, shape.nodes) == 0:
            self.frontier = []

    def grow(self, logits: Tensor) -> None:
        """Give the likeliest children to the frontier, from its logits [F, V]."""
        fresh = len(self._tokens)
        for node, ranked in zip(self.frontier, self._ranked(logits), strict=True):
            for token, share, goes_on in zip(*ranked, strict=True):
                child = self._append(node, token)
                self._chances.append(self._chances[node] * min(share, 1.0))
                if not goes_on:
                    self._unsure.add(child)
        growing = (node for node in self._best() if node >= fresh and node not in self._unsure)
        self.frontier = sorted(node for node in growing if self._depths[node] < self._shape.depth)

    def _ranked(self, logits: Tensor) -> Iterator[tuple[list[int], list[float], list[bool]]]:
        """Of every node of the frontier: its likeliest tokens, their chances, and which of them may have children."""
        if self._ids is not None:
            for tokens, shares in _likeliest(logits, self._ids, self._shape.width):
                yield tokens, shares, [share >= self._confidence for share in shares]
            return
        for node, row in zip(self.frontier, logits, strict=True):
            ranking = _ranking(self._branch(node).distribution(row), row)
            tokens = drawing.chosen(ranking, self._shape.width)
            yield tokens, ranking[tokens].tolist(), _surely(row, tokens, self._confidence)

    def _best(self) -> list[int]:
        """The likeliest nodes, at most as many as allowed. Ties go to the older, so ancestors are among them."""
        likeliest_first = sorted(range(1, len(self._tokens)), key=lambda node: -self._chances[node])
        return likeliest_first[: self._shape.nodes]

    def finish(self) -> tuple[Draft, tuple[int, ...]]:
        """The draft, and the number that each of its nodes had here."""
        kept = [0, *sorted(self._best())]
        places = {node: place for place, node in enumerate(kept)}
        parents = (-1, *(places[self._parents[node]] for node in kept[1:]))
        return Draft(Tree(tuple(self._tokens[node] for node in kept), parents)), tuple(kept)


def _likeliest(logits: Tensor, ids: Tensor, k: int) -> list[tuple[list[int], list[float]]]:
    """The k likeliest of the tokens `ids` [V] and their probabilities, by every row of logits [F, V]."""
    shares, places = logits.float().softmax(-1).topk(min(k, logits.shape[-1]))
    return list(zip(ids[places].tolist(), shares.tolist(), strict=True))


def _ranking(q: Tensor, logits: Tensor) -> Tensor:
    """What to rank a node's possible children by [V]: q, or, where q knows one token only, the model's own softmax.

    A greedy sampler's q says nothing of second choices. Its first choice, which penalties may have changed, trades
    places with the softmax's.
    """
    if int(torch.count_nonzero(q)) > 1:
        return q
    plain = logits.float().softmax(0)
    first, likeliest = int(q.argmax()), int(plain.argmax())
    plain[[first, likeliest]] = plain[[likeliest, first]]
    return plain


def _surely(logits: Tensor, tokens: Sequence[int], confidence: float) -> list[bool]:
    """Which tokens the model's own softmax gives at least this probability."""
    if confidence <= 0:
        return [True] * len(tokens)
    probabilities = logits.float().softmax(0)
    return [float(probabilities[token]) >= confidence for token in tokens]
