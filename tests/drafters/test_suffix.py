"""Suffix decoding: what it guesses, whose texts it guesses from, and that it changes no text."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.drafters.helpers import assert_within, make, words
from tests.drafters.toys import repeating, serve
from tests.enumeration import EXACT, PAIRS, gap
from truedraft.core import Drafter, Law, Shape, Verdict
from truedraft.decode import Decoder
from truedraft.drafters.bets import Bettor
from truedraft.drafters.pass_cost import FREE, PassCost
from truedraft.drafters.suffix import SuffixDrafter, Trust
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import TabularTarget
from truedraft.verify import target_only

texts = st.lists(st.integers(0, 2), min_size=1, max_size=30)
shapes = st.one_of(
    st.integers(0, 8).map(Shape.chain),
    st.builds(Shape, st.integers(1, 5), st.integers(1, 3), st.integers(1, 12)),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).map(lambda branching: Shape.tree(*branching)),
)


# ── guesses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def endings(text, others):
    """(length, followers) of the text's repeated endings: at most three in itself, and three in other texts."""
    found = []
    for documents, least in (([text], 2), (others, 1)):
        chain, most = [], least - 1
        for n in range(len(text), 0, -1):
            ends = [(doc, i) for doc in documents for i in range(n, len(doc) + 1) if doc[i - n : i] == text[-n:]]
            if len(ends) > most:  # a shorter ending counts if it occurs more often
                chain.append((n, [doc[i] for doc, i in ends if i < len(doc)]))
                most = len(ends)
        found += chain[:3]
    return sorted((each for each in found if each[1]), key=lambda each: -each[0])


def expected_guesses(text, others):
    """The chance of every next token under fresh trust."""
    left, chances = 1.0, {}
    for n, followers in endings(text, others):
        trusted = left * Trust()[n]
        for token in followers:
            chances[token] = chances.get(token, 0.0) + trusted / len(followers)
        left -= trusted
    return chances


@given(texts)
def test_chances_are_trust_times_share_and_the_rest_goes_to_shorter_endings(text):
    bet = SuffixDrafter(passes=FREE).bet(make(text), Shape(1, width=9, nodes=9))
    chances = dict(zip(bet.draft.tree.tokens[1:], bet.chances[1:], strict=True))
    assert chances == pytest.approx(expected_guesses(text, []))


@given(texts, st.lists(texts, min_size=1, max_size=3))
def test_earlier_outputs_have_their_say(text, outputs):
    drafter = SuffixDrafter(passes=FREE, share=True)
    for output in outputs:
        serve(drafter, [7], output)
    bet = drafter.bet(make(text), Shape(1, width=9, nodes=9))
    chances = dict(zip(bet.draft.tree.tokens[1:], bet.chances[1:], strict=True))
    assert chances == pytest.approx(expected_guesses(text, [[7, *output] for output in outputs]))


@given(texts, shapes)
def test_a_draft_keeps_to_its_shape_without_doubles_in_likely_order(text, shape):
    session = make(text)
    bet = SuffixDrafter(passes=FREE).bet(session, shape)
    assert bet.draft.law is Law.CHOSEN
    assert_within(bet.draft, session, shape)
    assert len(words(bet.draft)) == len(bet.draft)
    for node, children in enumerate(bet.draft.tree.children):
        chances = [bet.chances[child] for child in children]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= bet.chances[node] + 1e-9


def test_nothing_matches_nothing_is_drafted():
    drafter = SuffixDrafter()
    assert len(drafter.propose([make(range(50))], [Shape.chain(5)])[0]) == 0
    assert len(drafter.propose([make([5])], [Shape.tree(3, 3)])[0]) == 0
    assert len(drafter.propose([make([5, 5, 5])], [Shape(0)])[0]) == 0


def test_long_matches_earn_long_drafts():
    drafter, noise = SuffixDrafter(passes=PassCost.even(0.1)), list(range(100, 140))
    lengths = []
    for known in (1, 3, 6, 20):
        session = make([*range(20 - known, 20), *range(200, 230), *noise, *range(20 - known, 20)])
        lengths.append(len(drafter.propose([session], [Shape.chain(30)])[0]))
    assert lengths == sorted(set(lengths)) and lengths[-1] > 12


