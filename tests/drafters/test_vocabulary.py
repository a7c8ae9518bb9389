"""Pairs of tokenizers: the same, of another size, with other special tokens, with another meaning."""

from __future__ import annotations

import warnings

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from truedraft.drafters.vocabulary import check_vocabulary
from truedraft.errors import VocabularyError

WORDS = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(20))]


def tokenizer(words=WORDS, *, bos="<s>", eos="</s>", special=()) -> PreTrainedTokenizerFast:
    model = WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>")
    options = {"unk_token": "<unk>", "bos_token": bos, "eos_token": eos}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(model), additional_special_tokens=list(special), **options
    )


def swapped(one: int, other: int) -> list[str]:
    words = list(WORDS)
    words[one], words[other] = words[other], words[one]
    return words


@pytest.mark.parametrize("draft", [tokenizer(), tokenizer([*WORDS, "more", "yet more"]), tokenizer(WORDS[:-3])])
def test_the_same_meaning_passes_whatever_the_sizes(draft):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_vocabulary(tokenizer(), draft)
        check_vocabulary(draft, tokenizer())


def test_two_ids_swapped_are_named():
    with pytest.raises(VocabularyError, match=r"token id 7 is 'w4' for the target and 'w9' for the drafter \(2 ids"):
        check_vocabulary(tokenizer(), tokenizer(swapped(7, 12)))


def test_another_tokenizer_is_refused():
    other = tokenizer([*WORDS[:3], *(f"v{i}" for i in range(30))])
    with pytest.raises(VocabularyError, match=r"token id 3 .* choose a drafter"):
        check_vocabulary(tokenizer(), other)


def test_other_special_tokens_are_a_warning():
    words = [*WORDS[:2], "<end>", *WORDS[3:]]
    with pytest.warns(UserWarning, match="special token 2 is '</s>' and '<end>'"):
        check_vocabulary(tokenizer(), tokenizer(words, eos="<end>"))


def test_a_special_token_in_the_place_of_a_word_is_refused():
    words = [*WORDS[:5], "<tool>", *WORDS[6:]]
    with pytest.raises(VocabularyError, match="token id 5 is 'w2' for the target and '<tool>'"):
        check_vocabulary(tokenizer(), tokenizer(words, special=["<tool>"]))


def test_other_roles_of_the_same_tokens_are_a_warning():
    with pytest.warns(UserWarning, match="eos_token_id is 2 and 1") as caught:
        check_vocabulary(tokenizer(), tokenizer(eos="<s>"))
    assert caught[0].filename == __file__
