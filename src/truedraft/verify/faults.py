"""The parts that `mutants` are made of: wrong rules and wrong drafts, written for tiny vocabularies and few nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from truedraft.core import Dice, Distributions, Draft, Law, Tree, Verdict
from truedraft.verify.acceptance import Acceptance, Site, descend, drawn_from, surplus
from truedraft.verify.enumeration import Drafting, Table, Text, grow

__all__ = [
    "drop_unlikely",
    "flatter",
    "keep_likelier",
    "keep_likelier_path",
    "prune",
    "reported",
    "residual_at_token",
    "same_quantile",
    "wrong_block",
    "wrong_recursion",
    "wrong_rejection",
    "wrong_traversal",
]

# ── wrong rules ───────────────────────────────────────────────────────────────────────────────────────────────────

_Choose = Callable[[Site, Dice], int]


def _node_rule(choose: _Choose) -> Acceptance:
    return Acceptance("mutant", lambda draft, p, dice: descend(draft, p, dice, choose), frozenset(Law))


def wrong_rejection(leftover: Callable[[Tensor, Tensor, int], Tensor]) -> Acceptance:
    """Single-draft rejection that draws the correction from `leftover(p, q, token)`."""

    def choose(site: Site, dice: Dice) -> int:
        if site.q is None:
            return dice.categorical(site.p)
        drafted = site.tokens[0]
        if dice.coin(float(site.p[drafted] / site.q[drafted])):
            return drafted
        return dice.categorical(leftover(site.p, site.q, drafted))

    return _node_rule(choose)


def residual_at_token(p: Tensor, q: Tensor, drafted: int) -> Tensor:
    """p without the drafted token."""
    left = p.clone()
    left[drafted] = 0.0
    return left


def same_quantile(p: Tensor, q: Tensor, drafted: int) -> Tensor:
    """Chances of the correction, if its uniform is the one whose quantile under q was the drafted token."""
    residual = (p - q).clamp(min=0.0)
    upper, borders = q.cumsum(0), (residual / residual.sum()).cumsum(0)
    low, high = upper[drafted] - q[drafted], upper[drafted]
    reached = borders.clamp(low, high) - low
    return torch.diff(reached, prepend=reached.new_zeros(1))


def wrong_recursion(*, replace: bool) -> Acceptance:
    """Recursive rejection that updates q for one law whatever the draft's is."""

    def choose(site: Site, dice: Dice) -> int:
        p, q = site.p, site.q
        for drafted in site.tokens:
            assert q is not None
            if q[drafted] > 0 and dice.coin(float(p[drafted] / q[drafted])):
                return drafted
            left = (p - q).clamp(min=0.0)
            p = left / left.sum() if left.sum() > 0 else p
            if not replace:
                q = q.index_fill(0, torch.tensor([drafted]), 0.0)
                q = q / q.sum() if q.sum() > 0 else q
        return dice.categorical(p)

    return _node_rule(choose)


def wrong_block(*, clipped: bool, shared: bool) -> Acceptance:
    """Block verification with the ratio left unclipped, or with one uniform for all its tests."""

    def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
        kept, chances, weights = 1.0, list[float](), list[Tensor]()
        tokens = draft.tree.tokens[1:]
        for node, drafted in enumerate(tokens):
            q = drawn_from(draft, node)
            left, mass = surplus(p[node] * kept, q)
            below = mass + 1.0 - kept
            chances.append(min(1.0, mass / below) if node and below > 0.0 else 1.0)
            weights.append(left if mass > 0.0 else p[node])
            kept *= float(p[node][drafted] / q[drafted])
            kept = min(1.0, kept) if clipped else kept
        tau = _last_passed([*chances, min(1.0, kept)], dice, shared=shared)
        correction = dice.categorical([*weights, p[len(tokens)]][tau])
        return Verdict(tuple(range(1, tau + 1)), (*tokens[:tau], correction))

    return Acceptance("mutant", verify, frozenset(Law), chains=True)


def _last_passed(chances: list[float], dice: Dice, *, shared: bool) -> int:
    tau, reached = len(chances) - 1, 0.0
    while True:
        # With one uniform for all tests, those that failed so far say that it lies above `reached`.
        chance = max(0.0, (chances[tau] - reached) / (1.0 - reached)) if shared and reached < 1.0 else chances[tau]
        if dice.coin(chance):
            return tau
        reached = max(reached, chances[tau])
        tau -= 1