def test_the_more_frequent_continuation_comes_first_and_a_tree_holds_both():
    text = [1, 2, 50, 9, 1, 2, 60, 8, 1, 2, 50, 7, 1, 2]
    drafter = SuffixDrafter()
    assert words(drafter.propose([make(text)], [Shape.chain(1)])[0]) == {(50,)}
    tree = drafter.propose([make(text)], [Shape(1, width=2, nodes=2)])[0].tree
    assert tree.tokens == (2, 50, 60)


def test_a_text_that_repeats_itself_is_drafted_past_its_end():
    session = make([7, *[1, 2, 3] * 4])
    draft = SuffixDrafter(passes=PassCost.even(0.01)).propose([session], [Shape.chain(9)])[0]
    assert draft.tree.tokens == (3, *[1, 2, 3] * 3)


def test_trust_is_earned_and_lost_by_outputs_only():
    blocks = {
        "right": [token for step in range(20) for token in (1, 2, 3, 9, 100 + step)],
        "wrong": [token for step in range(20) for token in (1, 2, 3, 100 + step)],
    }
    chances = {}
    for name, output in blocks.items():
        texts = ([1, 2, 3, 9], [*output, 1, 2, 3]), ([1, 2, 3, 9, *output, 1, 2, 3], [])
        for kind, (prompt, emitted) in zip(("output", "prompt"), texts, strict=True):
            session = make(prompt)
            session.extend(emitted)
            chances[name, kind] = SuffixDrafter(passes=FREE).bet(session, Shape(1, 30, 30)).expected - 1
    assert chances["wrong", "output"] < chances["wrong", "prompt"]
    assert chances["right", "output"] > chances["right", "prompt"]


def test_trust_moves_from_its_prior_towards_what_happens():
    trust = Trust()
    before = [trust[length] for length in (1, 2, 3, 4, 5, 7, 11, 500)]
    assert before == sorted(before) and 0 < before[0] < 0.4 and 0.9 < before[-1] < 1
    for _ in range(100):
        trust.record(2, hit=True)
        trust.record(500, hit=False)
    assert trust[2] > 0.9 and trust[500] < 0.1 and trust[1] == before[0]


# ── texts that change ─────────────────────────────────────────────────────────────────────────────────────────────


@given(texts, texts)
def test_an_edited_text_is_drafted_for_as_a_new_one(text, edited):
    drafter, session, shape = SuffixDrafter(passes=FREE), make(text), Shape(3, width=2, nodes=6)
    drafter.bet(session, shape)
    session.tokens[:] = edited
    session.prompt_length = len(edited) // 2
    fresh = make(edited)
    fresh.prompt_length = session.prompt_length
    if edited[: len(text)] != text:
        assert drafter.bet(session, shape).chances == SuffixDrafter(passes=FREE).bet(fresh, shape).chances


def test_a_history_that_was_cut_is_not_drafted_from():
    drafter, session = SuffixDrafter(), make([1, 2, 3, 4, 1, 2, 77, 3, 1, 2, 77, 1, 2])
    assert words(drafter.propose([session], [Shape.chain(1)])[0]) == {(77,)}
    del session.tokens[3:]
    session.tokens += [5, 6, 1, 2]
    assert words(drafter.propose([session], [Shape.chain(1)])[0]) == {(3,)}
    session.tokens[:] = [8, 9]
    assert len(drafter.propose([session], [Shape.chain(1)])[0]) == 0


# ── whose texts ───────────────────────────────────────────────────────────────────────────────────────────────────

SECRET = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def drafted_after(drafter, prompt):
    return words(drafter.propose([make(prompt)], [Shape(12, width=3, nodes=40)])[0])


def test_one_requests_text_is_no_other_requests_draft():
    drafter = SuffixDrafter(passes=FREE)
    serve(drafter, [0, *SECRET], SECRET)
    alive = make([0, *SECRET])
    drafter.propose([alive], [Shape.chain(3)])
    assert drafted_after(drafter, [0, *SECRET[:6]]) == drafted_after(SuffixDrafter(passes=FREE), [0, *SECRET[:6]])
    assert drafter.history.size == 0


def test_shared_outputs_are_found_from_their_prompts_end_on_but_prompts_are_not_kept():
    drafter = SuffixDrafter(share=True, passes=FREE)
    prompt = list(range(100, 200))
    serve(drafter, prompt, SECRET)
    assert (199, *SECRET) == tuple(drafter.propose([make(prompt[-5:])], [Shape.chain(12)])[0].tree.tokens)
    assert drafted_after(drafter, prompt[:20]) == set()


