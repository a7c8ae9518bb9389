"""Traversal verification: test a drafted tree from its leaves up; on a chain it is block verification.

Source: Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding". Every node v carries p_v, q_v (its
own copies) and the probability a_v with which it stands, a = 1 at the root. For a child with token x:

    a_child = min(1, a_v p_v(x) / q_v(x))

Take the leaf reached by always going to the first remaining child. It stands with probability a_leaf: emit its path
and a token from p_leaf. Otherwise remove it and update its parent v:

    S = sum_x [a_v p_v(x) - q_v(x)]+;   p_v = norm([a_v p_v - q_v]+);   a_v = S / (S + 1 - a_v)
    q_v(x) = 0, q_v = norm(q_v)  if drawn without replacement

Proved for drawn trees whose shape below a node depends on nothing but the path to it. O(V) a tested node.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, drafted_probability, drawn_from, surplus, without

__all__ = ["RULE", "verify"]


@dataclass(eq=False)
class _Node:
    """A node on the way down: its number, how likely it stands, its remaining children and its share of p and q.

    p and q are not normalised; their masses stand aside.
    """

    number: int
    stands: float
    children: list[int]
    p: Tensor | None = None
    p_mass: float = 1.0
    q: Tensor | None = None
    q_mass: float = 1.0


def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
    """Test leaf after leaf until one stands; the root always does."""
    tree = draft.tree
    way = [_visit(draft, 0, 1.0)]
    while True:
        # Below a node that cannot stand, nothing can: its children are not even looked at.
        while way[-1].children and way[-1].stands > 0.0:
            child = way[-1].children[0]
            way.append(_visit(draft, child, _stands(way[-1], p, tree.tokens[child])))
        leaf = way.pop()
        if dice.coin(leaf.stands):
            path = tree.path(leaf.number)
            tokens = tuple(tree.tokens[node] for node in path)
            return Verdict(path, (*tokens, dice.categorical(p[leaf.number] if leaf.p is None else leaf.p)))
        _reject(way[-1], tree.tokens[leaf.number], replace=draft.law is Law.SAMPLED)


def _visit(draft: Draft, number: int, stands: float) -> _Node:
    children = list(draft.tree.children[number])
    return _Node(number, stands, children, q=drawn_from(draft, number) if children else None)


def _stands(parent: _Node, p: Distributions, token: int) -> float:
    """a of the parent's first remaining child."""
    if parent.p is None:
        parent.p = p[parent.number]
    assert parent.q is not None
    drawn = drafted_probability(parent.q, token)
    return min(1.0, parent.stands * float(parent.p[token]) * parent.q_mass / (drawn * parent.p_mass))


def _reject(parent: _Node, token: int, *, replace: bool) -> None:
    """Take what the rejected first child could have emitted out of its parent."""
    assert parent.p is not None and parent.q is not None
    del parent.children[0]
    scale = parent.stands / parent.p_mass
    left, mass = surplus(parent.p, parent.q, ratio=1.0 / (scale * parent.q_mass))
    share = scale * mass
    if parent.stands < 1.0:
        parent.stands = share / (share + 1.0 - parent.stands)
    if mass > 0.0:
        parent.p, parent.p_mass = left, mass
    if not replace and parent.children:
        parent.q, parent.q_mass = without(parent.q, [token])


RULE = Acceptance("traversal", verify, frozenset({Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT}))
