"""Prompt lookup against plain searches of the text, on texts that grow, shrink and are edited."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.drafters.helpers import assert_within, make, words
from truedraft.core import Drafter, Law, Shape, Verdict
from truedraft.decode import Decoder
from truedraft.drafters import ngram
from truedraft.drafters.ngram import Match, NgramDrafter, NgramIndex
from truedraft.drafters.pass_cost import FREE, PassCost
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import Language, TabularTarget, random_language
from truedraft.verify import target_only

LONGEST = 4
texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)
shapes = st.one_of(
    st.integers(0, 8).map(Shape.chain),
    st.builds(Shape, st.integers(1, 5), st.integers(1, 3), st.integers(1, 12)),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).map(lambda branching: Shape.tree(*branching)),
)


# ── plain twins ───────────────────────────────────────────────────────────────────────────────────────────────────


def agreement(tokens: list[int], end: int) -> int:
    """How many tokens before `end` equal the last ones."""
    length = 0
    while length < end and tokens[end - 1 - length] == tokens[len(tokens) - 1 - length]:
        length += 1
    return length


def search(tokens: list[int], shortest: int, limit: int) -> list[tuple[int, int]]:
    """(length, end) of earlier occurrences of the text's end, as the index should report them."""
    lengths = {end: agreement(tokens, end) for end in range(1, len(tokens))}
    recent_first = sorted((end for end in lengths if lengths[end] >= shortest), reverse=True)
    by_class = sorted(recent_first, key=lambda end: -min(lengths[end], LONGEST))
    return sorted(((lengths[end], end) for end in by_class[:limit]), reverse=True)


def chances(tokens: list[int], places: list[tuple[int, int]], depth: int) -> dict[tuple[int, ...], float]:
    """Every continuation up to `depth`, with its chance as the module's docstring has it."""
    found: dict[tuple[int, ...], float] = {}

    def walk(word: tuple[int, ...], chance: float, agreeing: list[tuple[int, int]]) -> None:
        groups: dict[int, list[tuple[int, int]]] = {}
        for length, end in agreeing:
            text = tokens + list(word)  # a continuation that meets the text's end goes on in itself
            groups.setdefault(text[end + len(word)], []).append((length, end))
        left = 1.0
        for token, group in groups.items():
            length = group[0][0] + len(word)
            share = left * (length - 0.6) / (length + 0.6)
            left -= share
            found[(*word, token)] = chance * share
            if len(word) + 1 < depth:
                walk((*word, token), chance * share, group)

    walk((), 1.0, places)
    return found


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(texts, st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=5), st.integers(1, 4), st.integers(1, 50))
def test_the_index_finds_what_a_search_finds_while_the_text_grows(start, growth, shortest, limit):
    index, text = NgramIndex(LONGEST), list(start)
    for more in [[], *growth]:
        text += more
        index.follow(text)
        assert index.matches(shortest, limit) == search(text, shortest, limit)


@given(st.lists(texts, min_size=2, max_size=5))
def test_an_edited_text_is_indexed_afresh(versions):
    index = NgramIndex(LONGEST)
    for text in versions:
        index.follow(text)
        assert index.tokens == text
        assert index.matches(1, 50) == search(text, 1, 50)


def test_an_edit_in_the_middle_of_a_text_of_the_same_length_is_seen():
    index = NgramIndex(LONGEST)
    index.follow([1, 2, 9, 5, 5, 1, 2])
    assert index.matches(2, 8) == [Match(2, 2)]
    index.follow([7, 7, 9, 1, 2, 1, 2])
    assert index.matches(2, 8) == [Match(2, 5)]


def test_the_index_keeps_its_own_copy():
    index, text = NgramIndex(LONGEST), [1, 2, 3]
    index.follow(text)
    text[0] = 9
    assert index.tokens == [1, 2, 3]


