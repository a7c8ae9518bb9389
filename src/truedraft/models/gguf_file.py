"""The header of a GGUF file, read with every length checked against the file's size, and what is refused because of it.

It reads no weights and knows no model library. Format: the GGUF specification, versions 2 and 3, little-endian: magic,
version, counts, metadata pairs, one record a tensor, padding, then the tensors' bytes.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from truedraft.errors import CorruptModelError, UnsupportedModelError

__all__ = ["Header", "Tensor", "check_gguf", "read_header"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
_MOST_DIMENSIONS = 4

Value = str | int | float | bool


@dataclass(frozen=True)
class Tensor:
    """One tensor's record: how many weights it holds and which bytes after the header are its own."""

    name: str
    elements: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself: metadata without its lists, and the tensors."""

    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        """The model family, which also prefixes its metadata keys."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def elements(self) -> int:
        """All weights."""
        return sum(tensor.elements for tensor in self.tensors)

    def integer(self, key: str, default: int) -> int:
        """A metadata value that is a whole number; the default where the key is missing or holds something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) else default


def check_gguf(file: Path) -> Header:
    """The header of a file that can become a model folder without losing anything.

    Raises `CorruptModelError` for a damaged or truncated file and `UnsupportedModelError` for one that is whole but
    would load as another model than the one it describes.
    """
    header = read_header(file)
    if header.integer("split.count", 0) > 1:
        raise UnsupportedModelError(f"{file} is one of several split GGUF files: merge them into one file first")
    if not header.architecture or not header.tensors:
        raise UnsupportedModelError(f"{file} holds no language model: it names no architecture or has no tensors")
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    if scaling != "none" or any(tensor.name.startswith(("rope_freqs", "rope_factors")) for tensor in header.tensors):
        raise UnsupportedModelError(
            f"{file} scales its rotary positions, which is lost when a GGUF file is converted: "
            "give the model's hub id or its original folder instead"
        )
    return header


def read_header(file: Path) -> Header:
    """Read and check the header.

    Raises `CorruptModelError` or, for other versions of the format, `UnsupportedModelError`.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise CorruptModelError(f"{file} is not a GGUF file: it does not begin with 'GGUF'. Download it again")
        try:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(file, data, size).header()
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptModelError(
                f"{file} is damaged or cut off in its header ({size} bytes). Download it again"
            ) from error


class _Reader:
    """Walks through the header; `struct` refuses to read past the end, and no loop runs longer than the bytes left."""

    def __init__(self, file: Path, data: mmap.mmap, size: int) -> None:
        self._file, self._data, self._size = file, data, size
        self._at = 4

    def header(self) -> Header:
        version = self._take("I")
        if version not in (2, 3):
            raise UnsupportedModelError(
                f"{self._file} is GGUF version {version} or big-endian: need version 2 or 3, little-endian"
            )
        tensors, pairs = self._take("Q"), self._take("Q")
        metadata: dict[str, Value] = {}
        for _ in range(self._sane(pairs)):
            key = self._string()
            value = self._value(self._take("I"))
            if value is not None:
                metadata[key] = value
        records = tuple(self._tensor() for _ in range(self._sane(tensors)))
        header = Header(metadata, records)
        self._check_extent(records, max(1, header.integer("general.alignment", _ALIGNMENT)))
        return header

    def _take(self, code: str) -> int:
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value  # type: ignore[no-any-return]  # one item, whose type the code gives

    def _sane(self, count: int) -> int:
        """The count, of bytes or of things that take at least one, if the rest of the file can hold it."""
        if count > self._size - self._at:
            raise struct.error(f"{count} at byte {self._at}")
        return count

    def _skip(self, count: int) -> None:
        self._at += self._sane(count)

    def _string(self) -> str:
        length = self._take("Q")
        self._skip(length)
        return self._data[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Value | None:
        """The next value; None for a list, which is stepped over."""
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._take(_SCALARS[kind])
        if kind != _ARRAY:
            raise struct.error(f"type {kind} at byte {self._at}")
        item, count = self._take("I"), self._take("Q")
        if item in _SCALARS:
            self._skip(count * struct.calcsize(f"<{_SCALARS[item]}"))
        elif item == _STRING:
            for _ in range(self._sane(count)):
                self._skip(self._take("Q"))
        else:
            raise struct.error(f"list of type {item} at byte {self._at}")
        return None

    def _tensor(self) -> Tensor:
        name, dimensions = self._string(), self._take("I")
        if dimensions > _MOST_DIMENSIONS:
            raise struct.error(f"{dimensions} dimensions at byte {self._at}")
        shape = [self._take("Q") for _ in range(dimensions)]
        elements, kind, offset = math.prod(shape), self._take("I"), self._take("Q")
        return Tensor(name, elements, offset, self._stored_bytes(name, elements, kind))

    def _stored_bytes(self, name: str, elements: int, kind: int) -> int:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType  # numpy and more: only who reads such files pays

        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError) as error:
            raise UnsupportedModelError(
                f"{self._file}: tensor {name!r} is stored in an unknown way (type {kind}); the file is damaged, "
                "or newer than the installed gguf package"
            ) from error
        return int(elements // block * block_bytes)

    def _check_extent(self, tensors: tuple[Tensor, ...], alignment: int) -> None:
        start = -(-self._at // alignment) * alignment
        for tensor in tensors:
            end = start + tensor.offset + tensor.nbytes
            if end > self._size:
                raise CorruptModelError(
                    f"{self._file} is cut off: tensor {tensor.name!r} ends at byte {end}, the file at {self._size}. "
                    "Download it again"
                )
