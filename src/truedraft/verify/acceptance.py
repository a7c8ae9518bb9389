"""What all acceptance rules share: the class that carries them, the walk down a tree, residuals.

A rule that decides node by node is one function of a `Site`; it returns the token that follows, and `descend` goes on
as long as that token is a child. This page refuses to know any particular rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Verdict
from truedraft.errors import LawError

__all__ = [
    "Acceptance",
    "Site",
    "descend",
    "drafted_probability",
    "drawn_from",
    "follow",
    "remaining",
    "residual",
    "surplus",
    "without",
]

_LARGEST_RATIO = 1e30
"""A larger one is applied in float64: float32 may not hold it."""
_LEAST_MASS = 1e-15
"""A rest of q that holds less is renormalised: float32 may not hold one over it, in the end float64 neither."""


@dataclass(frozen=True)
class Acceptance:
    """A named acceptance rule; implements `truedraft.core.Rule`.

    laws: those for which `decide` is proved; chains: whether it is proved for chains only; lossless: whether the text
    it emits is distributed exactly as the target's own.
    """

    name: str
    decide: Callable[[Draft, Distributions, Dice], Verdict]
    laws: frozenset[Law]
    chains: bool = False
    lossless: bool = True

    def verify(self, draft: Draft, p: Distributions, dice: Dice) -> Verdict:
        """Decide which bets stand. An empty draft has no law to object to.

        Raises `LawError` for a law or a shape for which the rule is not proved, or if a drafted token has q = 0.
        """
        if len(draft) and draft.law not in self.laws:
            known = ", ".join(sorted(self.laws))
            raise LawError(f"the {self.name} rule is proved for {known}, got a {draft.law} draft: take another rule")
        if self.chains and not draft.tree.is_chain:
            raise LawError(f"the {self.name} rule is proved for chains, got a tree that branches: take another rule")
        return self.decide(draft, p, dice)


@dataclass(frozen=True, eq=False)
class Site:
    """One node of the tree, where the next token is decided.

    p [V] and q [V]: target and draft after this node (q is None at a leaf and for CHOSEN drafts); tokens: its children
    in draw order; position: absolute index of the token to be decided.
    """

    p: Tensor
    q: Tensor | None
    tokens: tuple[int, ...] = ()
    position: int = 0


def descend(draft: Draft, p: Distributions, dice: Dice, choose: Callable[[Site, Dice], int]) -> Verdict:
    """Walk down from the root: let `choose` decide the next token, follow it as long as it was drafted."""
    tree, node = draft.tree, 0
    path: list[int] = []
    tokens: list[int] = []
    while True:
        children = tree.children[node]
        drafted = tuple(tree.tokens[child] for child in children)
        q = drawn_from(draft, node) if children and draft.q is not None else None
        tokens.append(choose(Site(p[node], q, drafted, p.position + tree.depth[node]), dice))
        if tokens[-1] not in drafted:
            return Verdict(tuple(path), tuple(tokens))
        node = children[drafted.index(tokens[-1])]
        path.append(node)


def follow(draft: Draft, p: Distributions) -> Verdict | None:
    """The verdict where only one token can follow every node on the way: no lossless rule emits another.

    None where a node may be followed by several. Raises `LawError` for a drafted token on the way that has q = 0.
    """
    tree, node = draft.tree, 0
    path: list[int] = []
    tokens: list[int] = []
    while (token := p.only(node)) is not None:
        tokens.append(token)
        children = tree.children[node]
        if children and draft.q is not None:
            q = drawn_from(draft, node)
            for child in children:
                drafted_probability(q, tree.tokens[child])
        known = next((child for child in children if tree.tokens[child] == token), None)
        if known is None:
            return Verdict(tuple(path), tuple(tokens))
        node = known
        path.append(node)
    return None


def drawn_from(draft: Draft, node: int) -> Tensor:
    """The q [V] from which the first child of `node` was drawn."""
    row = None if draft.q is None else draft.q[node]
    if row is None:
        raise LawError(
            f"node {node} of a {draft.law} draft has no q: hand over the q that its children were drawn from"
        )
    return row


def drafted_probability(q: Tensor, token: int) -> float:
    """q(token) of a token that was drawn from q [V]. Raises `LawError` if that is impossible."""
    probability = float(q[token])
    if not probability > 0.0:
        raise LawError(f"token {token} was drafted, yet its q is {probability}: hand over the q that it was drawn from")
    return probability


def surplus(p: Tensor, q: Tensor, *, ratio: float = 1.0) -> tuple[Tensor, float]:
    """[p - ratio q]+ and its mass, neither normalised; p [V], q [V].

    ratio: finite, at most about 1e300. The mass is summed in float64: at V = 150,000 a float32 sum of a small surplus
    is all rounding.
    """
    if ratio > _LARGEST_RATIO:
        p, q = p.double(), q.double()
    left = torch.sub(p, q, alpha=ratio).clamp_(min=0.0)
    return left, float(left.sum(dtype=torch.float64))


def residual(p: Tensor, q: Tensor, *, ratio: float = 1.0) -> tuple[Tensor, float]:
    """What a rejected draft leaves to draw from: the surplus and its mass; p [V] itself where there is none.

    There is none only if rejection was impossible. In floating point it may happen all the same, and then p is as good
    as exact.
    """
    left, mass = surplus(p, q, ratio=ratio)
    return (left, mass) if mass > 0.0 else (p, float(p.sum(dtype=torch.float64)))


def without(weights: Tensor, tokens: Sequence[int]) -> tuple[Tensor, float]:
    """Weights [V] with these tokens at 0, and the mass that is left."""
    left = weights.index_fill(0, torch.tensor(tokens, dtype=torch.long, device=weights.device), 0.0)
    return left, float(left.sum(dtype=torch.float64))


def remaining(q: Tensor, tokens: Sequence[int]) -> tuple[Tensor, float]:
    """What the next sibling is drawn from: q [V] with these tokens at 0, not normalised, and its mass.

    However little the mass is, it is a distribution like any other. At low temperatures it is often next to nothing.
    """
    left, mass = without(q, tokens)
    if 0.0 < mass < _LEAST_MASS:
        return left.double() / mass, 1.0
    return left, mass
