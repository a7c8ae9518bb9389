"""Trees of the likeliest nodes, as many as the shape allows and as are expected to pay.

Their shape depends on their tokens, which is lawful for chosen tokens only. Sources: EAGLE-2 (Li et al. 2024), OPT-Tree
(Wang et al. 2024). This file refuses to know models and caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from truedraft import drawing
from truedraft.core import Draft, Session, Shape, Tree
from truedraft.drafters.growing import GrowingNodes, likeliest, ranking
from truedraft.drafters.pass_cost import NO_COST, NodeCosts, PassCost
from truedraft.errors import ParameterError

__all__ = ["UNPRICED", "BestGrowth", "Price"]


@dataclass(frozen=True)
class Price:
    """What a tree costs a text: nodes, in the target's pass, and level, one more level of drafting, in such passes.

    A head's pass grows with the texts that share it as the target's does: a level is the same part at any batch.
    """

    nodes: NodeCosts = NO_COST
    level: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.level < 1:
            raise ParameterError(f"a level costs {self.level}: expected a share of a pass, from 0 to below 1")

    @classmethod
    def among(cls, batch: int, passes: PassCost, level: float, context: float = 0) -> Price:
        """Where so many texts of so many tokens share the passes."""
        return cls(passes.among(batch, context), level)


UNPRICED = Price()
"""Where the shape alone limits a tree."""


class BestGrowth(GrowingNodes):
    """The tree of the `nodes` likeliest continuations by the drafter's own probabilities; CHOSEN.

    Source: the dynamic trees of EAGLE-2 (Li et al. 2024) and OPT-Tree (Wang et al. 2024). No rule accepts more of any
    chosen tree of that size if the drafter is right. A node is run only if it is among the likeliest so far: otherwise
    its descendants, which are less likely than itself, cannot be either.
    """

    def __init__(
        self,
        session: Session,
        shape: Shape,
        confidence: float = 0.0,
        ids: Tensor | None = None,
        price: Price = UNPRICED,
    ) -> None:
        super().__init__(session, ids)
        self._shape, self._confidence, self._price = shape, confidence, price
        self._levels = 1
        self._chances = [1.0]
        self._unsure: set[int] = set()
        if min(shape.depth, shape.nodes) == 0:
            self.frontier = []

    def grow(self, logits: Tensor) -> None:
        """Give the likeliest children to the frontier, from its logits [F, V]."""
        fresh = len(self.tokens)
        for node, ranked in zip(self.frontier, self._ranked(logits), strict=True):
            for token, share, goes_on in zip(*ranked, strict=True):
                child = self.append(node, token)
                self._chances.append(self._chances[node] * min(share, 1.0))
                if not goes_on:
                    self._unsure.add(child)
        best = self._best()
        growing = [node for node in best if node >= fresh and node not in self._unsure]
        deeper = sorted(node for node in growing if self.depths[node] < self._shape.depth)
        self.frontier = deeper if self._level_pays(best, deeper) else []
        self._levels += 1

    def _level_pays(self, best: Sequence[int], deeper: Sequence[int]) -> bool:
        """Whether children of the nodes `deeper` are expected to raise tokens over cost.

        They are taken to be as likely, on the whole, against their parents as these nodes are against theirs.
        """
        if self._price.level == 0:
            return True
        before = sum(self._chances[node] for node in self.frontier)
        now = sum(self._chances[node] for node in deeper)
        expected = 1.0 + sum(self._chances[node] for node in best)
        gain = now * now / before
        return gain * self._cost(len(best)) > expected * (self._price.level + self._price.nodes.next(len(best)))

    def _ranked(self, logits: Tensor) -> Iterator[tuple[list[int], list[float], list[bool]]]:
        """Of every node of the frontier: its likeliest tokens, their chances, and which of them may have children."""
        if self.ids is not None:
            for tokens, shares in likeliest(logits, self.ids, self._shape.width):
                yield tokens, shares, [share >= self._confidence for share in shares]
            return
        for node, row in zip(self.frontier, logits, strict=True):
            q = self.law(node, row)
            if q is None:
                yield [], [], []
                continue
            rank_by = ranking(q, row)
            tokens = drawing.chosen(rank_by, self._shape.width)
            yield tokens, rank_by[tokens].tolist(), self.may_grow(q, row, tokens, self._confidence)

    def _best(self) -> list[int]:
        """The likeliest nodes, as many as are allowed and pay, likeliest first.

        Ties go to the older, so parents are among them and before their children.
        """
        likeliest_first = sorted(range(1, len(self.tokens)), key=lambda node: -self._chances[node])
        best, expected = likeliest_first[: self._shape.nodes], 1.0
        for count, node in enumerate(best):
            if self._chances[node] * self._cost(count) < expected * self._price.nodes.next(count):
                return best[:count]
            expected += self._chances[node]
        return best

    def _cost(self, nodes: int) -> float:
        """Of the round with so many nodes and the levels that there are, in passes without nodes."""
        return self._price.nodes[nodes] + self._price.level * self._levels

    @property
    def cost(self) -> float:
        """Of a round with the tree as it is, in passes without nodes."""
        return self._price.nodes[len(self._best())] + self._price.level * (self._levels - 1)

    def finish(self) -> tuple[Draft, tuple[int, ...]]:
        """The draft, and the number that each of its nodes had here.

        Its nodes come by falling chance, so its first ones are the tree that a smaller shape would have had.
        """
        kept = [0, *self._best()]
        places = {node: place for place, node in enumerate(kept)}
        parents = (-1, *(places[self.parents[node]] for node in kept[1:]))
        return Draft(Tree(tuple(self.tokens[node] for node in kept), parents)), tuple(kept)

    def chances(self, nodes: Sequence[int]) -> tuple[float, ...]:
        """By the drafter's own probabilities, the chance of each of these nodes and all before it."""
        return tuple(self._chances[node] for node in nodes)
