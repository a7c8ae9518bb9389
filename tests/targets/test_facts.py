"""Which ids of a model's vocabulary are a tokenizer's."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_model
from truedraft.build.loading import facts_of
from truedraft.targets.cached import CachedModel


class Coded:
    """A tokenizer that shows nothing but how many tokens it has, if that."""

    eos_token_id = 2

    def encode(self, text):
        return [3]


class Counted(Coded):
    def __len__(self):
        return 40


class Hiding(Counted):
    def get_vocab(self):
        raise NotImplementedError


def words(**ids):
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0, **ids}, "a")))


@pytest.mark.parametrize(
    ("tokenizer", "vocabulary"),
    [
        (None, 48),
        (words(b=1, c=2), 3),
        (words(b=7, c=41), 42),
        (words(b=47), 48),
        (words(b=99), 48),
        (words(**{f"w{number}": number for number in range(1, 60)}), 48),
        (Coded(), 48),
        (Counted(), 40),
        (Hiding(), 40),
    ],
)
def test_ids_up_to_the_highest_are_the_tokenizers(tokenizer, vocabulary):
    facts = facts_of(CachedModel(tiny_model()), tokenizer)
    assert facts.vocabulary == vocabulary and facts.end_tokens == {2}
