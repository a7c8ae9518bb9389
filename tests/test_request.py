"""Requests in every form, turned into sessions; see test_decode for what is refused."""

import dataclasses

import numpy as np
import pytest

from tests import folders
from truedraft.errors import ParameterError, TruedraftError
from truedraft.request import Facts, Parameters, is_batch, make_session


class Words:
    """A word a token."""

    words = ("<end>", "user:", "hi", "there", "bot:")
    chat_template = "yes"

    def encode(self, text, add_special_tokens=True):
        return [self.words.index(word) for word in text.split()]

    def decode(self, ids, **_):
        return " ".join(self.words[i] for i in ids)

    def apply_chat_template(self, messages, **options):
        if any(message["role"] == "system" for message in messages):
            raise ValueError("no system messages here")
        assert options["add_generation_prompt"] and options["tokenize"]
        return [token for message in messages for token in (1, *self.encode(message["content"]))] + [4]


FACTS = Facts(vocabulary=5, context_length=20, end_tokens=frozenset({0}), tokenizer=Words())


def session(prompt, **options):
    return make_session(prompt, Parameters.of(options), FACTS)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("hi there", [2, 3]),
        ([2, 3], [2, 3]),
        ((2, 3), [2, 3]),
        ([np.int64(2), np.int32(3)], [2, 3]),
        ([{"role": "user", "content": "hi"}], [1, 2, 4]),
    ],
)
def test_prompts_of_every_form(prompt, tokens):
    assert not is_batch(prompt)
    assert session(prompt).tokens == tokens
    assert is_batch([prompt])


def test_a_template_that_refuses_says_so():
    with pytest.raises(Exception, match="no system messages here"):
        session([{"role": "system", "content": "hi"}])


def test_the_context_limits_the_room():
    assert session([1] * 5).ending.room == 15
    assert session([1] * 5, max_new_tokens=7).ending.room == 7


def test_end_tokens_come_from_the_model_unless_given():
    assert session([1]).ending.push(0) is not None
    assert session([1], ignore_eos=True).ending.push(0) is None
    assert session([1], eos_token_ids=[3]).ending.push(0) is None
    assert session([1], eos_token_ids=[3]).ending.push(3) is not None
    assert session([1], stop_token_ids=[2]).ending.push(2) is not None


def test_bad_words_may_be_strings():
    sampler = session([1], bad_words=["hi there", [4]]).sampler
    assert sampler.parameters.bad_words == ((2, 3), (4,))


def test_a_bad_word_is_also_what_it_is_behind_a_space():
    """In running text most words are: byte-level tokenizers have other tokens for them there."""
    tokenizer = folders.bytes_tokenizer()
    facts = Facts(260, tokenizer=tokenizer)
    alone, behind = (tuple(tokenizer.encode(word)) for word in ("ab", " ab"))
    for given in (["ab"], "ab", [" ab"]):
        words = make_session([1], Parameters.of({"bad_words": given}), facts).sampler.parameters.bad_words
        assert set(words) == {alone, behind} if given != [" ab"] else words == (behind,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", 2.5),
        ("top_k", "3"),
        ("temperature", "hot"),
        ("temperature", [1]),
        ("max_new_tokens", 3.0),
        ("seed", "x"),
        ("logprobs", 1.5),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {1: 10**400}),
        ("logit_bias", {1: 1e39}),
        ("stop", 3),
        ("stop", [5]),
        ("stop", ["a", b"b"]),
        ("stop_token_ids", "ab"),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [10_000]),
        ("eos_token_ids", [-1]),
        ("processors", 3),
        ("processors", [3]),
        ("processors", [len, None]),
        ("bad_words", [3]),
    ],
)
def test_values_of_another_kind_are_one_line(name, value):
    with pytest.raises(TruedraftError) as caught:
        session([1], **{name: value})
    assert str(caught.value).count("\n") == 0 and name in str(caught.value)


def test_none_is_the_default_and_numbers_may_be_numpys():
    names = [entry.name for entry in dataclasses.fields(Parameters)]
    assert Parameters.of(dict.fromkeys(names)) == Parameters()
    assert Parameters.of({"seed": np.int64(7), "top_k": np.int32(3)}) == Parameters(seed=7, top_k=3)
    assert type(Parameters.of({"seed": np.int64(7)}).seed) is int
    assert Parameters.of({"stop_token_ids": 2}).stop_token_ids == (2,)


def test_end_tokens_that_the_model_has_not_end_nothing():
    facts = Facts(8, end_tokens=frozenset({3, 99}))
    assert make_session([1], Parameters(min_new_tokens=2), facts).sampler.end_tokens == {3}


def test_unknown_parameters_are_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match=r"max_tokens.*max_new_tokens"):
        session([1], max_tokens=4)
    with pytest.raises(ParameterError, match="unknown parameter 5"):
        Parameters.of({5: 1})