def test_a_continuation_that_meets_the_end_repeats_itself():
    index = NgramIndex(LONGEST)
    index.follow([7, 1, 2, 3, 1, 2, 3])
    best = index.matches(1, 8)[0]
    assert best == Match(3, 4)
    assert [index.after(best, depth) for depth in range(7)] == [1, 2, 3, 1, 2, 3, 1]


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(texts, st.integers(1, 6), st.integers(1, 20), st.sampled_from([0.0, 0.05, 0.15, 0.4]))
def test_a_wide_tree_holds_the_likeliest_continuations(text, depth, nodes, floor):
    session, shape = make(text), Shape(depth, width=3, nodes=nodes)
    draft = NgramDrafter(matches=6, floor=floor, passes=FREE).propose([session], [shape])[0]
    every = chances(text, search(text, 1, 6), depth)
    likely = sorted((chance for chance in every.values() if chance >= floor), reverse=True)[:nodes]
    assert len(words(draft)) == len(draft)
    assert sorted((every[word] for word in words(draft)), reverse=True) == pytest.approx(likely)


@given(texts, shapes, st.integers(1, 3))
def test_a_draft_keeps_to_its_shape_without_doubles_in_likely_order(text, shape, shortest):
    session = make(text)
    draft = NgramDrafter(shortest=shortest, floor=0.0).propose([session], [shape])[0]
    assert draft.law is Law.CHOSEN
    assert_within(draft, session, shape)
    every = chances(text, search(text, shortest, 8), max(shape.depth, 1))
    for node, children in enumerate(draft.tree.children):
        word = tuple(draft.tree.tokens[step] for step in draft.tree.path(node))
        tokens = [draft.tree.tokens[child] for child in children]
        assert len(set(tokens)) == len(tokens)
        likelihood = [every[(*word, token)] for token in tokens]
        assert likelihood == sorted(likelihood, reverse=True)
    if draft.tree.is_chain and shape.width == 1 and (places := search(text, shortest, 8)):
        assert len(draft) == min(shape.depth, shape.nodes)
        assert draft.tree.tokens[1:2] == tuple(text[places[0][1] : places[0][1] + 1]) * bool(shape.depth)


def test_nothing_matches_nothing_is_drafted():
    assert len(NgramDrafter().propose([make(range(50))], [Shape.chain(5)])[0]) == 0
    assert len(NgramDrafter(shortest=3).propose([make([1, 2, 3, 9, 2, 3])], [Shape.chain(5)])[0]) == 0
    assert len(NgramDrafter().propose([make([5])], [Shape.tree(3, 3)])[0]) == 0
    assert len(NgramDrafter().propose([make([5, 5, 5])], [Shape(0)])[0]) == 0


def test_where_tokens_cost_more_fewer_are_drafted():
    """Also within one draft: the cheap ones are taken, those past the bend have to be worth more."""
    text, sizes = [*range(6), 7, 8, 9, *range(6)], []
    for passes in (FREE, PassCost(((1, 0.0), (5, 0.6))), PassCost.even(0.6)):
        sizes.append(len(NgramDrafter(passes=passes).propose([make(text)], [Shape.chain(8)])[0]))
    assert sizes == [8, 4, 2]


def test_long_matches_earn_long_drafts():
    drafter, noise = NgramDrafter(), list(range(100, 140))
    lengths = []
    for known in (1, 2, 4, 8):
        session = make([*range(10 - known, 10), *noise, *range(200, 210), *range(10 - known, 10)])
        lengths.append(len(drafter.propose([session], [Shape.chain(30)])[0]))
    assert lengths[0] <= 5
    assert lengths == sorted(set(lengths))
    assert lengths[-1] > 12


def test_places_that_disagree_become_siblings():
    text = [1, 2, 3, 50, 51, 9, 1, 2, 3, 60, 61, 8, 1, 2, 3]
    drafter = NgramDrafter(floor=0.05)
    tree = drafter.propose([make(text)], [Shape(2, width=2, nodes=4)])[0]
    assert words(tree) == {(60,), (60, 61), (50,), (50, 51)}
    assert tree.tree.tokens[1] == 60  # the most recent place first
    assert words(drafter.propose([make(text)], [Shape.chain(2)])[0]) == {(60,), (60, 61)}
    assert words(drafter.propose([make(text)], [Shape.tree(2, 1)])[0]) == {(60,), (60, 61), (50,), (50, 51)}


def test_the_longest_match_speaks_before_the_most_recent():
    text = [1, 2, 3, 4, 50, 0, 4, 60, 0, 1, 2, 3, 4]
    assert words(NgramDrafter().propose([make(text)], [Shape.chain(1)])[0]) == {(50,)}


