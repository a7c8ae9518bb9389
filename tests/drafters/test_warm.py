"""Tables that outlive a program: whose they are, where they come from, when they are written; drafters by name."""

from __future__ import annotations

import gc
import hashlib
from importlib import resources

import pytest
import torch

from tests.drafters.helpers import make
from tests.tiny import tiny_model
from truedraft import build
from truedraft.core import Drafter, Scores, Shape, Verdict
from truedraft.drafters import warm
from truedraft.drafters.count_file import save_table
from truedraft.drafters.count_table import ONE, CountTable
from truedraft.drafters.warm import Keeper, open_table, owner_of, recycling, shipped
from truedraft.errors import CorruptModelError, ParameterError, VocabularyError

OWNER = "toy-2x8-10"


class Tokenizer:
    def __init__(self, *pieces):
        self.pieces = pieces

    def get_vocab(self):
        return {piece: index for index, piece in enumerate(self.pieces)}


def taught(table, token=1):
    """One round of one request that teaches the table."""
    session = make([0, 5])
    logits = torch.zeros(1, table.vocabulary)
    logits[0, token] = 9.0
    session.extend([token])
    return session, [Verdict((), (token,))], [Scores(logits)]


def teach(drafter, token=1):
    session, verdicts, scores = taught(drafter.table, token)
    drafter.observe([session], verdicts, scores)
    drafter.release(session)


