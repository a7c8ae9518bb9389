"""Trees of guesses with their chances, grown from the likeliest node to the least while another node pays.

For drafters whose guesses cost no model pass. Their drafts are CHOSEN, so pruning, merging and re-ranking are free:
the target-only rule stays exact, and of all trees of n nodes it accepts most of the n likeliest paths (OPT-Tree, Wang
et al. 2024). This file refuses to know where guesses come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol, TypeVar, runtime_checkable

from truedraft.core import Draft, Drafter, Session, Shape, Tree
from truedraft.drafters.pass_cost import NodeCosts

__all__ = ["Bet", "Bettor", "Source", "best_first", "drafts_of", "pays"]

State = TypeVar("State")


class Source(Protocol[State]):
    """Guesses what follows a state, which stands for a text."""

    def guesses(self, state: State, least: float) -> Sequence[tuple[float, int]]:
        """(chance, token) of what may come next, likeliest first; those below `least` may be left out."""
        ...

    def follow(self, state: State, token: int) -> State:
        """The state one token on."""
        ...


@dataclass(frozen=True, eq=False)
class Bet:
    """A CHOSEN draft and what its maker thinks of it.

    chances [N]: of every node, that it and all before it are accepted; 1 for the root.
    """

    draft: Draft
    chances: tuple[float, ...] = field(default=(1.0,))

    @classmethod
    def none(cls, root: int) -> Bet:
        """No guess at all."""
        return cls(Draft.empty(root))

    @property
    def expected(self) -> float:
        """Tokens that the round is expected to emit, the one that every round emits included."""
        return sum(self.chances)

    def yields(self, costs: NodeCosts, effort: float = 0.0) -> float:
        """Expected tokens over the round's cost, where plain decoding yields 1. effort: of drafting, in passes."""
        return self.expected / (costs[len(self.draft)] + effort)


@runtime_checkable
class Bettor(Drafter, Protocol):
    """A drafter that says how good its drafts are, and that can watch rounds in which another one drafted."""

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape], *, batch: int | None = None) -> list[Draft]:
        """As `core.Drafter`, in a pass that `batch` texts share; None: these and no others."""
        ...

    def bet(self, session: Session, shape: Shape, *, batch: int = 1) -> Bet:
        """A bet within the shape, rooted at the session's last token, in a pass that `batch` texts share."""
        ...


def drafts_of(
    bettor: Bettor, sessions: Sequence[Session], shapes: Sequence[Shape], batch: int | None = None
) -> list[Draft]:
    """What a bettor bets for sessions one by one, in a pass that `batch` texts share; None: these and no others."""
    texts = batch or len(sessions)
    return [bettor.bet(session, shape, batch=texts).draft for session, shape in zip(sessions, shapes, strict=True)]


def pays(chance: float, expected: float, nodes: int, costs: NodeCosts) -> bool:
    """Whether one more node of this chance raises expected tokens over cost, `nodes` being there already.

    (E + c) / T(nodes + 1) > E / T(nodes), with E = expected.
    """
    return chance * costs[nodes] > expected * costs.next(nodes)


def best_first(root: int, start: State, source: Source[State], shape: Shape, *, costs: NodeCosts) -> Bet:
    """The likeliest continuations, one node at a time, while the shape allows it and the next one pays.

    Parents come before children, likelier siblings first.
    """
    tokens, parents, depths, chances = [root], [-1], [0], [1.0]
    heap: list[tuple[float, int, int, int, State]] = []  # -chance, tie-break, parent, token, the parent's state
    expected, order = 1.0, 0
    node, state, budget = 0, start, shape.nodes
    while len(tokens) <= budget:
        depth = depths[node]
        if depth < shape.depth:
            width = shape.branching[depth] if shape.branching else shape.width
            chance = chances[node]
            least = costs.next(len(tokens) - 1) / chance  # later nodes cost no less, and yields are never below 1
            for share, token in source.guesses(state, least)[:width]:
                order += 1
                heappush(heap, (-chance * share, order, node, token, state))
        if not heap:
            break
        negative, _, parent, token, before = heappop(heap)
        if not pays(-negative, expected, len(tokens) - 1, costs):
            break
        expected -= negative
        node = len(tokens)
        tokens.append(token)
        parents.append(parent)
        depths.append(depths[parent] + 1)
        chances.append(-negative)
        state = source.follow(before, token)
    return Bet(Draft(Tree(tuple(tokens), tuple(parents))), tuple(chances))
