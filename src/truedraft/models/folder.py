"""Is this folder a whole model? Asked of every folder before it is loaded, from headers and sizes, in milliseconds.

It reads no weights and mends nothing. Format of safetensors files: 8 bytes little-endian length of a JSON header, the
header, the tensors' bytes; the header says where the last byte is.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from truedraft.errors import CorruptModelError, UnsupportedModelError

__all__ = ["check_folder"]

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_LFS_POINTER = b"version https://git-lfs"


def check_folder(folder: Path, *, allow_pickle: bool = False) -> None:
    """Return if the folder holds a config and all of its weights.

    Raises `CorruptModelError`, which names the file that is missing, cut off or damaged, and `UnsupportedModelError`
    where the only weights are pickled, because loading those runs code, and `allow_pickle` is false.
    """
    _json(folder / "config.json")
    if (folder / _WEIGHTS).exists():
        _tensors(folder / _WEIGHTS)
    elif (folder / _INDEX).exists():
        _check_shards(folder)
    elif not any((folder / name).exists() for name in _PICKLES):
        raise CorruptModelError(f"{folder} holds no {_WEIGHTS}: {_instead(folder)}")
    elif not allow_pickle:
        raise UnsupportedModelError(
            f"{folder} holds pickled weights only, and loading those can run any code: "
            "pass --allow-pickle (allow_pickle=True) if you trust their source"
        )
    else:
        _check_pickles(folder)


def _check_pickles(folder: Path) -> None:
    """That the files are there. How long a pickle should be, only reading it tells."""
    whole, index = (folder / name for name in _PICKLES)
    for name in [whole.name] if whole.exists() else sorted(set(_shards(index).values())):
        file = folder / str(name)
        if not file.is_file() or not file.stat().st_size:
            raise CorruptModelError(f"{file} is missing or empty. Download the model again")
        with file.open("rb") as stream:
            _refuse_pointer(file, stream.read(len(_LFS_POINTER)))


def _shards(index: Path) -> dict[str, Any]:
    """The shard of every tensor, by an index."""
    shard_of = _json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise CorruptModelError(f"{index} is damaged: it has no weight_map. Download it again")
    return shard_of


def _refuse_pointer(file: Path, start: bytes) -> None:
    if start == _LFS_POINTER:
        raise CorruptModelError(f"{file} is a Git LFS pointer, not the weights: run `git lfs pull` in its folder")


def _check_shards(folder: Path) -> None:
    shard_of = _shards(folder / _INDEX)
    held = {shard: _tensors(folder / str(shard)) for shard in sorted(set(shard_of.values()))}
    for tensor, shard in shard_of.items():
        if tensor not in held[shard]:
            raise CorruptModelError(f"{folder / shard} lacks the tensor {tensor!r} that {_INDEX} promises in it")


def _tensors(file: Path) -> set[str]:
    """The names of the tensors in a safetensors file, of which every byte is there."""
    header, start = _header(file)
    tensors = {name: value for name, value in header.items() if name != "__metadata__"}
    try:
        end = start + max((value["data_offsets"][1] for value in tensors.values()), default=0)
    except (TypeError, KeyError, IndexError) as error:
        raise CorruptModelError(f"{file} is damaged in its header. Download it again") from error
    if file.stat().st_size != end:
        raise CorruptModelError(
            f"{file} has {file.stat().st_size} bytes instead of {end}: it is cut off or damaged. Download it again"
        )
    return set(tensors)


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """The JSON header of a safetensors file, and where it ends."""
    if not file.is_file():
        raise CorruptModelError(f"{file} is missing. Download the model again")
    with file.open("rb") as stream:
        start = stream.read(len(_LFS_POINTER))
        _refuse_pointer(file, start)
        try:
            (length,) = struct.unpack_from("<Q", start)
            stream.seek(8)
            header = json.loads(stream.read(min(length, file.stat().st_size)))
        except (struct.error, ValueError) as error:
            raise CorruptModelError(f"{file} is cut off or damaged in its header. Download it again") from error
    if not isinstance(header, dict):
        raise CorruptModelError(f"{file} is damaged in its header. Download it again")
    return header, 8 + length


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise CorruptModelError(f"{file.parent} holds no {file.name}: {_instead(file.parent)}")
    try:
        value = json.loads(file.read_bytes())
    except ValueError as error:
        raise CorruptModelError(f"{file} is not valid JSON ({error}). Download it again") from error
    if not isinstance(value, dict):
        raise CorruptModelError(f"{file} must hold a JSON object. Download it again")
    return value


def _instead(folder: Path) -> str:
    """What to do about a folder that is no model folder."""
    ggufs = sorted(folder.glob("*.gguf"))
    if ggufs:
        return f"give the file {ggufs[0]} instead of the folder"
    return "give a model folder with a config.json and safetensors weights, or download the model again"
