"""Features of answers, computed once and kept on disk in half precision, a file a shard of answers.

    shard-00000.jsonl     answers: rows of token ids
    shard-00000.npy       uint16 [tokens of all its rows, taps, H]: the bits of bfloat16 numbers, row after row
    shard-00000.crc       a checksum of the token ids that they are of
    features.json         what they are: model and weights, taps, hidden size, longest row

bfloat16 and not float16, because hidden states of real models go beyond float16's range. Files are mapped into memory,
never read as a whole; a file appears under its name when it is complete, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truedraft.errors import CorruptModelError, ParameterError
from truedraft.training.rows import AnswerRow, read_answers
from truedraft.training.teacher import Teacher
from truedraft.training.writing import beside, write_whole, writing

__all__ = ["FeatureKind", "Row", "are_missing", "compute_features", "load_rows", "shards_of"]

Report = Callable[[int], None]

_Texts = Sequence[tuple[tuple[int, ...], AnswerRow]]
"""Token ids, cut to the longest, with the answers that they are of."""


@dataclass(frozen=True)
class FeatureKind:
    """What tells one cache of features from another. owner: names the target; weights: tells them from others of its
    shapes; longest: rows are cut to it.
    """

    owner: str
    weights: int
    taps: tuple[int, ...]
    hidden_size: int
    longest: int

    def check(self, folder: Path) -> None:
        """Write down what the folder holds, or hold it to what it was written for: raises `ParameterError`, and
        `CorruptModelError` where what it says cannot be read.
        """
        path, text = folder / "features.json", json.dumps(self.__dict__ | {"taps": list(self.taps)}, indent=1)
        if not path.is_file():
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda part: part.write_text(text + "\n", "utf-8"))
            return
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise CorruptModelError(
                f"{path} cannot be read: delete {folder} to have features computed again"
            ) from error
        if found != json.loads(text):
            raise ParameterError(f"{folder} holds features of another kind, see {path.name}: choose another folder")


@dataclass(frozen=True, eq=False)
class Row:
    """A text: tokens [T], features [T, taps, H] in bfloat16. The answer begins at token `prompt_length`.

    id: its name. greedy: the answer is the target's likeliest text.
    """

    id: str
    tokens: Tensor
    features: Tensor
    prompt_length: int
    greedy: bool

    def __len__(self) -> int:
        return len(self.tokens)


def shards_of(folder: Path) -> list[Path]:
    """The complete shards of answers in a folder, in order. Raises `ParameterError` if there is none."""
    found = sorted([*folder.glob("shard-*.jsonl"), *folder.glob("shard-*.jsonl.gz")])
    if not found:
        raise ParameterError(f"{folder} has no answers (shard-00000.jsonl and so on): make some with `truedraft data`")
    return found


def are_missing(answers: Path, folder: Path) -> bool:
    """Whether the features of some shard are still to be computed. Raises `ParameterError` if there are no answers."""
    return not all(_place(shard, folder).is_file() for shard in shards_of(answers))


def compute_features(teacher: Teacher, shard: Path, folder: Path, *, kind: FeatureKind, report: Report) -> Path:
    """The features of a shard of answers, computed if they are not there yet, or of other answers.

    report: told of tokens as they are done. Raises `ParameterError` for answers with tokens that the teacher does not
    know, and where features cannot be written.
    """
    kind.check(folder)
    path = _place(shard, folder)
    rows = _cut(read_answers(shard, vocabulary=teacher.vocabulary)[0], kind.longest)
    if _kept(path, rows, kind) is not None:
        return path
    part, mark = beside(path), _mark(path)
    with writing(path):
        mark.unlink(missing_ok=True)  # features without a mark are of no answers
        out = _reserved(part, _shape(rows, kind))
    _fill(out, rows, teacher, report)
    with writing(path):
        out.flush()
        del out
        os.replace(part, path)
    write_whole(mark, lambda place: place.write_text(f"{_checksum(rows)}\n", "utf-8"))
    return path


def _fill(out: Any, rows: _Texts, teacher: Teacher, report: Report) -> None:
    """Rows are run in order of length, so that a pass of several is hardly padded."""
    starts = np.cumsum([0, *(len(tokens) for tokens, _ in rows)])
    for places in _passes([len(tokens) for tokens, _ in rows]):
        texts = [rows[place][0] for place in places]
        features = teacher.features(_padded(texts)).to(torch.bfloat16).view(torch.uint16).cpu()
        for place, text, values in zip(places, texts, features, strict=True):
            out[starts[place] : starts[place] + len(text)] = values[: len(text)].numpy()
        report(sum(map(len, texts)))


def _reserved(path: Path, shape: tuple[int, ...]) -> Any:
    """A file of numbers that is mapped into memory. Its room is taken at once: what is written into a mapped file when
    the disk is full ends the process without a word.
    """
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint16, shape=shape)
    if hasattr(os, "posix_fallocate"):
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # such a file system reserves nothing
                path.unlink(missing_ok=True)
                raise
    return out


def _kept(path: Path, rows: _Texts, kind: FeatureKind) -> Any | None:
    """The features of these texts [tokens, taps, H], mapped into memory; None where the file has not just them."""
    try:
        values = np.load(path, mmap_mode="c")
        is_theirs = _mark(path).read_text("utf-8") == f"{_checksum(rows)}\n"
    except (OSError, ValueError, EOFError):
        return None
    return values if is_theirs and values.shape == _shape(rows, kind) and values.dtype == np.uint16 else None


def _shape(rows: _Texts, kind: FeatureKind) -> tuple[int, int, int]:
    return sum(len(tokens) for tokens, _ in rows), len(kind.taps), kind.hidden_size


def _checksum(rows: _Texts) -> int:
    """Tells texts from others: a checksum of their lengths and token ids."""
    found = 0
    for tokens, _ in rows:
        found = zlib.crc32(np.array([len(tokens), *tokens], dtype="<i8").tobytes(), found)
    return found


def load_rows(shard: Path, folder: Path, kind: FeatureKind) -> list[Row]:
    """The rows of a shard with their features. Raises `CorruptModelError` if answers and features do not match."""
    kind.check(folder)
    path = _place(shard, folder)
    answers = _cut(read_answers(shard)[0], kind.longest)
    kept = _kept(path, answers, kind)
    if kept is None:
        raise CorruptModelError(f"{path} does not belong to {shard}: delete it to have the features computed again")
    pieces = torch.from_numpy(kept).view(torch.bfloat16).split([len(tokens) for tokens, _ in answers])
    return [
        Row(answer.id, torch.tensor(tokens), piece, len(answer.prompt_ids), answer.temperature == 0)
        for (tokens, answer), piece in zip(answers, pieces, strict=True)
    ]


def _place(shard: Path, folder: Path) -> Path:
    """The file for the features of a shard, packed or not."""
    return folder / f"{shard.name.partition('.')[0]}.npy"


def _mark(path: Path) -> Path:
    """The file for the checksum of the texts whose features are in another one."""
    return path.with_suffix(".crc")


def _cut(answers: Sequence[AnswerRow], longest: int) -> _Texts:
    """Texts cut to the longest; those whose answer would vanish are left out."""
    return [(answer.tokens[:longest], answer) for answer in answers if len(answer.prompt_ids) < longest]


_PASS = 4096
"""Tokens, padding included, that the target runs at once."""


def _passes(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows in order of length, cut into passes."""
    group: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and lengths[place] * (len(group) + 1) > _PASS:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _padded(texts: Sequence[Sequence[int]]) -> Tensor:
    """Texts to tokens [B, T], padded on the right, where nothing before sees it."""
    width = max(map(len, texts))
    return torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
