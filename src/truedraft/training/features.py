"""Features of answers, computed once and kept on disk in half precision, a file a shard of answers.

    shard-00000.jsonl     answers: rows of token ids
    shard-00000.npy       uint16 [tokens of all its rows, taps, H]: the bits of bfloat16 numbers, row after row
    features.json         what they are: model and weights, taps, hidden size, longest row

bfloat16 and not float16, because hidden states of real models go beyond float16's range. Files are mapped into memory,
never read as a whole; a file appears under its name when it is complete, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from truedraft.errors import CorruptModelError, ParameterError
from truedraft.training.rows import AnswerRow, read_answers
from truedraft.training.teacher import Teacher

__all__ = ["FeatureKind", "Row", "compute_features", "load_rows", "shards_of"]

Report = Callable[[int], None]


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
        """Write down what the folder holds, or hold it to what it was written for: raises `ParameterError`."""
        path, text = folder / "features.json", json.dumps(self.__dict__ | {"taps": list(self.taps)}, indent=1)
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", "utf-8")
        elif json.loads(path.read_text("utf-8")) != json.loads(text):
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


def compute_features(teacher: Teacher, shard: Path, folder: Path, *, kind: FeatureKind, report: Report) -> Path:
    """The features of a shard of answers, computed if they are not there yet, or of other answers.

    report: told of tokens as they are done.

    Rows are run in order of length, so that a pass of several is hardly padded.
    """
    kind.check(folder)
    path = _place(shard, folder)
    rows = _cut(read_answers(shard)[0], kind.longest)
    starts = np.cumsum([0, *(len(tokens) for tokens, _ in rows)])
    if path.is_file() and len(np.load(path, mmap_mode="r")) == starts[-1]:
        return path
    part = path.with_suffix(".part")
    shape = (int(starts[-1]), len(kind.taps), kind.hidden_size)
    out = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint16, shape=shape)
    for places in _passes([len(tokens) for tokens, _ in rows]):
        texts = [rows[place][0] for place in places]
        features = teacher.features(_padded(texts)).to(torch.bfloat16).view(torch.uint16)
        for place, text, values in zip(places, texts, features, strict=True):
            out[starts[place] : starts[place] + len(text)] = values[: len(text)].numpy()
        report(sum(map(len, texts)))
    out.flush()
    del out
    part.rename(path)
    return path


def load_rows(shard: Path, folder: Path, kind: FeatureKind) -> list[Row]:
    """The rows of a shard with their features. Raises `CorruptModelError` if answers and features do not match."""
    kind.check(folder)
    path = _place(shard, folder)
    values = torch.from_numpy(np.load(path, mmap_mode="c")).view(torch.bfloat16)
    answers = _cut(read_answers(shard)[0], kind.longest)
    if len(values) != sum(len(tokens) for tokens, _ in answers):
        raise CorruptModelError(f"{path} does not belong to {shard}: delete it to have the features computed again")
    pieces = values.split([len(tokens) for tokens, _ in answers])
    return [
        Row(answer.id, torch.tensor(tokens), piece, len(answer.prompt_ids), answer.temperature == 0)
        for (tokens, answer), piece in zip(answers, pieces, strict=True)
    ]


def _place(shard: Path, folder: Path) -> Path:
    """The file for the features of a shard, packed or not."""
    return folder / f"{shard.name.partition('.')[0]}.npy"


def _cut(answers: Sequence[AnswerRow], longest: int) -> list[tuple[tuple[int, ...], AnswerRow]]:
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
