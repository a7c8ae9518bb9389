"""Count tables against dictionaries, in files and out, full and damaged."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedraft.drafters.count_file import load_table, save_table
from truedraft.drafters.count_table import ONE, SEED, WIDTH, CountTable, extend_key
from truedraft.errors import CorruptModelError, ParameterError, VocabularyError

KEYS = [extend_key(SEED, token) for token in range(6)]
guesses = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 100)), max_size=WIDTH, unique_by=lambda pair: pair[0])
sightings = st.lists(st.tuples(st.sampled_from(KEYS), guesses), max_size=40)


def shares_of(pairs):
    """Parts to tokens and shares, likeliest first."""
    total = sum(part for _, part in pairs) or 1
    ordered = sorted(pairs, key=lambda pair: -pair[1])
    return [token for token, _ in ordered], [ONE * part // total for _, part in ordered]


def learned(seen, rows=1 << 12, vocabulary=31):
    table = CountTable(rows, vocabulary)
    for key, pairs in seen:
        table.learn(key, *shares_of(pairs))
    return table


def contents(table, key):
    """Count and shares by token of a context, None if it is unknown."""
    row = table.find(key)
    if row < 0:
        return None
    return table.count(row), {t: s for t, s in zip(table.tokens(row), table.shares(row), strict=True) if s}


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_of_different_contexts_differ_and_spread():
    contexts = [(a,) for a in range(200)] + [(a, b) for a in range(60) for b in range(60)]
    keys = set()
    for context in contexts:
        key = SEED
        for token in context:
            key = extend_key(key, token)
        keys.add(key)
    assert len(keys) == len(contexts)
    assert len({key >> 32 & 1023 for key in keys}) > 900
    assert len({key & 0xFFFFFFFF for key in keys}) == len(keys)
    assert extend_key(extend_key(SEED, 3), 4) != extend_key(extend_key(SEED, 4), 3)


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(sightings)
def test_rows_hold_counts_and_mean_shares(seen):
    table = learned(seen)
    for key in KEYS:
        mine = [dict(zip(*shares_of(pairs), strict=True)) for each, pairs in seen if each == key]
        found = contents(table, key)
        if not mine:
            assert found is None
            continue
        count, shares = found
        assert count == len(mine)
        tokens = {token for row in mine for token in row}
        means = {token: Fraction(sum(row.get(token, 0) for row in mine), len(mine)) for token in tokens}
        if len(tokens) <= WIDTH:  # nothing was ever dropped
            for token in tokens:
                assert shares.get(token, 0) == pytest.approx(float(means[token]), abs=len(mine))
        assert len(shares) <= WIDTH
        assert sum(shares.values()) <= ONE
    assert len(table) == len({key for key, _ in seen})


@given(sightings)
def test_the_likeliest_come_first(seen):
    table = learned(seen)
    for key in KEYS:
        if (row := table.find(key)) >= 0:
            assert table.shares(row) == sorted(table.shares(row), reverse=True)


def test_of_too_many_tokens_the_unlikely_are_dropped():
    table = CountTable(64, 100)
    table.learn(7, list(range(WIDTH)), [5000] * WIDTH)
    for _ in range(3):
        table.learn(7, [50], [ONE])
    count, shares = contents(table, 7)
    assert count == 4 and len(shares) == WIDTH and max(shares, key=shares.get) == 50
    assert shares[50] == pytest.approx(0.75 * ONE, abs=4)


def test_old_news_fade_and_counts_end():
    table = CountTable(64, 100)
    for _ in range(200):
        table.learn(7, [1], [ONE])
    for _ in range(200):
        table.learn(7, [2], [ONE])
    count, shares = contents(table, 7)
    assert count == 400
    assert shares[2] > 0.9 * ONE > shares[1]
    table.arrays["counts"][table.find(7)] = 60_000
    table.learn(7, [2], [ONE])
    assert contents(table, 7)[0] == 60_000


@pytest.mark.parametrize(("vocabulary", "kind"), [(1 << 16, np.uint16), (1 << 16 | 1, np.uint32)])
def test_token_ids_take_what_room_they_need(vocabulary, kind):
    table = CountTable(64, vocabulary)
    assert table.arrays["tokens"].dtype == kind
    table.learn(7, [vocabulary - 1], [ONE])
    assert contents(table, 7) == (1, {vocabulary - 1: ONE})


# ── room ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_size_is_fixed_and_a_full_bucket_keeps_what_is_seen_often():
    table, before = CountTable(4, 10), CountTable(4, 10).nbytes
    for _ in range(5):
        table.learn(100, [1], [ONE])
    for key in range(1, 60):
        table.learn(key, [2], [ONE])
    assert table.nbytes == before and len(table) == 4
    assert contents(table, 100) == (5, {1: ONE})
    assert contents(table, 59) == (1, {2: ONE})


def test_what_is_seen_no_more_makes_room_in_the_end():
    table = CountTable(4, 10)
    for key in (1, 2, 3, 4):
        for _ in range(3):
            table.learn(key, [1], [ONE])
    tries = 0
    while contents(table, 9) is None:
        table.learn(9, [2], [ONE])
        tries += 1
    assert tries == 3
    assert contents(table, 9) == (1, {2: ONE})
    assert sum(contents(table, key) is not None for key in (1, 2, 3, 4)) == 3


@given(st.lists(st.integers(0, 1 << 61), max_size=200))
def test_a_table_never_outgrows_its_room(keys):
    table = CountTable(16, 10)
    for key in keys:
        table.learn(key, [1], [ONE])
        assert table.find(key) >= 0 or len(table) > 3
    assert len(table) <= 16


def test_rows_are_rounded_up_to_a_power_of_two():
    assert [CountTable(rows, 10).rows for rows in (4, 5, 64, 65)] == [4, 8, 64, 128]


@pytest.mark.parametrize(("rows", "vocabulary", "name"), [(3, 10, "rows"), (64, 0, "vocabulary")])
def test_sizes_are_checked(rows, vocabulary, name):
    with pytest.raises(ParameterError, match=name):
        CountTable(rows, vocabulary)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

OWNER = "toy-2x8"


@given(sightings)
def test_a_file_brings_back_every_row(tmp_path_factory, seen):
    path = tmp_path_factory.mktemp("table") / "kept.npz"
    table = learned(seen, rows=64)
    save_table(table, path, owner=OWNER)
    again = load_table(path, owner=OWNER, vocabulary=31)
    assert again.rows == table.rows
    for name, array in table.arrays.items():
        used = table.arrays["counts"] > 0
        assert np.array_equal(again.arrays[name][used], array[used])
    assert len(again) == len(table)
    again.learn(KEYS[0], [3], [ONE])  # what is read may be written
    assert contents(again, KEYS[0])[0] == (contents(table, KEYS[0]) or (0,))[0] + 1


def test_a_file_is_replaced_whole_and_leaves_no_parts(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "kept.npz"
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="space"):
        save_table(learned([(KEYS[1], [(1, 1)])]), path, owner=OWNER)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["kept.npz"]


@pytest.mark.parametrize(("owner", "vocabulary"), [("toy-3x8", 31), (OWNER, 32)])
def test_a_file_of_another_model_is_refused(tmp_path, owner, vocabulary):
    path = tmp_path / "kept.npz"
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    with pytest.raises(VocabularyError) as caught:
        load_table(path, owner=owner, vocabulary=vocabulary)
    assert OWNER in str(caught.value) and owner in str(caught.value) and "\n" not in str(caught.value)


def test_no_file_is_no_damage(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_table(tmp_path / "none.npz", owner=OWNER, vocabulary=31)


def test_every_kind_of_damage_is_noticed(tmp_path):
    path = tmp_path / "kept.npz"
    save_table(learned([(key, [(1, 1), (2, 3)]) for key in KEYS * 3]), path, owner=OWNER)
    whole = path.read_bytes()
    damaged = [b"", b"{}", whole[: len(whole) // 2], whole[:-30]]
    places = [(place, 0x55) for place in range(40, len(whole) - 100, 97)]
    directory = whole.index(b"PK\1\2")  # its fields say how members are packed, and whether they are encrypted
    places += [(place, bit) for place in range(directory, directory + 46) for bit in (1, 2, 0x20, 0x40, 0xFF)]
    for place, bits in places:
        damaged.append(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        try:
            table = load_table(path, owner=OWNER, vocabulary=31)
        except CorruptModelError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:  # the flipped bit was in a field that means nothing
            assert all(contents(table, key)[0] == 3 for key in KEYS)


def rewritten(path, **changes):
    """The same file with some members replaced."""
    with np.load(path) as archive:
        members = {name: archive[name] for name in archive.files} | changes
    np.savez_compressed(path, **{name: value for name, value in members.items() if value is not None})


def test_contents_that_do_not_fit_the_checksum_are_refused(tmp_path):
    path = tmp_path / "kept.npz"
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    rewritten(path, counts=np.array([9], np.uint16))
    with pytest.raises(CorruptModelError, match="checksum"):
        load_table(path, owner=OWNER, vocabulary=31)


@pytest.mark.parametrize("member", ["header", "counts", "places"])
def test_a_file_without_one_of_its_members_is_refused(tmp_path, member):
    path = tmp_path / "kept.npz"
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    rewritten(path, **{member: None})
    with pytest.raises(CorruptModelError):
        load_table(path, owner=OWNER, vocabulary=31)


@pytest.mark.parametrize("header", ["", "[]", "3", "null", '{"version": 1}', "not json"])
def test_a_foreign_header_is_refused(tmp_path, header):
    path = tmp_path / "kept.npz"
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    rewritten(path, header=np.array(header))
    with pytest.raises(CorruptModelError):
        load_table(path, owner=OWNER, vocabulary=31)


def test_objects_in_a_file_are_not_unpickled(tmp_path):
    path = tmp_path / "kept.npz"
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    rewritten(path, counts=np.array([{"a": 1}], object))
    with pytest.raises(CorruptModelError):
        load_table(path, owner=OWNER, vocabulary=31)


def test_another_version_is_named(tmp_path, monkeypatch):
    path = tmp_path / "kept.npz"
    monkeypatch.setattr("truedraft.drafters.count_file.VERSION", 2)
    save_table(learned([(KEYS[0], [(1, 1)])]), path, owner=OWNER)
    with np.load(path) as archive:
        assert json.loads(str(archive["header"]))["version"] == 2
    monkeypatch.undo()
    with pytest.raises(CorruptModelError, match="version 2"):
        load_table(path, owner=OWNER, vocabulary=31)
