"""Best-first growth against all trees there are, on sources whose chances are known."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drafters.helpers import assert_within, make, words
from truedraft.core import Law, Shape
from truedraft.decode import Decoder
from truedraft.drafters.bets import Bet, best_first, pays
from truedraft.drafters.count_table import CountTable
from truedraft.drafters.merge import MergeDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.pass_cost import NO_COST, PassCost
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.drafters.suffix import SuffixDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import TabularTarget, random_language
from truedraft.verify import target_only

ROOT = 9
COSTS = st.sampled_from(
    [*(PassCost.even(price).among(1) for price in (0.01, 0.05, 0.1, 0.3)), PassCost(((1, 0.01), (5, 0.1))).among(2)]
)
"""What nodes cost: as much each, or more from some number on."""
SHARES = st.lists(st.integers(0, 20), min_size=1, max_size=3).map(lambda parts: [part / 60 for part in parts])


class Table:
    """A source that knows the shares of the next tokens by the word drafted so far."""

    def __init__(self, rows):
        self.rows = rows
        self.asked = []

    def guesses(self, state, least):
        self.asked.append((state, least))
        found = [(share, token) for token, share in enumerate(self.rows(state)) if share > 0]
        return sorted(found, reverse=True)

    def follow(self, state, token):
        return (*state, token)


def every_chance(rows, depth):
    """Chance of every word of at most `depth` tokens."""
    found, level = {}, {(): 1.0}
    for _ in range(depth):
        level = {
            (*word, token): chance * share
            for word, chance in level.items()
            for token, share in enumerate(rows(word))
            if share > 0
        }
        found |= level
    return found


def table_of(seeds):
    """Another list of shares after every word."""
    return lambda word: seeds[hash(word) % len(seeds)]


@given(st.lists(SHARES, min_size=1, max_size=6), st.integers(0, 4), st.integers(1, 12))
def test_the_tree_holds_the_likeliest_words(seeds, depth, nodes):
    rows = table_of(seeds)
    bet = best_first(ROOT, (), Table(rows), Shape(depth, width=3, nodes=nodes), costs=NO_COST)
    every = every_chance(rows, depth)
    likeliest = sorted(every.values(), reverse=True)[:nodes]
    assert len(words(bet.draft)) == len(bet.draft) == len(likeliest)
    assert sorted((every[word] for word in words(bet.draft)), reverse=True) == pytest.approx(likeliest)
    assert bet.expected == pytest.approx(1 + sum(likeliest))
    assert bet.draft.law is Law.CHOSEN
    for node, chance in enumerate(bet.chances[1:], start=1):
        path = bet.draft.tree.path(node)
        assert chance == pytest.approx(every[tuple(bet.draft.tree.tokens[step] for step in path)])


@given(st.lists(SHARES, min_size=1, max_size=6), COSTS)
def test_no_other_number_of_nodes_yields_more(seeds, costs):
    rows = table_of(seeds)
    bet = best_first(ROOT, (), Table(rows), Shape(3, width=3, nodes=50), costs=costs)
    chances = sorted(every_chance(rows, 3).values(), reverse=True)
    totals = itertools.accumulate([1.0, *chances])
    best = max(total / costs[nodes] for nodes, total in enumerate(totals))
    assert bet.yields(costs) == pytest.approx(best)


@given(
    st.lists(SHARES, min_size=1, max_size=4),
    st.one_of(
        st.integers(0, 5).map(Shape.chain),
        st.builds(Shape, st.integers(0, 4), st.integers(1, 3), st.integers(0, 9)),
        st.lists(st.integers(1, 3), min_size=1, max_size=3).map(lambda branching: Shape.tree(*branching)),
    ),
)
def test_every_shape_is_kept(seeds, shape):
    bet = best_first(ROOT, (), Table(table_of(seeds)), shape, costs=NO_COST)
    assert_within(bet.draft, make([ROOT]), shape)
    assert len(bet.chances) == len(bet.draft.tree)


def test_likelier_siblings_come_first_and_equal_ones_in_the_order_given():
    source = Table(lambda word: [0.2, 0.5, 0.2])
    source.guesses = lambda state, least: [(0.5, 1), (0.2, 2), (0.2, 0)]
    bet = best_first(ROOT, (), source, Shape(1, width=3, nodes=3), costs=NO_COST)
    assert bet.draft.tree.tokens == (ROOT, 1, 2, 0)


def test_nothing_is_asked_that_the_shape_or_the_budget_forbids():
    for shape, asked in ((Shape(0), 0), (Shape(1, 2, 2), 1), (Shape(5, 1, 2), 2), (Shape(3, 2, 0), 0)):
        source = Table(lambda word: [0.6, 0.3])
        best_first(ROOT, (), source, shape, costs=NO_COST)
        assert len(source.asked) == asked, shape


def test_sources_hear_how_likely_a_guess_must_be_to_pay():
    source = Table(lambda word: [0.5])
    best_first(ROOT, (), source, Shape.chain(3), costs=PassCost(((1, 0.1), (2, 0.15))).among(1))
    assert [least for _, least in source.asked] == pytest.approx([0.1, 0.3, 0.6])


def test_what_pays_is_what_raises_tokens_over_cost():
    prices = [PassCost.even(price).among(1) for price in (0.0, 0.05, 0.3)]
    for chance, expected, nodes, costs in itertools.product((0.01, 0.1, 0.5), (1.0, 2.5), (0, 7), prices):
        raised = (expected + chance) / costs[nodes + 1] > expected / costs[nodes]
        assert pays(chance, expected, nodes, costs) == raised


def test_an_empty_bet_expects_what_plain_decoding_emits():
    bet = Bet.none(ROOT)
    costs = PassCost.even(0.1).among(1)
    assert (len(bet.draft), bet.expected, bet.yields(costs)) == (0, 1.0, 1.0)
    assert bet.yields(costs, effort=0.25) == pytest.approx(0.8)


MAKERS = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "recycle": lambda: RecycleDrafter(CountTable(1 << 10, 1000)),
    "merge": lambda: MergeDrafter([SuffixDrafter(), RecycleDrafter(CountTable(1 << 10, 1000))]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_seeded_text_does_not_depend_on_how_much_the_batch_lets_be_drafted(name):
    """Chosen drafts decide when a text comes, not what it says: one draw a token, whatever was bet."""
    language, prompts = random_language(6, order=2, seed=3), [[n % 6, (n * n) % 6, 1, 2, 1, 2] for n in range(24)]
    texts, drafted = [], []
    for batch in (1, 8):
        decoder = Decoder(TabularTarget(language), MAKERS[name](), target_only.RULE, Fixed(Shape(8, 4, 16)))
        model = Model(decoder, Facts(vocabulary=6), batch=batch)
        each = [{"seed": n} for n in range(24)]
        results = model.generate(prompts, each=each, temperature=0.8, max_new_tokens=30)
        texts.append([result.token_ids for result in results])
        drafted.append(sum(result.statistics.drafted for result in results))
    assert texts[0] == texts[1] and drafted[0] > drafted[1] > 0


@pytest.mark.parametrize("name", MAKERS)
def test_drafts_shrink_as_the_batch_fills_the_pass(name):
    text, shape = [*range(10, 16), 1, 2, 3, *range(20, 26), 1, 2, 3, 30, 1, 2, 3], Shape(8, width=4, nodes=16)
    nodes = []
    for batch in (1, 4, 16, 64):
        sessions = [make(text) for _ in range(batch)]
        drafts = MAKERS[name]().propose(sessions, [shape] * batch)
        assert len({draft.tree for draft in drafts}) == 1
        nodes.append(len(drafts[0]))
    assert nodes == sorted(nodes, reverse=True) and nodes[0] > nodes[-1]