# ── whose ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_owners_differ_by_architecture_size_and_vocabulary():
    one, other = tiny_model("llama").config, tiny_model("qwen2").config
    larger = tiny_model("llama", num_hidden_layers=4).config
    tokenizers = [Tokenizer("a", "b"), Tokenizer("b", "a"), Tokenizer("a", "b", "c"), None]
    owners = [owner_of(config, tokenizer) for config in (one, other, larger) for tokenizer in tokenizers]
    assert len(set(owners)) == len(owners)
    assert owner_of(one, Tokenizer("a", "b")) == owners[0]
    assert all(set(owner) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") for owner in owners)


def test_the_order_in_which_a_vocabulary_is_listed_does_not_matter():
    backwards = Tokenizer("a", "b")
    backwards.get_vocab = lambda: {"b": 1, "a": 0}
    config = tiny_model("llama").config
    assert owner_of(config, backwards) == owner_of(config, Tokenizer("a", "b"))


# ── where from ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_users_file_comes_before_the_one_that_ships_and_that_before_none(tmp_path, monkeypatch):
    own, shipping = tmp_path / "own.npz", tmp_path / "shipped.npz"
    monkeypatch.setattr(warm, "shipped", lambda owner: shipping if shipping.exists() else None)
    assert len(open_table(OWNER, 10, own)) == len(open_table(OWNER, 10)) == 0
    for path, keys in ((shipping, [1]), (own, [1, 2])):
        table = CountTable(64, 10)
        for key in keys:
            table.learn(key, [3], [ONE])
        before = len(open_table(OWNER, 10, own))
        save_table(table, path, owner=OWNER)
        assert len(open_table(OWNER, 10, own)) == len(keys) > before
    assert len(open_table(OWNER, 10)) == 1


def test_damaged_files_and_those_of_others_are_refused(tmp_path):
    path = tmp_path / "own.npz"
    save_table(CountTable(64, 10), path, owner="toy-3x8-10")
    with pytest.raises(VocabularyError):
        open_table(OWNER, 10, path)
    path.write_bytes(b"PK")
    with pytest.raises(CorruptModelError):
        open_table(OWNER, 10, path)


def test_an_unknown_model_has_nothing_that_ships():
    assert shipped(OWNER) is None


# ── when written ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_is_written_when_it_has_learned_a_lot_and_at_the_end(tmp_path, monkeypatch):
    path, table = tmp_path / "kept.npz", CountTable(64, 10)
    keeper = Keeper(table, path, OWNER)
    monkeypatch.setattr(warm, "_OFTEN", 3)
    keeper.close()
    assert not path.exists()  # nothing new
    for key in (1, 2):
        table.learn(key, [3], [ONE])
        keeper.keep()
    assert not path.exists()
    table.learn(3, [3], [ONE])
    keeper.keep()
    assert len(open_table(OWNER, 10, path)) == 3
    written = path.stat().st_mtime_ns
    keeper.close()
    assert path.stat().st_mtime_ns == written
    table.learn(4, [3], [ONE])
    keeper.close()
    assert len(open_table(OWNER, 10, path)) == 4


def test_what_is_learned_outlives_the_drafter(tmp_path):
    path = tmp_path / "kept.npz"
    drafter = recycling(OWNER, 10, path=path)
    teach(drafter)
    assert not path.exists()
    del drafter
    gc.collect()
    again = recycling(OWNER, 10, path=path)
    assert again.bet(make([5]), Shape.chain(1)).draft.tree.tokens == (5, 1)


def test_a_disk_that_is_full_at_the_end_costs_a_warning_and_no_text(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    table = CountTable(64, 9)
    keeper = Keeper(table, tmp_path / "memory.npz", "me")
    table.sightings += 1
    monkeypatch.setattr(warm, "save_table", full)
    with pytest.warns(UserWarning, match="memory.npz was not written: No space left"):
        keeper.close()


def test_without_a_path_nothing_is_learned_from_requests_nor_written(tmp_path, monkeypatch):
    shipping = tmp_path / "shipped.npz"
    save_table(CountTable(64, 10), shipping, owner=OWNER)
    before = hashlib.sha256(shipping.read_bytes()).digest()
    monkeypatch.setattr(warm, "shipped", lambda owner: shipping)
    for share in (False, True):
        drafter = recycling(OWNER, 10, share=share)
        teach(drafter)
        assert bool(len(drafter.table)) == share
        del drafter
        gc.collect()
    assert hashlib.sha256(shipping.read_bytes()).digest() == before


def test_a_file_that_ships_is_small_whole_and_its_models_own():
    tables = [*resources.files("truedraft.drafters").joinpath("tables").iterdir()]
    files = [table for table in tables if table.name.endswith(".npz")]
    assert files
    for file in files:
        owner = file.name.removesuffix(".npz")
        assert shipped(owner) is not None and shipped(owner).stat().st_size < 6_000_000
        table = open_table(owner, int(owner.split("-")[2]))
        assert len(table) > 10_000 and table.sightings == 0


# ── by name ───────────────────────────────────────────────────────────────────────────────────────────────────────

FREE = ("suffix", "recycle", "merge", "cascade")
PROMPTS = [[5, 6, 7, 5, 6, 7], [9], [3, 3, 3, 3]]


def generate(drafter, model, **options):
    loaded = build.load(model, drafter=drafter, **options)
    assert isinstance(loaded.decoder.drafter, Drafter)
    return loaded.generate(PROMPTS, max_new_tokens=40, ignore_eos=True)


@pytest.mark.parametrize("drafter", FREE)
@pytest.mark.parametrize("options", [{}, {"share": True, "batch": 1}, {"tree": "2x2"}, {"draft_tokens": 3}], ids=str)
def test_greedy_text_is_plain_decodings(drafter, options):
    model = tiny_model("llama")
    plain, drafted = generate("none", model), generate(drafter, model, **options)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.statistics.accepted for result in drafted) > 0


def test_a_small_model_may_follow_suffix_decoding(tmp_path):
    model = tiny_model("llama")
    model.save_pretrained(tmp_path)
    drafted = generate("cascade", model, draft_model=tmp_path)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in generate("none", model)]


def test_memory_is_kept_for_the_next_load(tmp_path):
    path, model = tmp_path / "deep" / "memory.npz", tiny_model("llama")
    generate("recycle", model, memory=path)
    gc.collect()
    assert path.is_file()
    with pytest.raises(VocabularyError, match="llama"):
        generate("recycle", tiny_model("llama", num_hidden_layers=2), memory=path)
    first = sum(result.statistics.rounds for result in generate("recycle", model))
    assert sum(result.statistics.rounds for result in generate("merge", model, memory=str(path))) < first


@pytest.mark.parametrize(
    ("options", "name"),
    [({"drafter": "ngram", "memory": "x.npz"}, "memory"), ({"drafter": "suffix", "draft_model": "x"}, "draft_model")],
)
def test_options_of_other_drafters_are_refused(options, name):
    with pytest.raises(ParameterError, match=name):
        build.load(tiny_model("llama"), **options)
