"""Traversal verification: test a drafted tree from its leaves up; on a chain it is block verification.

Source: Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding". Every node v carries p_v, q_v (its
own copies) and the probability a_v with which it stands, a = 1 at the root. For a child with token x:

    a_child = min(1, a_v p_v(x) / q_v(x))

Take the leaf reached by always going to the first remaining child. It stands with probability a_leaf: emit its path
and a token from p_leaf. Otherwise remove it and update its parent v:

    S = sum_x [a_v p_v(x) - q_v(x)]+;   p_v = norm([a_v p_v - q_v]+);   a_v = S / (S + 1 - a_v)

and let q_v be the law of the next sibling, given those before it: the same for independent siblings, without x for
siblings drawn without replacement. Greedy drafts fit in as well: the drawn sibling comes first, with the law of its
draw, and a chosen one is certain, q_v(x) = 1; with leaves for children that is greedy-draft verification.

Proved for drawn trees whose shape below a node depends on nothing but the path to it. O(V) a tested node.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.verify.acceptance import Acceptance, drafted_probability, drawn_from, remaining, surplus, without

__all__ = ["RULE", "verify"]


@dataclass(eq=False)
class _Node:
    """A node on the way down: its number, how likely it stands, its remaining children and its share of p and q.

    p and q are not normalised; their masses stand aside. q is None when the next child is certain.
    """

    number: int
    stands: float
    children: list[int]
    q: Tensor | None = None
    q_mass: float = 1.0
    p: Tensor | None = None
    p_mass: float = 1.0


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
        _reject(way[-1], tree.tokens[leaf.number], draft.law)


def _visit(draft: Draft, number: int, stands: float) -> _Node:
    children = draft.tree.children[number]
    if not children or stands <= 0.0:
        return _Node(number, stands, [])
    q = drawn_from(draft, number)
    if draft.law is not Law.GREEDY_DRAFT or len(children) == 1:
        return _Node(number, stands, list(children), q)
    *chosen, drawn = children
    rest, mass = remaining(q, [draft.tree.tokens[child] for child in chosen])
    return _Node(number, stands, [drawn, *chosen], rest, mass)


def _stands(parent: _Node, p: Distributions, token: int) -> float:
    """a of the parent's first remaining child."""
    if parent.p is None:
        parent.p = p[parent.number]
    offered = 1.0 if parent.q is None else drafted_probability(parent.q, token) / parent.q_mass
    return min(1.0, parent.stands * float(parent.p[token]) / (offered * parent.p_mass))


def _reject(parent: _Node, token: int, law: Law) -> None:
    """Take what the rejected first child could have emitted out of its parent, and ready q for the next one."""
    assert parent.p is not None
    del parent.children[0]
    scale = parent.stands / parent.p_mass
    if parent.q is None:
        left, mass = without(parent.p, [token])
    else:
        left, mass = surplus(parent.p, parent.q, ratio=1.0 / max(scale * parent.q_mass, 1e-300))
    if parent.stands < 1.0:
        parent.stands = scale * mass / (scale * mass + 1.0 - parent.stands)
    if mass > 0.0:
        parent.p, parent.p_mass = left, mass
    if law is Law.GREEDY_DRAFT:
        parent.q = None
    elif law is Law.SAMPLED_WITHOUT_REPLACEMENT and parent.children and parent.q is not None:
        parent.q, parent.q_mass = remaining(parent.q, [token])


RULE = Acceptance("traversal", verify, frozenset({Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT}))
