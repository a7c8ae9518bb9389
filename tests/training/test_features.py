"""Features on disk are those of the target, row by row, however rows were put together; and only of that target."""

import errno
import gzip
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.tiny import tiny_model
from tests.training.helpers import TAPS, answers, featured, teacher, write
from truedraft.errors import CorruptModelError, ParameterError
from truedraft.training.features import FeatureKind, are_missing, compute_features, load_rows, shards_of
from truedraft.training.teacher import Teacher

KIND = FeatureKind("tiny", 1, TAPS, 32, 64)


@pytest.fixture(scope="module")
def target():
    return teacher()


def computed(tmp_path, rows, target, kind=KIND):
    shard = write(tmp_path / "shard-00000.jsonl", rows)
    told = []
    compute_features(target, shard, tmp_path / "features", kind=kind, report=told.append)
    return shard, sum(told)


def test_features_are_those_of_every_row_alone(tmp_path, target):
    rows = answers(7)
    shard, told = computed(tmp_path, rows, target)
    assert told == sum(len(row.tokens) for row in rows)
    for found, row in zip(load_rows(shard, tmp_path / "features", KIND), featured(rows, target), strict=True):
        assert found.id == row.id and found.prompt_length == row.prompt_length and found.greedy == row.greedy
        assert torch.equal(found.tokens, row.tokens)
        torch.testing.assert_close(found.features.float(), row.features.float(), atol=2e-2, rtol=1e-2)


def test_features_are_computed_once(tmp_path, target):
    shard, _ = computed(tmp_path, answers(3), target)
    path = tmp_path / "features" / "shard-00000.npy"
    before = path.stat().st_mtime_ns
    _, told = computed(tmp_path, answers(3), target)
    assert told == 0 and path.stat().st_mtime_ns == before
    path.rename(path.with_suffix(".part"))  # as an interrupted run leaves it
    assert computed(tmp_path, answers(3), target)[1] > 0
    assert len(load_rows(shard, tmp_path / "features", KIND)) == 3


def test_packed_answers_are_the_same_answers(tmp_path, target):
    shard, _ = computed(tmp_path, answers(3), target)
    packed = shard.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(shard.read_bytes()))
    shard.unlink()
    assert shards_of(tmp_path) == [packed]
    rows = load_rows(packed, tmp_path / "features", KIND)
    assert [row.tokens.tolist() for row in rows] == [list(row.tokens) for row in answers(3)]
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ParameterError, match=r"jsonl\.gz"):
        load_rows(packed, tmp_path / "features", KIND)


def test_rows_are_cut_and_answers_that_vanish_are_left_out(tmp_path, target):
    kind = FeatureKind("tiny", 1, TAPS, 32, 6)
    shard, _ = computed(tmp_path, answers(6, prompt=4), target, kind)
    found = load_rows(shard, tmp_path / "features", kind)
    assert [row.prompt_length for row in found] == [4, 5, 4, 5] and all(len(row) == 6 for row in found)


@pytest.mark.parametrize(
    "other",
    [
        FeatureKind("other", 1, TAPS, 32, 64),
        FeatureKind("tiny", 2, TAPS, 32, 64),
        FeatureKind("tiny", 1, (0, 1, 2), 32, 64),
        FeatureKind("tiny", 1, TAPS, 16, 64),
        FeatureKind("tiny", 1, TAPS, 32, 65),
    ],
)
def test_features_of_another_kind_are_refused(tmp_path, target, other):
    shard, _ = computed(tmp_path, answers(2), target)
    with pytest.raises(ParameterError, match="another kind"):
        load_rows(shard, tmp_path / "features", other)


def test_a_fingerprint_tells_weights_and_not_types():
    """A model that was trained on has the shapes of the one it was made from, and other states."""
    one, same, other = tiny_model(), tiny_model().to(torch.bfloat16), tiny_model()
    with torch.no_grad():
        other.get_decoder().layers[1].mlp.up_proj.weight.mul_(1.1)
    prints = [Teacher(model, (0, 3)).fingerprint for model in (one, same, other)]
    assert prints[0] == prints[1] != prints[2]


def test_features_of_answers_that_changed_are_computed_again(tmp_path, target):
    computed(tmp_path, answers(3), target)
    shard, told = computed(tmp_path, answers(5), target)
    assert told > 0 and len(load_rows(shard, tmp_path / "features", KIND)) == 5


def test_features_that_do_not_belong_to_their_answers_are_refused(tmp_path, target):
    shard, _ = computed(tmp_path, answers(3), target)
    write(shard, answers(4))
    with pytest.raises(CorruptModelError, match="does not belong"):
        load_rows(shard, tmp_path / "features", KIND)


def with_other_ids(rows):
    """As many tokens in as many rows, and other ones."""
    return [replace(row, answer_ids=tuple(50 - token for token in row.answer_ids)) for row in rows]


def with_other_bounds(rows):
    """The same tokens one after the other, and other rows."""
    first, second, *rest = rows
    moved = (
        replace(first, answer_ids=first.answer_ids[:-1]),
        replace(second, prompt_ids=(first.answer_ids[-1], *second.prompt_ids)),
    )
    return [*moved, *rest]