def test_a_request_that_emitted_nothing_leaves_nothing():
    drafter = SuffixDrafter(share=True)
    session = make(SECRET)
    drafter.release(session)
    drafter.propose([session], [Shape.chain(3)])
    drafter.release(session)
    assert drafter.history.size == 0


def test_tokens_that_came_after_the_last_draft_are_remembered_too():
    drafter, session = SuffixDrafter(share=True), make([7, 7])
    drafter.propose([session], [Shape.chain(3)])
    session.extend(SECRET)
    drafter.release(session)
    assert drafted_after(drafter, SECRET[:4]) >= {tuple(SECRET[4:])}


def test_memory_is_bounded():
    drafter = SuffixDrafter(share=True, capacity=60)
    for start in range(0, 1000, 20):
        serve(drafter, [1], range(start, start + 20))
        assert drafter.history.size <= 60
    assert drafted_after(drafter, [985, 986]) and not drafted_after(drafter, [5, 6])


def test_running_sessions_keep_their_place_while_others_end():
    drafter = SuffixDrafter(share=True, capacity=40, passes=PassCost.even(0.05))
    session, text = make([50]), [50]
    for step in range(30):
        serve(drafter, [1], [step, step + 1, 50, 60 + step])
        session.extend([50])
        text.append(50)
        fresh = SuffixDrafter(share=True, capacity=40, passes=PassCost.even(0.05))
        fresh._history = drafter.history
        shape = Shape(1, width=4, nodes=4)
        assert words(drafter.propose([session], [shape])[0]) == words(fresh.propose([make(text)], [shape])[0])


def test_a_text_is_indexed_once_and_released():
    drafter, session = SuffixDrafter(), make([1, 2, 1])
    drafter.release(session)
    drafter.propose([session], [Shape.chain(1)])
    drafter.observe([session], [Verdict((), (2,))], [])
    drafter.release(session)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_sessions_share_nothing_and_keep_their_order():
    drafter = SuffixDrafter(passes=FREE)
    one, other, third = make([1, 2, 1]), make([1, 5, 1]), make([1, 7])
    drafts = drafter.propose([one, other, third], [Shape.chain(1)] * 3)
    assert [words(draft) for draft in drafts] == [{(2,)}, {(5,)}, set()]
    drafts = drafter.propose([third, one], [Shape.chain(1)] * 2)
    assert [words(draft) for draft in drafts] == [set(), {(2,)}]


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match="capacity"):
        SuffixDrafter(capacity=1)


# ── in the round ──────────────────────────────────────────────────────────────────────────────────────────────────


def generate(language, prompts, shape, batch=1, **parameters):
    drafter = SuffixDrafter(passes=FREE, share=True)
    assert isinstance(drafter, Drafter) and isinstance(drafter, Bettor)
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
    result = generate(repeating(8, 1), [3, 3, 3, 3], Shape.chain(6), max_new_tokens=room)
    assert len(result.token_ids) == room
    assert result.finish_reason == "length"


@pytest.mark.parametrize("pair", ["V=2", "V=3", "zeros in p", "one-hot p"])
@pytest.mark.parametrize("shape", [Shape.chain(2), Shape(2, width=2, nodes=4)], ids=str)
def test_the_joint_law_is_the_targets(pair, shape):
    drafter = SuffixDrafter(passes=FREE, share=True)
    for output in ([0, 1, 0, 0, 1], [1, 1, 0, 1]):
        serve(drafter, [0], output)

    def draft(q, text, dice):
        session = make(text)
        made = drafter.propose([session], [shape])[0]
        drafter._texts.clear()  # a walk through all outcomes is no request
        return made

    assert len(draft(None, (0, 1, 0), None)) > 0
    assert gap(target_only.RULE, draft, PAIRS[pair], length=4, rounds=2) < EXACT


def test_sampled_text_follows_the_dice_and_not_the_drafts():
    language = repeating(8, 3)
    drafted = generate(language, [1, 2, 3, 1, 2, 3], Shape(6, 3, 10), temperature=1.0, seed=3, max_new_tokens=60)
    again = generate(language, [1, 2, 3, 1, 2, 3], Shape(6, 3, 10), temperature=1.0, seed=3, max_new_tokens=60)
    assert drafted.token_ids == again.token_ids
    assert drafted.statistics.accepted > 5
    assert torch.tensor(drafted.token_ids).max() < 8