def wrong_traversal(lower: Callable[[float, float, float], float]) -> Acceptance:
    """Traversal that sets a parent's probability to `lower` of itself, of the surplus S and of the q mass left."""

    def verify(draft: Draft, p: Distributions, dice: Dice) -> Verdict:
        tree, stands = draft.tree, {0: 1.0}
        children = [list(nodes) for nodes in tree.children]
        target = [p[node] for node in range(len(tree))]
        drafted = [drawn_from(draft, node) if nodes else target[node] for node, nodes in enumerate(children)]
        while True:
            node = 0
            while children[node]:
                child, token = children[node][0], tree.tokens[children[node][0]]
                reached = min(1.0, stands[node] * float(target[node][token] / drafted[node][token]))
                stands.setdefault(child, reached)  # a lowered one stays
                node = child
            if node == 0 or dice.coin(stands[node]):
                path = tree.path(node)
                return Verdict(path, (*(tree.tokens[step] for step in path), dice.categorical(target[node])))
            parent, token = tree.parents[node], tree.tokens[node]
            children[parent].remove(node)
            left, mass = surplus(target[parent] * stands[parent], drafted[parent])
            target[parent] = left / mass if mass > 0.0 else target[parent]
            rest = drafted[parent].index_fill(0, torch.tensor([token]), 0.0)
            stands[parent] = lower(stands[parent], mass, float(rest.sum()))
            drafted[parent] = rest / rest.sum() if rest.any() else drafted[parent]

    return Acceptance("mutant", verify, frozenset(Law))


# ── wrong drafts ──────────────────────────────────────────────────────────────────────────────────────────────────


def reported(drafting: Drafting, law: Law, report: Callable[[Tensor], Tensor] = lambda q: q) -> Drafting:
    """The same tree, said to be drawn under another law or from another q."""

    def draft(q: Table, text: Text, dice: Dice) -> Draft:
        tree = drafting(q, text, dice).tree
        paths = [text + tuple(tree.tokens[step] for step in tree.path(node)) for node in range(len(tree))]
        return Draft(tree, law, tuple(report(q(path)) for path in paths))

    return draft


def flatter(q: Tensor) -> Tensor:
    """q at twice its temperature."""
    return q**0.5 / (q**0.5).sum()


def keep_likelier(q: Table, text: Text, dice: Dice) -> Draft:
    """Two draws from q, of which the likelier is kept."""
    row = q(text)
    first, second = dice.categorical(row), dice.categorical(row)
    kept = first if row[first] >= row[second] else second
    return Draft(Tree.chain((text[-1], kept)), Law.SAMPLED, (row, None))


def keep_likelier_path(q: Table, text: Text, dice: Dice) -> Draft:
    """Two chains from q, of which the likelier is kept."""
    drafts = [grow(Law.SAMPLED, (1, 1))(q, text, dice) for _ in range(2)]

    def likelihood(draft: Draft) -> float:
        return float(drawn_from(draft, 0)[draft.tree.tokens[1]] * drawn_from(draft, 1)[draft.tree.tokens[2]])

    return max(drafts, key=likelihood)


def prune(q: Table, text: Text, dice: Dice) -> Draft:
    """A tree of drawn tokens of which only the two likeliest paths' nodes are kept."""
    draft = grow(Law.SAMPLED_WITHOUT_REPLACEMENT, (2, 1))(q, text, dice)
    tree, value = draft.tree, [1.0]
    for node, parent in enumerate(tree.parents[1:], start=1):
        value.append(value[parent] * float(drawn_from(draft, parent)[tree.tokens[node]]))
    kept = sorted(sorted(range(len(tree)), key=lambda node: (-value[node], node))[:3])
    parents = tuple(kept.index(tree.parents[node]) if node else -1 for node in kept)
    pruned = Tree(tuple(tree.tokens[node] for node in kept), parents)
    rows = draft.q or ()
    return replace(draft, tree=pruned, q=tuple(rows[node] for node in kept))


def drop_unlikely(q: Table, text: Text, dice: Dice) -> Draft:
    """A chain that ends before the first token drawn with a probability under 0.4."""
    draft = grow(Law.SAMPLED, (1, 1))(q, text, dice)
    tokens, length = draft.tree.tokens, 1
    while length < len(tokens) and drawn_from(draft, length - 1)[tokens[length]] >= 0.4:
        length += 1
    rows = draft.q or ()
    return Draft(Tree.chain(tokens[:length]), Law.SAMPLED, (*rows[: length - 1], None))