@pytest.mark.parametrize("changed", [with_other_ids, with_other_bounds])
def test_as_many_other_tokens_are_other_answers(tmp_path, target, changed):
    rows = changed(answers(3))
    computed(tmp_path, answers(3), target)
    shard = write(tmp_path / "shard-00000.jsonl", rows)
    with pytest.raises(CorruptModelError, match="does not belong"):
        load_rows(shard, tmp_path / "features", KIND)
    assert computed(tmp_path, rows, target)[1] > 0
    for found, row in zip(load_rows(shard, tmp_path / "features", KIND), featured(rows, target), strict=True):
        torch.testing.assert_close(found.features.float(), row.features.float(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("damage", ["lost", "other", "cut"])
def test_features_that_say_nothing_of_their_answers_are_computed_again(tmp_path, target, damage):
    computed(tmp_path, answers(3), target)
    mark, values = (tmp_path / "features" / f"shard-00000.{kind}" for kind in ("crc", "npy"))
    if damage == "cut":
        values.write_bytes(values.read_bytes()[:100])
    else:
        mark.unlink() if damage == "lost" else mark.write_text("1\n")
    shard, told = computed(tmp_path, answers(3), target)
    assert told > 0 and len(load_rows(shard, tmp_path / "features", KIND)) == 3


def test_tokens_that_the_model_does_not_know_are_named_with_their_line(tmp_path, target):
    rows = answers(4)
    rows[2] = replace(rows[2], answer_ids=(5, 48))
    with pytest.raises(ParameterError, match=r"shard-00000\.jsonl line 3 has token 48, and the model knows 48"):
        computed(tmp_path, rows, target)


def test_what_features_are_of_is_written_whole_or_not_at_all(tmp_path, target, monkeypatch):
    def interrupted(*names):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", interrupted)
        computed(tmp_path, answers(2), target)
    assert not (tmp_path / "features" / "features.json").exists()
    shard, _ = computed(tmp_path, answers(2), target)
    (tmp_path / "features" / "features.json").write_text('{"owner": "ti')
    with pytest.raises(CorruptModelError, match=r"features\.json cannot be read"):
        load_rows(shard, tmp_path / "features", KIND)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system reserves no room")
def test_a_full_disk_is_an_error_before_anything_is_computed(tmp_path, target, monkeypatch):
    reserved = []

    def full(file, start, length):
        reserved.append(length)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ParameterError, match=r"shard-00000\.npy cannot be written \(No space left on device\)"):
        computed(tmp_path, answers(2), target)
    assert reserved[0] > sum(len(row.tokens) for row in answers(2)) * 4 * 32 * 2
    assert {path.name for path in (tmp_path / "features").iterdir()} == {"features.json"}


def test_a_file_system_that_reserves_nothing_is_written_to(tmp_path, target, monkeypatch):
    def unknown(file, start, length):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unknown, raising=False)
    shard, _ = computed(tmp_path, answers(2), target)
    assert len(load_rows(shard, tmp_path / "features", KIND)) == 2


def test_features_are_missing_until_every_shard_has_some(tmp_path, target):
    with pytest.raises(ParameterError, match="truedraft data"):
        are_missing(tmp_path, tmp_path / "features")
    computed(tmp_path, answers(2), target)
    assert not are_missing(tmp_path, tmp_path / "features")
    write(tmp_path / "shard-00001.jsonl", answers(2))
    assert are_missing(tmp_path, tmp_path / "features")


def test_the_file_is_half_precision_and_says_what_it_is(tmp_path, target):
    rows = answers(2)
    computed(tmp_path, rows, target)
    values = np.load(tmp_path / "features" / "shard-00000.npy")
    assert values.dtype == np.uint16 and values.shape == (sum(len(row.tokens) for row in rows), 4, 32)
    assert json.loads((tmp_path / "features" / "features.json").read_text())["taps"] == list(TAPS)


def test_a_folder_without_answers(tmp_path):
    with pytest.raises(ParameterError, match="truedraft data"):
        shards_of(tmp_path)


# ── the teacher ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma3"])
def test_logits_follow_from_the_last_tap(family):
    model = tiny_model(family)
    if family == "gemma3":
        model.config.final_logit_softcapping = 3.0
    layers = model.config.num_hidden_layers
    target, tokens = Teacher(model, (1, layers)), torch.tensor([[1, 7, 9, 30, 4]])
    last = target.features(tokens)[:, :, -1]
    with torch.no_grad():
        logits = model(tokens).logits
    torch.testing.assert_close(target.output()(last), logits)
    ids = torch.tensor([0, 9, 33])
    torch.testing.assert_close(target.output(ids)(last), logits[..., ids])


def test_taps_are_inputs_of_layers():
    model, seen = tiny_model(), []
    model.model.layers[2].register_forward_pre_hook(
        lambda layer, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    features = Teacher(model, (2, 3)).features(torch.tensor([[3, 4, 5]]))
    assert torch.equal(features[:, :, 0], seen[0])


@pytest.mark.parametrize("taps", [(4,), (-1,), (1, 1)])
def test_taps_that_are_not_there(taps):
    with pytest.raises(ParameterError, match="taps"):
        teacher().__class__(tiny_model(), taps)
