"""What one forward pass runs over: the rows, what they hold, and the new nodes of each.

Everything that depends on the shape of the draft is derived from one `Pass`: position ids, where keys and values are
written, and the masks. While a model runs, `current()` gives its pass, so that a mask or attention function which
transformers calls deep inside the model needs no other way to learn it. This file refuses to know models and tensors
of keys.

Slots of a row, here with 4 committed tokens, 2 uncommitted nodes of an earlier pass and 2 fresh ones:

    slot       0  1  2  3 | 4  5 | 6  7      base = 4, start = 6
    parent                 -1  0 | 0  1      node i sits in slot base + i
    position   0  1  2  3 | 4  5 | 5  6      base + depth
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor

__all__ = ["Pass", "Span", "ancestors", "current", "depths_after", "running"]


@dataclass(frozen=True)
class Span:
    """One row's part of a pass.

    row: its row in the cache. base: committed tokens, in slots 0 .. base - 1.
    parents, depths: of all uncommitted nodes; node i sits in slot base + i and stands at position base + depths[i].
    fresh: how many of the nodes, the last ones, are new in this pass.
    """

    row: int
    base: int
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    fresh: int

    @property
    def start(self) -> int:
        """The slot of the first new node."""
        return self.base + len(self.parents) - self.fresh

    @cached_property
    def is_chain(self) -> bool:
        """Whether every uncommitted node follows the one before it: then position and slot are the same."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass over B spans, in ascending order of their rows, padded to the same number of new nodes W.

    A padding node has position 0 and is written behind its row's nodes, where nothing looks. ragged: the model can run
    on the N real nodes alone, one row's behind the other's, as a batch of one; only its attention then sees W.
    """

    spans: tuple[Span, ...]
    device: torch.device
    ragged: bool = False

    @cached_property
    def width(self) -> int:
        """W, the most new nodes that a row has."""
        return max(span.fresh for span in self.spans)

    @cached_property
    def extent(self) -> int:
        """S, the slots that the pass touches: 0 .. S - 1."""
        return max(span.start for span in self.spans) + self.width

    @cached_property
    def is_padded(self) -> bool:
        """Whether some rows have fewer new nodes than others."""
        return any(span.fresh != self.width for span in self.spans)

    @cached_property
    def is_ragged(self) -> bool:
        """Whether the model runs on the real nodes alone."""
        return self.ragged and self.is_padded

    @cached_property
    def columns(self) -> int:
        """How many nodes a row of the model's input has: W, or N if it is ragged."""
        return sum(span.fresh for span in self.spans) if self.is_ragged else self.width

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """(row, column) [N] of the real nodes among the B x W."""
        real = torch.arange(self.width) < torch.tensor([span.fresh for span in self.spans])[:, None]
        rows, columns = real.nonzero(as_tuple=True)
        return rows.to(self.device), columns.to(self.device)

    @cached_property
    def firsts(self) -> Tensor:
        """Where each row's first node [B] stands among the N of a ragged pass."""
        return torch.tensor(self._starts, device=self.device)

    @cached_property
    def wide(self) -> list[tuple[int, slice]]:
        """The rows that have more than one new node, and where these stand among the N of a ragged pass."""
        places = zip(self._starts, self.spans, strict=True)
        return [(row, slice(at, at + span.fresh)) for row, (at, span) in enumerate(places) if span.fresh > 1]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(span.fresh for span in self.spans[:-1])]

    @cached_property
    def is_flush(self) -> bool:
        """Whether the last of the new nodes sits in the last slot in every row, and all of them are chains."""
        return all(span.is_chain and span.base + len(span.parents) == self.extent for span in self.spans)

    @cached_property
    def positions(self) -> Tensor:
        """Position ids [B, W] of the new nodes."""
        rows = [
            [span.base + depth for depth in span.depths[-span.fresh :]] + [0] * (self.width - span.fresh)
            for span in self.spans
        ]
        return torch.tensor(rows, device=self.device)

    @cached_property
    def slot_positions(self) -> Tensor:
        """Position [B, S] of whatever sits in each slot; in unused slots a number beyond every position."""
        positions = torch.arange(self.extent).repeat(len(self.spans), 1)
        for row, span in zip(positions, self.spans, strict=True):
            row[span.base + len(span.parents) :] = torch.iinfo(torch.int32).max
            if not span.is_chain:
                row[span.base : span.base + len(span.parents)] = span.base + torch.tensor(span.depths)
        return positions.to(self.device)


def depths_after(depths: Sequence[int], parents: Sequence[int]) -> tuple[int, ...]:
    """The depths of nodes that are there already, and of new ones with these parents."""
    result = list(depths)
    for parent in parents:
        result.append(result[parent] + 1 if parent >= 0 else 0)
    return tuple(result)


@lru_cache(maxsize=256)
def ancestors(parents: tuple[int, ...]) -> Tensor:
    """Bool [n, n]: row i is true at i and at i's ancestors."""
    mask = torch.eye(len(parents), dtype=torch.bool).numpy()  # numpy: a row's copy costs a tenth of torch's
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return torch.from_numpy(mask)


_CURRENT: ContextVar[Pass | None] = ContextVar("truedraft_pass", default=None)


def current() -> Pass | None:
    """The pass that is running, None outside of one."""
    return _CURRENT.get()


@contextmanager
def running(what: Pass) -> Iterator[None]:
    """Make `what` the current pass."""
    token = _CURRENT.set(what)
    try:
        yield
    finally:
        _CURRENT.reset(token)
