"""A small model that drafts text in another tokenizer's tokens: how texts are cut, its cache, and whole texts."""

from __future__ import annotations

import random

import pytest

from tests.drafters.helpers import assert_within, make
from tests.drafters.test_translation import OURS, PROMPTS, SMALL, THEIRS, V, ids, model_of, translation
from truedraft.core import Drafter, Law, Shape, Verdict
from truedraft.drafters.none import NoDrafter
from truedraft.drafters.reencode import ReencodingDrafter
from truedraft.targets.cached import CachedModel


def drafter_of(cache=None):
    return ReencodingDrafter(cache or CachedModel(SMALL), translation(), target=OURS, draft=THEIRS, vocabulary=V)


@pytest.mark.parametrize(("said", "drafted"), [("abc", ["abc"]), ("cdab", ["cd", "ab"]), (" hg", [" ", "h", "g"])])
def test_what_was_said_is_cut_as_the_target_cuts_it(said, drafted):
    drafter, session = drafter_of(), make(ids(OURS, "hh"), vocabulary=V)
    assert [OURS.decode([token]) for token in drafter._encoded(session, said)] == drafted


def test_a_cut_that_depends_on_what_stands_before_keeps_it():
    drafter = drafter_of()
    whole = make(ids(OURS, "hh"), vocabulary=V)
    assert drafter._encoded(whole, "ab") == ids(OURS, "ab")
    split = make([*ids(OURS, "h"), OURS.get_vocab()["a"]], vocabulary=V)  # "a" would join a "b" that follows
    assert drafter._encoded(split, "b") == [OURS.get_vocab()["b"]]


@pytest.mark.parametrize("shape", [Shape.chain(4), Shape(5, 3, 2), Shape.tree(2, 2), Shape(0)], ids=str)
def test_drafts_are_chosen_chains_within_their_shape(shape):
    session = make(PROMPTS[0], vocabulary=V)
    draft = drafter_of().propose([session], [shape])[0]
    assert isinstance(drafter_of(), Drafter) and draft.law is Law.CHOSEN and draft.tree.is_chain
    assert_within(draft, session, shape)
    assert (len(draft) > 0) == (shape.depth > 0)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.chain(7)], ids=str)
def test_greedy_text_is_plain_decodings(shape, batch):
    settings = {"each": [{"max_new_tokens": count} for count in (30, 7, 22, 1)]}
    plain = model_of(NoDrafter(), Shape(0)).generate(PROMPTS, **settings)
    drafted = model_of(drafter_of(), shape, batch=batch).generate(PROMPTS, **settings)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]


def test_a_sampled_text_does_not_depend_on_its_neighbours():
    options = {"max_new_tokens": 20, "seed": 5, "temperature": 0.9}
    together = model_of(drafter_of(), Shape.chain(3), batch=4).generate(PROMPTS, **options)
    alone = [model_of(drafter_of(), Shape.chain(3)).generate(prompt, **options) for prompt in PROMPTS]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]


def test_every_round_drafts_as_a_fresh_drafter_would():
    dice, cache = random.Random(1), CachedModel(SMALL)
    drafter, session = drafter_of(cache), make(PROMPTS[0], vocabulary=V, max_new_tokens=1000)
    for _ in range(25):
        draft = drafter.propose([session], [Shape.chain(3)])[0]
        assert draft.tree == drafter_of().propose([make(session.tokens, vocabulary=V)], [Shape.chain(3)])[0].tree
        count = dice.randint(0, len(draft))
        tokens = (*draft.tree.tokens[1 : 1 + count], dice.randrange(V - 1))
        session.extend(tokens)
        drafter.observe([session], [Verdict(tuple(range(1, count + 1)), tokens)], [])
    drafter.release(session)
    assert cache.cached(session) == 0


def test_past_its_context_it_falls_silent():
    short = CachedModel(SMALL)
    short.context_length = 6
    session = make(PROMPTS[2], vocabulary=V)
    assert len(drafter_of(short).propose([session], [Shape.chain(3)])[0]) == 0
    assert len(drafter_of(short).propose([make(PROMPTS[1], vocabulary=V)], [Shape.chain(3)])[0]) > 0
