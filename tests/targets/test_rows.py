"""Which row a key has, and what a row is known to hold."""

import random

import pytest

from truedraft.targets.rows import Moves, Row, Rows, common_prefix


class Slots:
    """A cache whose slots hold the tokens themselves."""

    def __init__(self, rows=0):
        self.rows = [[None] * 64 for _ in range(rows)]

    def copy_row(self, source, target, length):
        self.rows[target][:length] = self.rows[source][:length]

    def swap_rows(self, one, other, length):
        mine, theirs = self.rows[one][:length], self.rows[other][:length]
        self.rows[one][:length], self.rows[other][:length] = theirs, mine


def test_what_rows_are_known_to_hold_is_what_is_in_their_slots():
    """Random comings, goings, readings, drafts and rewinds."""
    rng = random.Random(0)
    slots: Moves = Slots(6)
    rows, texts = Rows(slots), {}
    rows.resize(6, 64)
    for step in range(3000):
        key = rng.choice([*texts, step]) if len(texts) < 6 else rng.choice(sorted(texts))
        if key not in rows:
            rows.take(key)
            texts[key] = []
        do = rng.choice(["read", "read", "draft", "rewind", "free"])
        row, index = rows[key], rows.index(key)
        if do == "read":
            tokens = [rng.choice("ab") for _ in range(rng.randrange(8))][: 40 - len(texts[key])]
            known = rows.recall(key, tokens)
            row, index = rows[key], rows.index(key)
            slots.rows[index][row.length : row.length + len(tokens) - known] = tokens[known:]
            row.settle(tokens[known:])
            texts[key] += tokens
        elif do == "draft":
            span = row.span(index, (-1, 0, 0))
            assert (span.base, span.start) == (len(texts[key]), row.start)
            slots.rows[index][row.start : row.start + 3] = "xyz"
            row.grow("xyz", span)
            assert row.used == row.length + 3
            slots.rows[index][row.length + 1] = "z"
            row.settle(["x", "z"] if len(texts[key]) < 38 else [])
            texts[key] = row.committed
        elif do == "rewind":
            del texts[key][rng.randrange(len(texts[key]) + 1) :]
            row.forget(len(texts[key]))
        else:
            rows.free(key)
            del texts[key]
        assert sorted(rows.index(key) for key in texts) == list(range(len(texts))) and len(rows) == len(texts)
        for key, tokens in texts.items():
            assert rows[key].committed == tokens
        for held, content in zip(rows.held, slots.rows, strict=True):
            assert content[: len(held.tokens)] == held.tokens


class Interrupted(Slots):
    """Ctrl-C when half of the slots have moved."""

    def copy_row(self, source, target, length):
        self.rows[target][: length // 2] = self.rows[source][: length // 2]
        raise KeyboardInterrupt

    def swap_rows(self, one, other, length):
        self.rows[one][:length] = self.rows[other][:length]
        raise KeyboardInterrupt


def held_truly(rows, slots):
    return all(content[: len(row.tokens)] == row.tokens for row, content in zip(rows.held, slots.rows, strict=True))


def filled(texts):
    """Rows with these texts, all in use, whose moves are interrupted."""
    slots = Interrupted(len(texts) + 1)
    rows = Rows(slots)
    rows.resize(len(texts) + 1, 64)
    for key, text in texts.items():
        rows.take(key)
        slots.rows[rows.index(key)][: len(text)] = text
        rows[key].settle(list(text))
    return rows, slots


def test_an_interrupted_row_is_not_taken_for_what_it_was():
    rows, slots = filled({"a": "abab", "b": "bbbb", "c": "caca"})
    with pytest.raises(KeyboardInterrupt):
        rows.free("a")
    assert held_truly(rows, slots) and "a" in rows
    rows._moves = Slots()
    rows._moves.rows = slots.rows
    for key in ("a", "c", "b"):
        rows.free(key)
    assert len(rows) == 0 and held_truly(rows, slots)


def test_an_interrupted_copy_is_not_taken_for_one():
    rows, slots = filled({"a": "abab"})
    rows.held[1].tokens, slots.rows[1][:3] = list("ccc"), list("ccc")
    rows.take("b")
    with pytest.raises(KeyboardInterrupt):
        rows.recall("b", list("abab"))
    assert held_truly(rows, slots) and rows["b"].length == 0


def test_common_prefix():
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2, 3], (1, 2)) == 2
    assert common_prefix([1, 2, 3], (1, 4, 3)) == 1
    assert common_prefix((), range(5)) == 0


def test_a_row_says_how_far_its_slots_are_in_use():
    row = Row([1, 2, 3], length=2)
    assert (row.start, row.used, row.committed) == (2, 3, [1, 2])
