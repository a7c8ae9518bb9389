"""Merge: the guesses of several drafters in one tree, the likeliest of all of them while another one pays.

The target-only rule is exact for every tree whose making is independent of the verdict's randomness, so a merged tree
is CHOSEN whoever made its parts, and no candidate is tried twice: equal continuations share their nodes. That several
sources draft better than one, and that a node's chance decides which to keep, is the idea of the merged trees of
SpecInfer (Miao et al. 2024) and of the dynamic trees of EAGLE-2 (Li et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truedraft.core import Draft, Scores, Session, Shape, Tree, Verdict
from truedraft.drafters.bets import Bet, Bettor, drafts_of, pays
from truedraft.drafters.pass_cost import USUAL, NodeCosts, PassCost
from truedraft.errors import ParameterError

__all__ = ["MergeDrafter", "merged"]


@dataclass(eq=False, slots=True)
class _Node:
    """A node of the union: its best chance by any bet, and its place there."""

    parent: int
    token: int
    depth: int
    chance: float


def merged(bets: Sequence[Bet], shape: Shape, *, costs: NodeCosts) -> Bet:
    """The likeliest nodes of several bets on one text, as a tree within the shape, as long as the next one pays.

    Where bets agree on a node, it has the chance that the most confident one gives it.
    """
    union = _union(bets)
    root = union[0].token
    places, width = {0: 0}, [0] * len(union)
    tokens, parents, chances, expected = [root], [-1], [1.0], 1.0
    for index in sorted(range(1, len(union)), key=lambda index: -union[index].chance):
        node = union[index]
        if len(tokens) > shape.nodes or not pays(node.chance, expected, len(tokens) - 1, costs):
            break
        if node.depth > shape.depth or node.parent not in places:
            continue
        if width[node.parent] < (shape.branching[node.depth - 1] if shape.branching else shape.width):
            width[node.parent] += 1
            places[index] = len(tokens)
            tokens.append(node.token)
            parents.append(places[node.parent])
            chances.append(node.chance)
            expected += node.chance
    return Bet(Draft(Tree(tuple(tokens), tuple(parents))), tuple(chances))


def _union(bets: Sequence[Bet]) -> list[_Node]:
    """All nodes of all bets, equal paths once; parents come before children."""
    union = [_Node(-1, bets[0].draft.tree.tokens[0], 0, 1.0)]
    known: dict[tuple[int, int], int] = {}
    for bet in bets:
        tree, places = bet.draft.tree, [0]
        for token, parent, chance in zip(tree.tokens[1:], tree.parents[1:], bet.chances[1:], strict=True):
            above = places[parent]
            place = known.setdefault((above, token), len(union))
            if place == len(union):
                union.append(_Node(above, token, union[above].depth + 1, chance))
            union[place].chance = max(union[place].chance, chance)
            places.append(place)
    return union


class MergeDrafter:
    """`bets.Bettor` that merges the bets of others.

    passes: what the target's cost; a tree grows while another node pays.
    """

    def __init__(self, bettors: Sequence[Bettor], *, passes: PassCost = USUAL) -> None:
        if not bettors:
            raise ParameterError("there is nothing to merge: expected at least one drafter")
        self._bettors, self._passes = tuple(bettors), passes
        tapping = [tuple(bettor.taps) for bettor in bettors if bettor.taps]
        if len(tapping) > 1:
            raise ParameterError(f"{len(tapping)} of the drafters to merge read hidden states: expected at most one")
        self.taps: tuple[int, ...] = tapping[0] if tapping else ()

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape], *, batch: int | None = None) -> list[Draft]:
        """The likeliest continuations by any of them, as a tree within each session's shape."""
        return drafts_of(self, sessions, shapes, batch)

    def bet(self, session: Session, shape: Shape, *, batch: int = 1) -> Bet:
        """The same for one session, with the chances of its nodes."""
        bets = [bettor.bet(session, shape, batch=batch) for bettor in self._bettors]
        return merged(bets, shape, costs=self._passes.among(batch, len(session.tokens)))

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """All see every round; a bettor asks for no more than the accepted path."""
        for bettor in self._bettors:
            bettor.observe(sessions, verdicts, scores)

    def release(self, session: Session) -> None:
        """Free what they hold."""
        for bettor in self._bettors:
            bettor.release(session)
