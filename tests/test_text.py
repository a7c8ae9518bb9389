"""Ends of texts: ids, text and counts agree wherever an end falls."""

import pytest
from tokenizers import decoders

from truedraft.core import FinishReason, Session
from truedraft.errors import ParameterError
from truedraft.text import EndRules, TextEnding, TextStream

PIECES = ["ab", "cd", "e", " f", "gh ", "", "é".encode()[:1], "é".encode()[1:], "🙂".encode()[:2], "🙂".encode()[2:]]


def decode(ids):
    """A byte-level toy tokenizer: pieces may be halves of a character."""
    return b"".join(PIECES[i] if isinstance(PIECES[i], bytes) else PIECES[i].encode() for i in ids).decode(
        errors="replace"
    )


def session(max_new_tokens=50, limit=None, **rules):
    ending = TextEnding(EndRules(max_new_tokens=max_new_tokens, **rules), limit=limit, decode=decode)
    return Session(tokens=[0, 1], sampler=None, dice=None, ending=ending)


def run(tokens, block, **rules):
    """Feed tokens in blocks, as rounds would."""
    mine = session(**rules)
    for at in range(0, len(tokens), block):
        if mine.finish is None:
            mine.extend(tokens[at : at + block])
    return mine.output, mine.ending.text, mine.finish


BLOCKS = pytest.mark.parametrize("block", [1, 2, 3, 6])


@BLOCKS
@pytest.mark.parametrize("at", range(5))
def test_an_end_token_ends_the_text_wherever_it_lies_in_a_block(block, at):
    tokens = [0, 1, 2, 3, 4]
    output, text, finish = run(tokens, block, end_tokens=frozenset({tokens[at]}))
    assert (output, text, finish) == (tokens[: at + 1], decode(tokens[:at]), FinishReason.EOS)


@BLOCKS
def test_any_of_several_end_tokens_ends_and_none_need_be_given(block):
    assert run([0, 3, 2, 1], block, end_tokens=frozenset({1, 2, 9}))[0] == [0, 3, 2]
    assert run([0, 3, 2, 1], block)[2] is None
    assert run([0, 3, 2], block, stop_tokens=frozenset({3}))[2] is FinishReason.STOP


@BLOCKS
@pytest.mark.parametrize(
    ("stops", "ids", "text"),
    [
        (("cd",), [0], "ab"),  # a whole token
        (("bc",), [0], "a"),  # across a token border: the token it begins in stays, its text is cut
        (("de f",), [0, 1], "abc"),  # over three tokens, and over rounds
        (("zz", "f", "e f"), [0, 1], "abcd"),  # the earliest match wins among those that are complete
        (("ab",), [], ""),  # at the very start
        (("gh é",), [0, 1, 2, 3], "abcde f"),  # completed by the second half of a character
    ],
)
def test_a_stop_string_cuts_text_and_ids_together(block, stops, ids, text):
    output, written, finish = run([0, 1, 2, 3, 4, 6, 7], block, stops=stops)
    assert (written, finish) == (text, FinishReason.STOP)
    assert output == ids
    assert decode(ids).startswith(text) and (not ids or len(decode(ids[:-1])) < len(text))


def test_text_is_withheld_while_it_may_still_become_a_stop_string():
    ending = TextEnding(EndRules(50, stops=("cdX", "e f")), decode=decode)
    seen = []
    for token in [0, 1, 2, 2, 3, 4]:
        if ending.push(token):
            break
        seen.append(ending.ready)
    assert seen == ["ab", "ab", "abcd", "abcde"]
    assert ending.text == ending.ready == "abcde"


@BLOCKS
def test_length_limits_are_exact(block):
    assert run([0, 1, 2, 3], block, max_new_tokens=1)[0] == [0]
    assert run([0, 1, 2, 3], block, max_new_tokens=3)[2] is FinishReason.LENGTH
    assert run([0, 1, 2, 3], block, limit=2)[0] == [0, 1]


