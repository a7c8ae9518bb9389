"""Merged trees against the union of their parts, in rounds and by enumeration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drafters.helpers import assert_within, make, words
from tests.drafters.toys import repeating
from tests.enumeration import EXACT, PAIRS, gap
from truedraft.core import Draft, Drafter, Law, Shape, Tree
from truedraft.decode import Decoder
from truedraft.drafters.bets import Bet, Bettor
from truedraft.drafters.count_table import CountTable
from truedraft.drafters.merge import MergeDrafter, merged
from truedraft.drafters.pass_cost import FREE, NO_COST, PassCost
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.drafters.suffix import SuffixDrafter
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import TabularTarget
from truedraft.verify import target_only

ROOT = 9
ROOM = Shape(9, width=9, nodes=99)


@st.composite
def bets(draw):
    """A tree without equal siblings, with chances that fall along every path."""
    tokens, parents, chances = [ROOT], [-1], [1.0]
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.integers(0, len(tokens) - 1))
        token = draw(st.integers(0, 3))
        if token not in [t for t, p in zip(tokens, parents, strict=True) if p == parent]:
            tokens.append(token)
            parents.append(parent)
            chances.append(chances[parent] * draw(st.integers(1, 9)) / 10)
    return Bet(Draft(Tree(tuple(tokens), tuple(parents))), tuple(chances))


def by_word(bet):
    """The chance of every drafted word."""
    tree = bet.draft.tree
    return {
        tuple(tree.tokens[step] for step in tree.path(node)): bet.chances[node] for node in range(1, len(tree.tokens))
    }


def union(parts):
    """Every word of any part, with its best chance."""
    found = {}
    for part in parts:
        for word, chance in by_word(part).items():
            found[word] = max(chance, found.get(word, 0.0))
    return found


COSTS = st.sampled_from([PassCost.even(0.02), PassCost.even(0.3), PassCost(((1, 0.02), (4, 0.2)))])


@given(st.lists(bets(), min_size=1, max_size=4))
def test_the_union_of_all_parts_is_drafted_where_nothing_limits_it(parts):
    assert by_word(merged(parts, ROOM, costs=NO_COST)) == union(parts)


@given(st.lists(bets(), min_size=1, max_size=4), st.integers(0, 12))
def test_of_too_many_nodes_the_likeliest_stay(parts, nodes):
    found = merged(parts, Shape(9, width=9, nodes=nodes), costs=NO_COST)
    likeliest = sorted(union(parts).values(), reverse=True)[:nodes]
    assert sorted(by_word(found).values(), reverse=True) == likeliest
    assert found.expected == pytest.approx(1 + sum(likeliest))


@given(st.lists(bets(), min_size=1, max_size=4), COSTS)
def test_no_other_number_of_nodes_yields_more(parts, passes):
    costs = passes.among(1)
    found = merged(parts, ROOM, costs=costs)
    chances = sorted(union(parts).values(), reverse=True)
    best = max((1 + sum(chances[:n])) / costs[n] for n in range(len(chances) + 1))
    assert found.yields(costs) == pytest.approx(best)


@given(
    st.lists(bets(), min_size=1, max_size=3),
    st.one_of(
        st.builds(Shape, st.integers(1, 5), st.integers(1, 3), st.integers(1, 12)),
        st.lists(st.integers(1, 3), min_size=1, max_size=3).map(lambda branching: Shape.tree(*branching)),
    ),
)
def test_every_shape_is_kept(parts, shape):
    found = merged(parts, shape, costs=NO_COST)
    assert found.draft.law is Law.CHOSEN
    assert_within(found.draft, make([ROOT]), shape)
    assert len(words(found.draft)) == len(found.draft) == len(found.chances) - 1


# ── in the round ──────────────────────────────────────────────────────────────────────────────────────────────────


def members():
    return [SuffixDrafter(passes=FREE, share=True), RecycleDrafter(CountTable(1 << 10, 8), passes=FREE, share=True)]


def generate(bettors, prompts, shape, batch=1, **parameters):
    drafter = MergeDrafter(bettors, passes=FREE)
    assert isinstance(drafter, Drafter) and isinstance(drafter, Bettor)
    decoder = Decoder(TabularTarget(repeating(8, 3)), drafter, target_only.RULE, Fixed(shape))
    return Model(decoder, Facts(vocabulary=8), batch=batch).generate(prompts, **parameters)


@pytest.mark.parametrize("shape", [Shape.chain(1), Shape.chain(4), Shape.tree(2, 2, 1), Shape(6, 3, 10)], ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_text_is_plain_decodings(shape, batch):
    prompts = [[2] * 6, [1, 2, 3, 1, 2, 3], [5], [7, 6, 5, 4, 7, 6]]
    plain = generate(members(), prompts, Shape(0), max_new_tokens=40)
    drafted = generate(members(), prompts, shape, batch=batch, max_new_tokens=40)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.statistics.accepted for result in drafted) > 10
    assert sum(result.statistics.drafted - result.statistics.accepted for result in drafted) > 10


def test_two_draft_better_than_either():
    prompts = [[1, 2, 3, 1, 2, 3], [4, 1, 2], [5, 5, 2], [0, 3, 0, 3], [2, 4, 6, 1]]
    passes = [
        sum(generate(bettors(), prompt, Shape(6, 4, 20), max_new_tokens=200).statistics.rounds for prompt in prompts)
        for bettors in (members, lambda: members()[:1], lambda: members()[1:])
    ]
    assert passes[0] < min(passes[1:])


@pytest.mark.parametrize("pair", ["V=2", "V=3", "zeros in p", "one-hot p"])
def test_the_joint_law_is_the_targets(pair):
    def draft(q, text, dice):
        table = CountTable(64, 4)
        bettors = [SuffixDrafter(passes=FREE), RecycleDrafter(table, passes=FREE)]
        session = make([0, 1, 0, 0, 1, 1, 0, *text])
        return MergeDrafter(bettors, passes=FREE).propose([session], [Shape(2, width=2, nodes=5)])[0]

    assert len(draft(None, (0, 1), None)) > 2
    assert gap(target_only.RULE, draft, PAIRS[pair], length=4, rounds=2) < EXACT


def test_members_are_released_and_told_of_every_round():
    calls = []

    class Member:
        taps = ()

        def bet(self, session, shape, *, batch=1):
            return Bet.none(session.root)

        def observe(self, sessions, verdicts, scores):
            calls.append(("observe", sessions, verdicts, scores))

        def release(self, session):
            calls.append(("release", session))

    drafter, session = MergeDrafter([Member(), Member()]), make([1])
    assert len(drafter.propose([session], [Shape.chain(3)])[0]) == 0
    drafter.observe([session], ["verdict"], ["scores"])
    drafter.release(session)
    assert calls == [("observe", [session], ["verdict"], ["scores"])] * 2 + [("release", session)] * 2


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match="merge"):
        MergeDrafter([])
