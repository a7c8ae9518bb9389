"""Batches of rows, and what is supervised in them.

All heads are aligned alike. Slot t of a row is a draft that starts behind token t + 1, from what the target knew at
token t; its step j guesses token t + 2 + j, and learns it from what the target says behind token t + 1 + j:

    row, prompt of 3         x0    x1    x2  │ x3    x4    x5
    slot t = 1, step 0             f1 ▶ (x2)   x3                 reads state f1 and token x2, guesses x3 from p(·|..x2)
                step 1                  own    (x3)  x4           reads its own state and x3,  guesses x4 from p(·|..x3)
                step 2                         own  (x4)  x5      reads its own state and x4,  guesses x5 from p(·|..x4)
    slot t = 2, step 0                  f2 ▶   (x3)  x4
    Medusa: head j + 1 is step j; all of them read f1 alone

A guess is supervised if its token exists and, unless prompts are learned too, belongs to the answer. So the first token
of an answer is guessed from slot `prompt_length - 2`, as at run time, and its last one is the last that is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from truedraft.training.features import Row

__all__ = ["Batch", "Order", "Span", "collate", "supervised"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows padded on the right. tokens [B, T]; inputs [B, T, n, H]: the states that a head reads; last [B, T, H]: the
    last hidden state, from which the target's own logits follow; spans [B][J]: the supervised slots of every step.
    """

    tokens: Tensor
    inputs: Tensor
    last: Tensor
    spans: tuple[tuple[Span, ...], ...]

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return replace(self, tokens=self.tokens.to(device), inputs=self.inputs.to(device), last=self.last.to(device))

    @property
    def guesses(self) -> int:
        """How many are supervised."""
        return sum(len(span) for spans in self.spans for span in spans)

    @property
    def steps(self) -> int:
        """J."""
        return len(self.spans[0])

    def ahead(self, values: Tensor, distance: int) -> Tensor:
        """Values [B, T, ...] of the tokens `distance` further on; whatever comes after the end is never supervised."""
        return values.roll(-distance, dims=1)


@dataclass(frozen=True)
class Span:
    """The slots [first, last) whose step `step` is supervised. There may be none."""

    step: int
    first: int
    last: int

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    @property
    def slots(self) -> slice:
        """Where the head's states of these guesses are."""
        return slice(self.first, self.last)

    @property
    def teachers(self) -> slice:
        """The tokens behind which the target says what these guesses learn."""
        return slice(self.first + self.step + 1, self.last + self.step + 1)

    @property
    def tokens(self) -> slice:
        """The tokens that are guessed."""
        return slice(self.first + self.step + 2, self.last + self.step + 2)


def supervised(length: int, begin: int, steps: int) -> list[Span]:
    """The supervised slots of a row, a span a step. begin: the first token that is guessed, usually the answer's."""
    return [Span(step, max(0, begin - step - 2), max(0, length - step - 2)) for step in range(steps)]


def collate(rows: Sequence[Row], columns: Sequence[int], steps: int, *, begin: int | None = None) -> Batch:
    """Rows to a batch. columns: which of the rows' taps a head reads; their last tap gives the target's logits.

    begin: the first token that is guessed; None is where a row's answer begins.
    """
    width = max(map(len, rows))
    taps, hidden = rows[0].features.shape[1:]
    features = rows[0].features.new_zeros(len(rows), width, taps, hidden)
    tokens = torch.zeros(len(rows), width, dtype=torch.int64)
    for place, row in enumerate(rows):
        tokens[place, : len(row)], features[place, : len(row)] = row.tokens, row.features
    return Batch(
        tokens,
        features[:, :, list(columns)],
        features[:, :, -1],
        tuple(tuple(supervised(len(row), row.prompt_length if begin is None else begin, steps)) for row in rows),
    )


@dataclass(frozen=True)
class Order:
    """Which rows are together in a batch, a pure function of seed and epoch, so that a run resumes where it was.

    lengths: of all rows. tokens: of a batch, padding included, at most. Rows of similar length are put together.
    """

    lengths: tuple[int, ...]
    tokens: int
    seed: int = 0

    _POOL = 512
    """Rows that are shuffled into one pool, sorted in it by length, and cut."""

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of an epoch, as places of rows; every row once."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        shuffled = torch.randperm(len(self.lengths), generator=generator).tolist()
        batches = []
        for start in range(0, len(shuffled), self._POOL):
            batches += self._cut(sorted(shuffled[start : start + self._POOL], key=self.lengths.__getitem__))
        return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]

    def _cut(self, pool: Sequence[int]) -> list[list[int]]:
        batches: list[list[int]] = [[]]
        for place in pool:
            if batches[-1] and self.lengths[place] * (len(batches[-1]) + 1) > self.tokens:
                batches.append([])
            batches[-1].append(place)
        return batches