@BLOCKS
def test_a_stop_within_the_limit_wins_and_one_past_it_does_not(block):
    assert run([0, 1, 2, 3], block, max_new_tokens=3, end_tokens=frozenset({2}))[2] is FinishReason.EOS
    assert run([0, 1, 2, 3], block, max_new_tokens=2, end_tokens=frozenset({2}))[2] is FinishReason.LENGTH
    assert run([0, 1, 2, 3], block, max_new_tokens=2, stops=("cd",))[2] is FinishReason.STOP
    assert run([0, 1, 2, 3], block, max_new_tokens=2, stops=("e",))[2] is FinishReason.LENGTH


def test_characters_are_never_shown_by_halves():
    stream = TextStream(decode)
    shown = []
    for token in [0, 6, 7, 8, 9, 5, 1]:
        stream.push(token)
        shown.append(stream.text)
    assert shown == ["ab", "ab", "abé", "abé", "abé🙂", "abé🙂", "abé🙂cd"]
    assert stream.text == decode([0, 6, 7, 8, 9, 5, 1])


def skipping(decoder, pieces):
    """Ids to text by a decoder of the tokenizers library, without special tokens."""
    return lambda ids: decoder.decode([pieces[i] for i in ids if pieces[i][0] not in "<["])


LLAMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
DECODERS = {
    "a leading space goes": skipping(LLAMA, ["▁Hello", "<s>", "▁world", "▁", ","]),
    "a piece goes on": skipping(
        decoders.WordPiece(prefix="##", cleanup=False), ["play", "[SEP]", "##ing", "all", "##s"]
    ),
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "ids",
    [
        [0, 1, 2],
        [1, 0, 2],
        [0, 2, 1, 1, 2, 3, 4],
        [3, 3, 2, 0],
        [1, 3, 2, 1, 3, 1, 0],
        [0, *[1] * 100, 2, 4],
        [1] * 100 + [2],
    ],
    ids=lambda ids: str(ids[:7]),
)
def test_text_is_the_same_in_pieces_as_at_once(name, ids):
    """A tokenizer that looks back needs the last piece of text, and silent tokens are none."""
    stream = TextStream(DECODERS[name])
    for count, token in enumerate(ids, start=1):
        stream.push(token)
        assert stream.text == DECODERS[name](ids[:count])


def test_a_run_of_silent_tokens_does_not_get_dearer():
    longest = 0

    def decode(ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return DECODERS["a leading space goes"](ids)

    stream = TextStream(decode)
    for token in [0, *[1] * 500, 2]:
        stream.push(token)
    assert stream.text == "Hello world" and longest < 40


@BLOCKS
def test_a_stop_that_begins_in_the_middle_of_a_token_and_of_a_character(block):
    """Three tokens: "hi", a space and half of the smile, the other half. What is before the smile needs two."""
    pieces = [b"hi", " 🙂".encode()[:3], " 🙂".encode()[3:]]
    rules = EndRules(50, stops=("🙂",))
    ending = TextEnding(rules, decode=lambda ids: b"".join(pieces[i] for i in ids).decode(errors="replace"))
    mine = Session(tokens=[0], sampler=None, dice=None, ending=ending)
    for at in range(0, 3, block):
        mine.extend([0, 1, 2][at : at + block])
    assert (mine.output, ending.text, mine.finish) == ([0, 1], "hi ", FinishReason.STOP)


def test_a_character_cut_off_by_the_length_limit_is_still_shown():
    output, text, _ = run([0, 8], 2, max_new_tokens=2)
    assert output == [0, 8] and text == "ab\ufffd"


def test_what_a_stop_string_takes_back_is_counted():
    mine = session(stops=("cde",))
    assert mine.extend([0, 1]) == 2
    assert mine.extend([2, 3]) == -1  # the token of an earlier round goes with the stop string
    assert mine.output == [0]


@pytest.mark.parametrize("rules", [{"max_new_tokens": 0}, {"max_new_tokens": -3}, {"stops": ("",)}])
def test_absurd_rules_are_refused(rules):
    with pytest.raises(ParameterError):
        EndRules(**{"max_new_tokens": 5, **rules})


def test_stop_strings_need_a_tokenizer():
    with pytest.raises(ParameterError, match="tokenizer"):
        TextEnding(EndRules(5, stops=("x",)))
