"""Growing trees: against the exact toy, against brute force, and, with early stops, by enumeration."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.drafters.helpers import assert_within, make, words
from tests.enumeration import EXACT, PAIRS, gap
from truedraft.core import Draft, Law, Session, Shape
from truedraft.drafters.best_growth import UNPRICED, BestGrowth, Price
from truedraft.drafters.growing import likeliest
from truedraft.drafters.growth import FixedGrowth, Growth, begin, spread
from truedraft.drafters.pass_cost import PassCost
from truedraft.errors import ParameterError
from truedraft.toy import TabularDrafter, random_language
from truedraft.verify import block, greedy_draft, kseq, target_only, token, traversal

V = 6
LANGUAGE = random_language(V, order=3, seed=11, scale=1.5)
DRAWN = [Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT]


def word_of(growth: Growth, node: int) -> tuple[int, ...]:
    return () if node == 0 else (*word_of(growth, growth.parent(node)), growth.token(node))


def full_grown(growth: Growth, text, language=LANGUAGE) -> Draft:
    while growth.frontier:
        growth.grow(torch.stack([language((*text, *word_of(growth, node))) for node in growth.frontier]))
    draft, numbers = growth.finish()
    assert [growth.token(number) for number in numbers] == list(draft.tree.tokens)
    return draft


@pytest.mark.parametrize(
    ("shape", "branching"),
    [
        (Shape.chain(3), (1, 1, 1)),
        (Shape(5, 1, 3), (1, 1, 1)),
        (Shape.tree(2, 3), (2, 3)),
        (Shape(2, 4, 16), (4, 3)),
        (Shape(4, 3, 16), (3, 1, 1, 1)),
        (Shape(3, 2, 2), (1, 1)),
        (Shape(0), ()),
        (Shape(3, 2, 0), ()),
    ],
    ids=str,
)
def test_spread_fills_the_shape_from_the_top(shape, branching):
    assert spread(shape) == branching


@pytest.mark.parametrize(("depth", "width", "nodes"), list(itertools.product(range(4), range(1, 4), range(0, 14, 3))))
def test_spread_stays_within_its_numbers(depth, width, nodes):
    branching = spread(Shape(depth, width, nodes))
    assert len(branching) <= depth and max(branching, default=1) <= width
    assert not branching or Shape.tree(*branching).nodes <= nodes


# ── fixed shapes ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("law", [*DRAWN, Law.CHOSEN])
@pytest.mark.parametrize("shape", [Shape.chain(4), Shape.tree(3, 2, 1), Shape.tree(1, 3)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"top_k": 2}, {"repetition_penalty": 1.7, "top_p": 0.8}], ids=str)
def test_a_fixed_tree_is_the_toys(law, shape, settings):
    text = [1, 4, 2]
    settings = {"vocabulary": V, "temperature": 0.9, **settings}
    grown = full_grown(begin(make(text, **settings), shape, law), text)
    toy = TabularDrafter(LANGUAGE, law).propose([make(text, **settings)], [shape])[0]
    assert grown.tree == toy.tree and grown.law is toy.law
    assert (grown.q is None) == (toy.q is None)
    for mine, theirs in zip(grown.q or (), toy.q or (), strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or torch.equal(mine, theirs)


@pytest.mark.parametrize(("law", "shape"), [(Law.SAMPLED, Shape(0)), (Law.CHOSEN, Shape(3, 2, 0))], ids=str)
def test_where_nothing_may_grow_nothing_is_wanted(law, shape):
    growth = begin(make([1, 2], vocabulary=V), shape, law)
    assert not growth.frontier and len(growth.finish()[0]) == 0


@dataclass
class Plain:
    """A sampler and its branches that change nothing."""

    def branch(self, history):
        return self

    def child(self, token):
        return self

    def distribution(self, logits: Tensor) -> Tensor:
        return logits.softmax(0)


def drafting(law, shape, confidence, growth=begin):
    def draft(q, text, dice):
        session = Session(list(text), Plain(), dice, ending=None)
        return full_grown(growth(session, shape, law, confidence=confidence), text, lambda context: q(context).log())

    return draft


STOPS = [
    (rule.RULE, law, Shape.tree(*branching))
    for rule, laws in {
        token: DRAWN[:2],
        block: DRAWN[:2],
        traversal: DRAWN[:2],
        greedy_draft: [Law.GREEDY_DRAFT],
        kseq: [Law.SAMPLED],
        target_only: [*DRAWN, Law.CHOSEN],
    }.items()
    for law in laws
    for branching in ([(1, 1, 1)] if rule is block else [(1, 1, 1), (2, 1), (2, 2)])
]


@pytest.mark.parametrize(("rule", "law", "shape"), STOPS, ids=lambda value: getattr(value, "name", None) or str(value))
def test_stopping_after_an_unsure_token_is_lossless(rule, law, shape):
    stopped = drafting(law, shape, confidence=0.35)
    assert gap(rule, stopped, PAIRS["V=3"], length=shape.depth + 1) < EXACT


@dataclass
class Barred(Plain):
    """A sampler that leaves nothing to draw after token 1."""

    last: int = 0

    def child(self, token):
        return Barred(token)

    def distribution(self, logits: Tensor) -> Tensor:
        if self.last == 1:
            raise ParameterError("the sampling parameters forbid every token")
        return logits.softmax(0)


@pytest.mark.parametrize(("rule", "law", "shape"), STOPS, ids=lambda value: getattr(value, "name", None) or str(value))
def test_stopping_where_nothing_is_allowed_is_lossless(rule, law, shape):
    stopped = []

    def draft(q, text, dice):
        session = Session(list(text), Barred(), dice, ending=None)
        made = full_grown(begin(session, shape, law), text, lambda context: q(context).log())
        for node, children in enumerate(made.tree.children):
            if node and made.tree.tokens[node] == 1:
                assert not children
                stopped.append(node)
        return made

    assert gap(rule, draft, PAIRS["V=3"], length=shape.depth + 1) < EXACT
    assert stopped


class Dropping(FixedGrowth):
    """The fault that looks alike: the unsure token itself is taken back."""

    def finish(self):
        draft, numbers = super().finish()
        while len(draft) and draft.q[draft.tree.parents[-1]][draft.tree.tokens[-1]] < 0.35:
            tree = type(draft.tree)(draft.tree.tokens[:-1], draft.tree.parents[:-1])
            draft = Draft(tree, draft.law, draft.q[:-1])
        return draft, numbers[: len(draft.tree)]


def test_dropping_the_unsure_token_is_not_and_is_caught():
    dropping = drafting(Law.SAMPLED, Shape.chain(2), 0.35, growth=Dropping)
    assert gap(token.RULE, dropping, PAIRS["V=3"], length=3) > 0.01


def test_an_unsure_node_is_kept_without_children():
    text, language = [0], lambda context: torch.tensor([3.0, 2.9, -3.0] if context[-1] == 0 else [0.0, 0.1, 0.0])
    session = make(text, vocabulary=3)
    draft = full_grown(begin(session, Shape.chain(5), Law.CHOSEN, confidence=0.45), text, language)
    assert draft.tree.tokens == (0, 0, 0, 0, 0, 0)
    draft = full_grown(begin(session, Shape.tree(2, 1, 1), Law.CHOSEN, confidence=0.48), text, language)
    assert words(draft) == {(0,), (0, 0), (0, 0, 0), (1,)}
    draft = full_grown(begin(session, Shape(3, 2, 20), Law.CHOSEN, confidence=0.48), text, language)
    assert words(draft) == {(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 1)}
    draft = full_grown(begin(session, Shape.chain(3), Law.CHOSEN, confidence=0.9), text, language)
    assert words(draft) == {(0,)}


# ── the likeliest tree ────────────────────────────────────────────────────────────────────────────────────────────


def every_chance(text, shape: Shape, **settings) -> dict[tuple[int, ...], float]:
    """All words of the `width` likeliest tokens a place, with their probabilities."""
    chances: dict[tuple[int, ...], float] = {}

    def walk(word, chance, branch):
        row = branch.distribution(LANGUAGE((*text, *word)))
        top = row.topk(min(shape.width, int(row.count_nonzero()))).indices.tolist()
        for token_ in top:
            chances[(*word, token_)] = chance * float(row[token_])
            if len(word) + 1 < shape.depth:
                walk((*word, token_), chance * float(row[token_]), branch.child(token_))

    walk((), 1.0, make(text, **settings).sampler.branch(list(text)))
    return chances


@pytest.mark.parametrize(
    "shape", [Shape(3, 3, 8), Shape(4, 2, 5), Shape(4, 4, 30), Shape(2, 5, 1), Shape(1, 3, 2)], ids=str
)
@pytest.mark.parametrize(
    "settings", [{"temperature": 1.0}, {"temperature": 0.7, "repetition_penalty": 2.0, "top_k": 3}], ids=str
)
@pytest.mark.parametrize("text", [[1, 4, 2], [3], [0, 0, 5, 2]], ids=str)
def test_the_likeliest_tree_is_the_one_brute_force_finds(shape, settings, text):
    session = make(text, vocabulary=V, **settings)
    growth = begin(session, shape, Law.CHOSEN)
    assert isinstance(growth, BestGrowth)
    draft = full_grown(growth, text)
    assert_within(draft, session, shape)
    chances = every_chance(text, shape, vocabulary=V, **settings)
    best = sorted(chances.values(), reverse=True)[: shape.nodes]
    assert len(words(draft)) == len(draft)
    assert sorted((chances[word] for word in words(draft)), reverse=True) == pytest.approx(best)
    for node, children in enumerate(draft.tree.children):
        word = tuple(draft.tree.tokens[step] for step in draft.tree.path(node))
        likelihood = [chances[(*word, draft.tree.tokens[child])] for child in children]
        assert likelihood == sorted(likelihood, reverse=True)


@pytest.mark.parametrize("settings", [{"temperature": 1.0}, {}, {"repetition_penalty": 2.0}], ids=str)
@pytest.mark.parametrize("text", [[1, 4, 2], [3], [0, 0, 5, 2], [2, 2]], ids=str)
def test_the_tree_of_fewer_nodes_is_the_beginning_of_that_of_more(text, settings):
    """Whoever keeps accounts of how much to bet goes by the numbers of the nodes."""
    trees = []
    for nodes in (1, 2, 4, 8, 14):
        growth = begin(make(text, vocabulary=V, **settings), Shape(5, 3, nodes), Law.CHOSEN)
        draft = full_grown(growth, text)
        chances = growth.chances(growth.finish()[1])
        assert list(chances) == sorted(chances, reverse=True) and chances[0] == 1
        trees.append(draft.tree)
    for small, large in itertools.pairwise(trees):
        assert len(small) < len(large)
        assert (small.tokens, small.parents) == (large.tokens[: len(small)], large.parents[: len(small)])
    assert list(trees[-1].depth) != sorted(trees[-1].depth)


def test_only_nodes_that_can_matter_are_scored():
    scored = []
    text, session = [1, 4, 2], make([1, 4, 2], vocabulary=V, temperature=1.0)
    growth = begin(session, Shape(6, 4, 5), Law.CHOSEN)
    while growth.frontier:
        scored.append(len(growth.frontier))
        growth.grow(torch.stack([LANGUAGE((*text, *word_of(growth, node))) for node in growth.frontier]))
    assert max(scored) <= 5 and sum(scored) < 6 * 5


@pytest.mark.parametrize("shape", [Shape(3, 3, 8), Shape.tree(3, 2)], ids=str)
def test_a_greedy_session_gets_second_choices_too(shape):
    text = [1, 4, 2]
    draft = full_grown(begin(make(text, vocabulary=V), shape, Law.CHOSEN), text)
    first = draft.tree.children[0]
    plain = LANGUAGE(tuple(text)).topk(len(first)).indices.tolist()
    assert len(first) > 1 and [draft.tree.tokens[child] for child in first] == plain


@pytest.mark.parametrize("shape", [Shape.chain(1), Shape(1, 3, 3), Shape.tree(3)], ids=str)
def test_the_first_choice_of_a_greedy_session_is_the_penalised_one(shape):
    text = [1, 4, 2]
    likeliest = int(LANGUAGE(tuple(text)).argmax())
    settings = {"vocabulary": V, "logit_bias": {likeliest: -50.0}}
    row = LANGUAGE(tuple(text)).clone()
    row[likeliest] = -torch.inf
    draft = full_grown(begin(make(text, **settings), shape, Law.CHOSEN), text)
    assert draft.tree.tokens[1] == int(row.argmax()) != likeliest


@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(3, 2), Shape(3, 3, 7), Shape(4, 9, 20)], ids=str)
@pytest.mark.parametrize("confidence", [0.0, 0.3])
def test_without_the_sampler_a_tree_is_that_of_plain_sampling(shape, confidence):
    """Ids in another order, logits in that order: the same tree as at temperature 1 with all logits in place."""
    ids = torch.tensor([4, 0, 5, 1, 3, 2])
    session = make([1, 2], vocabulary=V, temperature=1)
    plain = full_grown(begin(session, shape, Law.CHOSEN, confidence=confidence), [1, 2])
    moved = begin(session, shape, Law.CHOSEN, confidence=confidence, ids=ids)
    assert full_grown(moved, [1, 2], lambda text: LANGUAGE(text)[ids]).tree == plain.tree


def test_a_row_that_is_no_numbers_has_no_likeliest_tokens():
    rows = torch.tensor([[0.0, torch.nan, 1.0], [0.0, 2.0, 1.0], [-torch.inf] * 3, [torch.inf, 0.0, 1.0]])
    found = likeliest(rows, torch.tensor([7, 8, 9]), 2)
    assert [tokens for tokens, _ in found] == [[], [8, 9], [], []]


def test_only_chosen_tokens_go_without_the_sampler():
    with pytest.raises(ParameterError, match="sampled"):
        begin(make([1], vocabulary=V), Shape.chain(2), Law.SAMPLED, ids=torch.arange(V))


# ── what pays ─────────────────────────────────────────────────────────────────────────────────────────────────────


BENT = PassCost(((1, 0.01), (4, 0.2))).among(2)
"""Cheap nodes, then dear ones."""


@pytest.mark.parametrize("costs", [*(PassCost.even(node).among(1) for node in (0.0, 0.02, 0.1, 0.3)), BENT])
@pytest.mark.parametrize("text", [[1, 2], [0, 5], [3, 3]])
def test_a_node_that_does_not_pay_is_left_out(costs, text):
    """Expected tokens over cost is the largest that any tree of the likeliest nodes has."""
    shape = Shape(4, 4, 30)
    session, price = make(text, vocabulary=V, temperature=1), Price(costs)
    draft = full_grown(begin(session, shape, Law.CHOSEN, price=price), text)
    chances = sorted(every_chance(text, shape, temperature=1).values(), reverse=True)[: shape.nodes]
    yields = [(1 + sum(chances[:count])) / costs[count] for count in range(shape.nodes + 1)]
    assert yields[len(draft)] == pytest.approx(max(yields))
    assert len(draft) < shape.nodes or costs.next(shape.nodes) < 0.1


def test_dearer_levels_make_shallower_trees():
    shape = Shape(6, 3, 30)
    depths = [
        max(
            full_grown(
                begin(make([1, 2], vocabulary=V, temperature=1), shape, Law.CHOSEN, price=price), [1, 2]
            ).tree.depth
        )
        for price in (UNPRICED, *(Price.among(1, PassCost.even(0.01), level) for level in (0.05, 0.2, 0.9)))
    ]
    assert depths == [5, 4, 3, 1]


def test_a_certain_drafter_goes_on_and_an_unsure_one_stops():
    sure, unsure = (torch.eye(V)[2] * scale for scale in (20.0, 1.0))
    shape, price = Shape(6, 2, 12), Price.among(1, PassCost.even(0.05), 0.2)
    trees = [
        full_grown(begin(make([1], vocabulary=V), shape, Law.CHOSEN, price=price), [1], lambda text, row=row: row).tree
        for row in (sure, unsure)
    ]
    assert max(trees[0].depth) == 6 and max(trees[1].depth) == 1


def test_a_level_is_the_same_part_of_a_pass_at_any_batch():
    passes = PassCost(((1, 0.0), (8, 0.1)))
    assert {Price.among(batch, passes, 0.3).level for batch in (1, 8, 18)} == {0.3}


def test_a_tree_costs_its_nodes_and_the_levels_that_were_run():
    price = Price.among(1, PassCost.even(0.05), 0.2)
    growth = BestGrowth(make([1, 2, 3], vocabulary=V), Shape(3, 2, 6), price=price)
    for levels in range(1, 4):
        growth.grow(torch.randn(len(growth.frontier), V))
        nodes = len(growth.finish()[0])
        assert growth.cost == pytest.approx(1 + 0.05 * nodes + 0.2 * levels)
        if not growth.frontier:
            break


@pytest.mark.parametrize("level", [-0.1, 1.0, 1.5])
def test_prices_are_checked(level):
    with pytest.raises(ParameterError, match="a level costs"):
        Price(level=level)
