"""Who sits in which row of the cache, and what each row holds.

The rows in use are always 0 .. active - 1, so that a pass over all of them needs no copies. A row that was freed keeps
its tokens on record until they are overwritten: another text that begins with them need not read them again. This
file knows tokens and keys of sessions, no tensors: `Moves` says what the cache has to do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from truedraft.targets.passes import Span, depths_after

__all__ = ["Moves", "Row", "Rows", "common_prefix"]


class Moves(Protocol):
    """What the cache offers to rows that change places."""

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` slots of one row over another's."""
        ...

    def swap_rows(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` slots of two rows."""
        ...


@dataclass
class Row:
    """What one row of the cache holds.

    tokens: those whose keys and values are in slots 0, 1, ...; the first `length` are committed, the others left over.
    nodes: the tokens of the uncommitted nodes, in the slots behind the committed ones; parents and depths: theirs.
    reserved: how many slots it was promised.
    """

    tokens: list[int] = field(default_factory=list)
    length: int = 0
    nodes: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    reserved: int = 0

    @property
    def start(self) -> int:
        """The first slot behind the committed tokens and the nodes."""
        return self.length + len(self.nodes)

    @property
    def committed(self) -> list[int]:
        """The committed tokens."""
        return self.tokens[: self.length]

    @property
    def used(self) -> int:
        """How many slots hold something."""
        return max(len(self.tokens), self.start)

    def span(self, index: int, parents: Sequence[int]) -> Span:
        """This row, which is the cache's row `index`, with new nodes; nothing is left over behind them."""
        del self.tokens[self.length :]
        depths = depths_after(self.depths, parents)
        return Span(index, self.length, (*self.parents, *parents), depths, len(parents))

    def grow(self, tokens: Sequence[int], span: Span) -> None:
        """The new nodes of a span are in their slots."""
        self.nodes += tuple(tokens)
        self.parents, self.depths = span.parents, span.depths

    def forget(self, length: int) -> None:
        """Keep `length` committed tokens and no node."""
        self.length = length
        self.nodes = self.parents = self.depths = ()

    def settle(self, tokens: Sequence[int]) -> None:
        """The tokens stand in the slots behind the committed ones and are committed now; nodes vanish."""
        self.tokens[self.length :] = tokens
        self.forget(len(self.tokens))


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:  # nearly always so, and fast
        return length
    return next((i for i in range(length) if one[i] != other[i]), length)


class Rows:
    """The rows by key. `held` are all of them; the first `len(self)` are in use."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._places: dict[Hashable, int] = {}
        self.held: list[Row] = []

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def index(self, key: Hashable) -> int:
        """The row of a key that has one."""
        return self._places[key]

    def __getitem__(self, key: Hashable) -> Row:
        return self.held[self._places[key]]

    @property
    def needed(self) -> int:
        """The slots that the rows in use cannot do without."""
        return max((max(row.start, row.reserved) for row in self.held[: len(self)]), default=0)

    @property
    def used(self) -> int:
        """The slots that hold something in some row."""
        return max((row.used for row in self.held), default=0)

    def resize(self, rows: int, capacity: int) -> None:
        """There are this many rows now, of this many slots."""
        del self.held[rows:]
        self.held += [Row() for _ in range(rows - len(self.held))]
        for row in self.held:
            del row.tokens[capacity:]

    def take(self, key: Hashable) -> None:
        """Give the first free row to a key."""
        self._places[key] = len(self)

    def recall(self, key: Hashable, tokens: Sequence[int]) -> int:
        """Commit as many of `tokens` as some row holds already; returns how many that are."""
        if self[key].length == 0:
            self._adopt(self.index(key), tokens)
        row = self[key]
        known = common_prefix(row.tokens[row.length :], tokens)
        row.length += known
        return known

    def _adopt(self, own: int, tokens: Sequence[int]) -> None:
        """Bring the longest beginning of `tokens` that any row holds into an empty one."""
        if common_prefix(self.held[own].tokens, tokens) == len(tokens):
            return  # as in a batch of requests that begin alike
        known = [common_prefix(row.tokens, tokens) for row in self.held]
        best = max(range(len(known)), key=lambda row: (known[row], row == own))
        if known[best] == known[own]:
            return
        if best >= len(self):
            self._swap(own, best)
        else:
            self.held[own].tokens = []
            self._moves.copy_row(best, own, known[best])
            self.held[own].tokens = self.held[best].tokens[: known[best]]

    def free(self, key: Hashable) -> None:
        """Take a key's row out of use. An interruption leaves rows that hold nothing, not another's."""
        index, last = self._places[key], len(self) - 1
        self.held[index].forget(0)
        self.held[index].reserved = 0
        if index != last:
            self._swap(index, last)
            moved = next(key for key, place in self._places.items() if place == last)
            self._places[moved], self._places[key] = index, last
        del self._places[key]

    def forget(self) -> None:
        """Drop what the rows that are not in use still hold."""
        for row in self.held[len(self) :]:
            row.tokens.clear()

    def _swap(self, one: int, other: int) -> None:
        """Exchange two rows: while slots move, neither is known to hold anything."""
        rows = self.held[other], self.held[one]
        self.held[one], self.held[other] = Row(reserved=rows[1].reserved), Row(reserved=rows[0].reserved)
        self._moves.swap_rows(one, other, max(row.used for row in rows))
        self.held[one], self.held[other] = rows
