"""What a head remembers of each text: keys and values of slots that read the target's true states, and new states.

A slot reads a state of the target and the token after it. Rows grow by what the target has read and by nothing else:
slots that a draft made of the head's own outputs stand behind the others for one round and are overwritten, so nothing
has to be rolled back, and an accepted guess is not kept as a memory. This file refuses to know nets, rules and trees.

    text       x0  x1  x2  x3  x4     the last token is the next root: the target has not read it
    states     f0  f1  f2  f3
    slots      01  12  23  34         slot i reads state i and token i + 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["HeadRow", "Part", "PassOfHeads", "attend"]

_STEP = 128  # slots


@dataclass(eq=False)
class HeadRow:
    """One text. begin: the position of its first slot, 0 unless the head came late to the text.

    tokens: the text from there on, the next root included. length: slots whose keys and values are there.
    states: those of the target that no slot has read yet, [n, T, Ht] each. output: of the last slot that was run, [H].
    """

    begin: int
    tokens: list[int]
    length: int = 0
    states: list[Tensor] = field(default_factory=list)
    output: Tensor = field(default_factory=lambda: torch.empty(0))
    keys: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))
    values: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))

    def write(self, start: int, key: Tensor, value: Tensor) -> None:
        """Put keys and values [n, g, d] into slots start, start + 1, ..."""
        end = start + len(key)
        if end > self.keys.shape[1]:
            capacity = -(-max(end, self.keys.shape[1] * 5 // 4) // _STEP) * _STEP
            self.keys, self.values = (self._grown(old, key, capacity) for old in (self.keys, self.values))
        self.keys[:, start:end] = key.transpose(0, 1)
        self.values[:, start:end] = value.transpose(0, 1)

    def let_go(self, most: int) -> None:
        """Forget what is older than the last `most` states or some more, if so many wait to be read.

        A head that is not asked for long would else keep the states of all that was written meanwhile.
        """
        waiting = sum(map(len, self.states))
        while waiting - len(self.states[0]) >= most:
            waiting -= len(self.states.pop(0))
            self.length = 0  # what was read before is no longer right before what is read next
        if not self.length:
            forgotten = len(self.tokens) - 1 - waiting
            self.begin, self.tokens = self.begin + forgotten, self.tokens[forgotten:]

    @staticmethod
    def _grown(old: Tensor, like: Tensor, capacity: int) -> Tensor:
        """More room [g, capacity, d], with what is there."""
        new = like.new_zeros(like.shape[1], capacity, like.shape[2])
        if old.numel():
            new[:, : old.shape[1]] = old
        return new


@dataclass(frozen=True, eq=False)
class Part:
    """The share that a row has in a pass: `count` slots from `start` on.

    hidden: bool [count, k], true where a slot does not see one of the last k slots up to the last of these.
    """

    row: HeadRow
    start: int
    count: int
    hidden: Tensor | None = None

    @classmethod
    def text(cls, row: HeadRow, count: int) -> Part:
        """The next `count` slots of the text, each of which sees those before it."""
        hidden = torch.ones(count, count, dtype=torch.bool).triu(1) if count > 1 else None
        return cls(row, row.length, count, hidden)


class PassOfHeads:
    """`nets.attention.Attend` for slots of several rows, one row's after the other: each row sees itself alone."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [N, h, d], key and value [N, g, d] of all parts' slots -> [N, h, d]."""
        mixtures, first = [], 0
        for part in self._parts:
            own = slice(first, first + part.count)
            first += part.count
            part.row.write(part.start, key[own], value[own])
            end = part.start + part.count
            mixtures.append(attend(query[own], part.row.keys[:, :end], part.row.values[:, :end], part.hidden))
        return mixtures[0] if len(mixtures) == 1 else torch.cat(mixtures)


def attend(query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
    """query [n, h, d], keys and values [g, s, d], h a multiple of g; hidden [n, k] of the last k keys -> [n, h, d].

    The queries that share a key head are the rows of one product.
    """
    count, heads, size = query.shape
    groups, slots = keys.shape[:2]
    shared = heads // groups
    rows = query.view(count, groups, shared, size).permute(1, 2, 0, 3).reshape(groups, shared * count, size)
    scores = torch.bmm(rows * size**-0.5, keys.transpose(1, 2))
    if hidden is not None:
        seen = scores.view(groups, shared, count, slots)[..., slots - hidden.shape[1] :]
        seen.masked_fill_(hidden.to(seen.device), -torch.inf)
    mixture = torch.bmm(scores.softmax(-1), values)
    return mixture.view(groups, shared, count, size).permute(2, 0, 1, 3).reshape(count, heads, size)
