"""Shapes of draft trees: the best static tree for measured acceptance, and when the next node pays.

A tree here is its parents alone, node 0 the root, and acceptance is by rank: rates[b] is the measured share of accepted
nodes whose child b + 1 was accepted next. This file refuses to know tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import pairwise

from truedraft.errors import ParameterError

__all__ = [
    "TreePlan",
    "best_first_tree",
    "best_tree",
    "branching_of",
    "branching_text",
    "expected_tokens_of_tree",
    "next_node_pays",
]


@dataclass(frozen=True)
class TreePlan:
    """A static tree: parents [N] with the root, the tokens a round is expected to emit, and its seconds."""

    parents: tuple[int, ...]
    tokens: float
    seconds: float

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return len(self.parents) - 1

    @property
    def depth(self) -> int:
        """Levels below the root."""
        depth = [0]
        for parent in self.parents[1:]:
            depth.append(depth[parent] + 1)
        return max(depth)

    @property
    def rate(self) -> float:
        """Expected tokens a second."""
        return self.tokens / self.seconds


def expected_tokens_of_tree(parents: Sequence[int], chances: Sequence[float]) -> float:
    """Tokens a round emits on average: 1 + the sum of path probabilities.

    chances [N] are those of every node to be accepted once its parent is; the root's is not read. Siblings exclude one
    another, so theirs add up to at most 1.
    """
    paths = [1.0]
    for parent, chance in zip(parents[1:], chances[1:], strict=True):
        paths.append(paths[parent] * chance)
    return sum(paths)


def best_tree(
    rates: Sequence[float], verify: Callable[[int], float], *, draft_step: float = 0.0, nodes: int = 32, depth: int = 8
) -> TreePlan:
    """The static tree with the most expected tokens a second.

    verify(n): seconds of a pass over n tokens, the root included. draft_step: seconds a level, whatever its width. The
    dynamic program of Sequoia (Chen et al. 2024, arXiv 2402.12374) over trees of up to `nodes` drafted nodes and
    `depth` levels: T(m, l, b) = max over y of T(y, l, b - 1) + rates[b - 1] * max over b' of T(m - y, l - 1, b').
    """
    if nodes < 0 or depth < 0 or any(not 0 <= rate <= 1 for rate in rates):
        raise ParameterError(
            f"a tree needs nodes >= 0, depth >= 0 and rates from 0 to 1, got {nodes}, {depth}, {rates}"
        )
    search = _Search(tuple(rates))
    best = TreePlan((-1,), 1.0, verify(1))
    for levels in range(1, depth + 1):
        for size in range(2, nodes + 2):
            tokens, children = search.best(size, levels)
            plan = TreePlan((), tokens, verify(size) + levels * draft_step)
            if plan.rate > best.rate:
                best = TreePlan(_parents(search, size, levels, children), plan.tokens, plan.seconds)
    return best


class _Search:
    """T(m, l, b), the most expected tokens of m nodes, the root included, in l levels with b children of the root."""

    def __init__(self, rates: tuple[float, ...]) -> None:
        self._rates = rates
        self.best = cache(self._best)
        self.split = cache(self._split)

    def _best(self, size: int, levels: int) -> tuple[float, int]:
        """The best of all b, and that b."""
        if size == 1:
            return 1.0, 0
        widest = min(len(self._rates), size - 1) if levels else 0
        options = ((self.split(size, levels, children)[0], -children) for children in range(1, widest + 1))
        tokens, children = max(options, default=(float("-inf"), 0))
        return tokens, -children

    def _split(self, size: int, levels: int, children: int) -> tuple[float, int]:
        """T with exactly `children` children, and the size of the last one's subtree."""
        rate = self._rates[children - 1]
        if children == 1:
            return 1.0 + _times(rate, self.best(size - 1, levels - 1)[0]), size - 1
        options = (
            (self.split(size - last, levels, children - 1)[0] + _times(rate, self.best(last, levels - 1)[0]), -last)
            for last in range(1, size - children + 1)
        )
        tokens, last = max(options)
        return tokens, -last


def _times(rate: float, tokens: float) -> float:
    """The product; minus infinity, for a tree that cannot be, stays so: times 0 it would be no number and win."""
    return tokens if tokens == float("-inf") else rate * tokens


def _parents(search: _Search, size: int, levels: int, children: int) -> tuple[int, ...]:
    """The tree behind T(size, levels, children), level by level."""
    parents = [-1]
    frontier = [(0, size, levels, children)]
    while frontier:
        grown = []
        for node, size_here, levels_here, count in frontier:
            sizes = []
            for child in range(count, 0, -1):
                last = search.split(size_here, levels_here, child)[1]
                sizes.append(last)
                size_here -= last
            for last in reversed(sizes):
                grown.append((len(parents), last, levels_here - 1, search.best(last, levels_here - 1)[1]))
                parents.append(node)
        frontier = grown
    return tuple(parents)


def best_first_tree(rates: Sequence[float], *, nodes: int, depth: int) -> tuple[int, ...]:
    """Parents of the tree of the `nodes` likeliest paths, at most `depth` deep, in the order of their probability.

    No tree of that size has more expected tokens, where the chances are right (OPT-Tree, Wang et al. 2024).
    """
    parents = [-1]
    heap: list[tuple[float, int, int, int]] = []  # -chance, parent, rank, depth
    chance, node, level = 1.0, 0, 0
    while len(parents) <= nodes:
        if rates and level < depth:
            heappush(heap, (-chance * rates[0], node, 0, level + 1))
        if not heap:
            break
        negative, parent, rank, level = heappop(heap)
        if negative == 0:
            break
        if rank + 1 < len(rates):
            heappush(heap, (negative / rates[rank] * rates[rank + 1], parent, rank + 1, level))
        node, chance = len(parents), -negative
        parents.append(parent)
    return tuple(parents)


def next_node_pays(chance: float, tokens: float, seconds: float, extra: float) -> bool:
    """Whether a node of this path probability raises tokens a second, given what one more node costs.

    (tokens + chance) / (seconds + extra) > tokens / seconds: marginal accepted tokens against marginal cost.
    """
    return chance * seconds > tokens * extra


def branching_of(parents: Sequence[int], *, nodes: int) -> tuple[int, ...]:
    """The tree made even: children for all nodes of a level, nearest to the tree's own averages, in `nodes` nodes.

    For drafters whose shapes fix the children level by level.
    """
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    per_level = [depth.count(level) for level in range(max(depth) + 1)]
    branching: list[int] = []
    total, width = 0, 1
    for above, here in pairwise(per_level):
        children = max(1, round(here / above))
        while children > 1 and total + width * children > nodes:
            children -= 1
        width *= children
        total += width
        if total > nodes:
            break
        branching.append(children)
    return tuple(branching)


def branching_text(branching: Sequence[int]) -> str:
    """Children a level as the option tree takes them: 3x2x1, and 3x for one level, because 3 is a number of nodes."""
    return "x".join(map(str, branching)) + ("x" if len(branching) == 1 else "")
