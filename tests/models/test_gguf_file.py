"""Reading the header of a GGUF file: what a file says, and what damage does not get past it."""

from __future__ import annotations

import random
from pathlib import Path

import gguf
import pytest

from tests.models.ggufs import source_model, tensors, write_gguf
from truedraft.errors import CorruptModelError, ModelError, UnsupportedModelError
from truedraft.models.gguf_file import check_gguf, read_header


def test_header_agrees_with_the_format_s_own_reader(tiny_gguf: Path) -> None:
    header, reader = read_header(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    assert header.architecture == "llama"
    assert header.metadata["tokenizer.ggml.eos_token_id"] == 2
    assert header.metadata["general.name"] == "tiny"
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    assert [(tensor.name, tensor.elements, tensor.nbytes) for tensor in header.tensors] == [
        (tensor.name, int(tensor.n_elements), int(tensor.n_bytes)) for tensor in reader.tensors
    ]
    start = reader.data_offset
    assert [start + tensor.offset for tensor in header.tensors] == [
        int(tensor.data_offset) for tensor in reader.tensors
    ]
    assert header.elements == sum(parameter.numel() for parameter in source_model().parameters())


def test_a_file_cut_off_anywhere_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    content, cut = tiny_gguf.read_bytes(), tmp_path / "cut.gguf"
    last = read_header(tiny_gguf).tensors[-1]
    used = gguf.GGUFReader(tiny_gguf).data_offset + last.offset + last.nbytes  # padding may follow
    for length in [*range(0, 300), *range(300, used, 997), used - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(CorruptModelError, match=r"cut.gguf .*Download it again"):
            check_gguf(cut)
    cut.write_bytes(content[:used])
    check_gguf(cut)


def test_the_message_tells_where_the_file_ends(tiny_gguf: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_gguf.read_bytes()[:-5000])
    with pytest.raises(CorruptModelError, match=f"is cut off: .*, the file at {cut.stat().st_size}"):
        check_gguf(cut)


def test_flipped_bytes_in_the_header_never_hang_or_crash(tiny_gguf: Path, tmp_path: Path) -> None:
    content, damaged, dice = tiny_gguf.read_bytes(), tmp_path / "damaged.gguf", random.Random(0)
    header_bytes = gguf.GGUFReader(tiny_gguf).data_offset
    refused = 0
    for _ in range(600):
        flipped = bytearray(content)
        for _ in range(dice.choice((1, 1, 8))):
            flipped[dice.randrange(header_bytes)] = dice.randrange(256)
        damaged.write_bytes(flipped)
        try:
            check_gguf(damaged)
        except ModelError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\3\4" + bytes(100), b"<html>not found</html>"])
def test_what_is_no_gguf_file_is_said_to_be_none(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "page.gguf"
    file.write_bytes(content)
    with pytest.raises(CorruptModelError, match=r"page.gguf is not a GGUF file"):
        check_gguf(file)


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_other_versions_of_the_format_are_refused(version: int, tiny_gguf: Path, tmp_path: Path) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    content[4:8] = version.to_bytes(4, "little")
    file = tmp_path / "other.gguf"
    file.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=f"version {version}"):
        check_gguf(file)


def test_a_quantisation_unknown_to_the_reader_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    name = b"token_embd.weight"
    kind = content.index(name) + len(name) + 4 + 2 * 8  # after the name: number of dimensions, two dimensions
    content[kind : kind + 4] = (250).to_bytes(4, "little")
    file = tmp_path / "new.gguf"
    file.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=r"'token_embd.weight' is stored in an unknown way .type 250"):
        check_gguf(file)


def test_one_file_of_a_split_model_is_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "split.gguf", extra=lambda writer: writer.add_uint16("split.count", 3))
    with pytest.raises(UnsupportedModelError, match=r"merge them into one file"):
        check_gguf(file)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"holds no language model"):
        check_gguf(write_gguf(tmp_path / "vocabulary.gguf", {}))


def test_scaled_rotary_positions_are_refused_rather_than_lost(tmp_path: Path) -> None:
    stretched = write_gguf(
        tmp_path / "yarn.gguf", extra=lambda writer: writer.add_string("llama.rope.scaling.type", "yarn")
    )
    factors = tensors(source_model())
    factors["rope_freqs.weight"] = factors["output_norm.weight"][:4]
    for file in (stretched, write_gguf(tmp_path / "factors.gguf", factors)):
        with pytest.raises(UnsupportedModelError, match=r"scales its rotary positions"):
            check_gguf(file)