def test_a_history_that_was_cut_is_not_drafted_from():
    drafter, session = NgramDrafter(), make([1, 2, 3, 4, 1, 2, 77, 1, 2])
    assert words(drafter.propose([session], [Shape.chain(1)])[0]) == {(77,)}
    del session.tokens[3:]
    session.tokens += [5, 6, 1, 2]
    assert words(drafter.propose([session], [Shape.chain(1)])[0]) == {(3,)}
    session.tokens[:] = [8, 9]
    assert len(drafter.propose([session], [Shape.chain(1)])[0]) == 0


def test_sessions_share_nothing_and_keep_their_order():
    drafter = NgramDrafter()
    one, other, third = make([1, 2, 1]), make([1, 5, 1]), make([1, 7])
    drafts = drafter.propose([one, other, third], [Shape.chain(1)] * 3)
    assert [words(draft) for draft in drafts] == [{(2,)}, {(5,)}, set()]
    drafts = drafter.propose([third, one], [Shape.chain(1)] * 2)
    assert [words(draft) for draft in drafts] == [set(), {(2,)}]


def test_an_index_is_made_once_and_released(monkeypatch):
    alive: weakref.WeakSet[NgramIndex] = weakref.WeakSet()

    def recorded(longest: int) -> NgramIndex:
        index = NgramIndex(longest)
        alive.add(index)
        return index

    monkeypatch.setattr(ngram, "NgramIndex", recorded)
    drafter, session = NgramDrafter(), make([1, 2, 1])
    drafter.release(session)
    drafter.propose([session], [Shape.chain(1)])
    first = set(alive)
    drafter.observe([session], [Verdict((), (2,))], [])
    drafter.propose([session], [Shape.chain(1)])
    assert set(alive) == first and len(first) == 1
    drafter.release(session)
    gone = weakref.ref(session)
    del session, first
    gc.collect()
    assert gone() is None and not alive


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"shortest": 0}, "n-grams"),
        ({"shortest": 3, "longest": 2}, "n-grams"),
        ({"matches": 0}, "matches"),
        ({"floor": 1.0}, "floor"),
        ({"floor": -0.1}, "floor"),
    ],
)
def test_parameters_are_checked(wrong, name):
    with pytest.raises(ParameterError, match=name):
        NgramDrafter(**wrong)


# ── in the round ──────────────────────────────────────────────────────────────────────────────────────────────────


def repeating(vocabulary: int, period: int) -> Language:
    """A language that mostly repeats what stood `period` tokens before, and now and then does not."""
    surprise = random_language(vocabulary, order=3, seed=4)

    def logits(context: tuple[int, ...]) -> torch.Tensor:
        row = surprise(context)
        if len(context) >= period:
            row = row + 1.5 * torch.eye(vocabulary, dtype=row.dtype)[context[-period]]
        return row

    return logits


def generate(language, prompts, shape, batch=1, **parameters):
    drafter = NgramDrafter(floor=0.0)
    assert isinstance(drafter, Drafter)
    decoder = Decoder(TabularTarget(language), drafter, target_only.RULE, Fixed(shape))
    return Model(decoder, Facts(vocabulary=8), batch=batch).generate(prompts, **parameters)


@pytest.mark.parametrize("shape", [*map(Shape.chain, range(1, 6)), Shape.tree(2, 2, 1), Shape(6, 3, 10)], ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_text_is_plain_decodings(shape, batch):
    language = repeating(8, 3)
    prompts = [[2] * 6, [1, 2, 3, 1, 2, 3], [5], [7, 6, 5, 4, 7, 6]]
    plain = generate(language, prompts, Shape(0), max_new_tokens=40)
    drafted = generate(language, prompts, shape, batch=batch, max_new_tokens=40)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.statistics.accepted for result in drafted) > 10
    assert sum(result.statistics.drafted - result.statistics.accepted for result in drafted) > 10


@pytest.mark.parametrize("room", range(1, 8))
def test_the_limit_is_reached_exactly(room):
    language = repeating(8, 1)
    result = generate(language, [3, 3, 3, 3], Shape.chain(6), max_new_tokens=room)
    assert len(result.token_ids) == room
    assert result.finish_reason == "length"
