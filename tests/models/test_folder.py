"""Which folders pass for whole models, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.models.folder import check_folder


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A model in one file."""
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.zeros(5), "b": torch.zeros(3, 2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A model in two files."""
    (tmp_path / "config.json").write_text("{}")
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    save_file({"a": torch.zeros(5)}, tmp_path / shards[0])
    save_file({"b": torch.zeros(5), "c": torch.zeros(1)}, tmp_path / shards[1])
    index = {"metadata": {}, "weight_map": {"a": shards[0], "b": shards[1], "c": shards[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_whole_models_pass(single: Path) -> None:
    check_folder(single)


def test_whole_sharded_models_pass(sharded: Path) -> None:
    check_folder(sharded)


def test_a_file_cut_off_anywhere_is_refused(single: Path) -> None:
    file = single / "model.safetensors"
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(CorruptModelError, match=r"model.safetensors .*Download it again"):
            check_folder(single)


def test_a_file_that_is_too_long_is_refused(single: Path) -> None:
    with (single / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(CorruptModelError, match=r"instead of"):
        check_folder(single)


def test_a_cut_off_shard_is_refused(sharded: Path) -> None:
    shard = sharded / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CorruptModelError, match=r"model-00002-of-00002.safetensors"):
        check_folder(sharded)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(CorruptModelError, match=r"model-00001-of-00002.safetensors is missing"):
        check_folder(sharded)


def test_a_tensor_that_the_index_promises_and_no_shard_holds_is_named(sharded: Path) -> None:
    save_file({"b": torch.zeros(6)}, sharded / "model-00002-of-00002.safetensors")
    with pytest.raises(CorruptModelError, match=r"lacks the tensor 'c'"):
        check_folder(sharded)


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": 3}'])
def test_a_damaged_index_is_refused(index: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CorruptModelError, match=r"index.json"):
        check_folder(sharded)


@pytest.mark.parametrize("header", [b"", b"[]", b'{"a": 1}', b'{"a": {"data_offsets": [0]}}', b"\xff\xff", b'{"a"'])
def test_a_damaged_header_is_refused(header: bytes, single: Path) -> None:
    (single / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CorruptModelError, match=r"damaged"):
        check_folder(single)


@pytest.mark.parametrize("config", ["", "{", "[]", "null"])
def test_a_damaged_config_is_refused(config: str, single: Path) -> None:
    (single / "config.json").write_text(config)
    with pytest.raises(CorruptModelError, match=r"config.json"):
        check_folder(single)


def test_missing_files_are_named(single: Path) -> None:
    (single / "config.json").rename(single / "elsewhere")
    with pytest.raises(CorruptModelError, match=r"holds no config.json: give a model folder"):
        check_folder(single)
    (single / "elsewhere").rename(single / "config.json")
    (single / "model.safetensors").unlink()
    with pytest.raises(CorruptModelError, match=r"holds no model.safetensors"):
        check_folder(single)


def test_a_gguf_file_in_the_folder_is_pointed_at(tmp_path: Path) -> None:
    (tmp_path / "big.gguf").touch()
    with pytest.raises(CorruptModelError, match=r"give the file .*big.gguf instead of the folder"):
        check_folder(tmp_path)


def test_a_pointer_in_place_of_weights_is_recognised(single: Path) -> None:
    (single / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CorruptModelError, match=r"git lfs pull"):
        check_folder(single)


@pytest.fixture(params=[False, True], ids=["single", "sharded"])
def pickled(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model in one pickle or two, of which nobody reads any."""
    (tmp_path / "config.json").write_text("{}")
    names = ["pytorch_model-1.bin", "pytorch_model-2.bin"] if request.param else ["pytorch_model.bin"]
    for name in names:
        (tmp_path / name).write_bytes(b"pickled")
    if request.param:
        index = {"weight_map": {"a": names[0], "b": names[1]}}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return tmp_path


def test_pickled_weights_need_a_flag(pickled: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"--allow-pickle"):
        check_folder(pickled)
    check_folder(pickled, allow_pickle=True)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(b""), "missing or empty"),
        (lambda file: file.write_text("version https://git-lfs.github.com/spec/v1"), "git lfs pull"),
    ],
)
def test_pickles_that_hold_nothing_are_refused(pickled: Path, damage: Any, said: str) -> None:
    damage(max(pickled.glob("*.bin")))
    with pytest.raises(CorruptModelError, match=rf"{max(pickled.glob('*.bin')).name} .*{said}"):
        check_folder(pickled, allow_pickle=True)


def test_a_pickled_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "pytorch_model-1.bin"}}')
    with pytest.raises(CorruptModelError, match=r"pytorch_model-1\.bin is missing"):
        check_folder(tmp_path, allow_pickle=True)
    (tmp_path / "pytorch_model.bin.index.json").write_text("{}")
    with pytest.raises(CorruptModelError, match=r"no weight_map"):
        check_folder(tmp_path, allow_pickle=True)


def test_safetensors_win_over_pickled_weights(single: Path) -> None:
    (single / "pytorch_model.bin").touch()
    check_folder(single)
