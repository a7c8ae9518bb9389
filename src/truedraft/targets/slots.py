"""The slot cache: keys and values of all layers in buffers that are allocated once and written in place.

transformers' own caches concatenate at every step and know one length for all rows. Here every row has its own
length, a pass writes each row's new nodes behind what it holds, and attention gets views of the slots in use. This
file refuses to know tokens and trees: who sits in which slot is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from truedraft.targets.passes import Pass

__all__ = ["HeadShape", "SlotCache", "SlotLayer"]

HeadShape = tuple[int, int]
"""(heads, head_dim) of one layer's keys or values."""


class SlotLayer(CacheLayerMixin):
    """One layer's share of the pass that is running."""

    is_sliding = False
    """Every layer keeps every slot; a window is the mask's business, so nothing is lost that a rollback needs."""

    targets: tuple[Tensor, Tensor]
    """Where the new keys and values go: views [B, heads, W, dim], or [R, C, heads, dim] if `cells` is set."""
    views: tuple[Tensor, Tensor]
    """What attention sees: views [B, heads, S, dim], or [R, heads, S, dim] if `rows` is set."""
    cells: tuple[Tensor, Tensor] | None = None
    """(row, slot) of the new nodes, [B, W] or [1, N], where they do not start at the same slot of neighbouring rows."""
    rows: Tensor | None = None
    """[B] the rows, where they are not neighbours."""
    width: int = 0
    """W."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values [B, heads, W, dim]; returns all that the pass may see [B, heads, S, dim]."""
        for target, new in zip(self.targets, (key_states, value_states), strict=True):
            if self.cells is None:
                target.copy_(new)
            else:
                target.index_put_(self.cells, new.transpose(1, 2))
        if self.rows is None:
            return self.views
        keys, values = self.views
        return keys.index_select(0, self.rows), values.index_select(0, self.rows)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing is left to do at the first update."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(S, 0): how many slots attention sees, from the first one on."""
        return self.views[0].shape[2], 0

    def get_seq_length(self) -> int:
        """The slots in use before the pass; models ask only when they are given no position ids."""
        return self.views[0].shape[2] - self.width

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1


class SlotCache(Cache):
    """Buffers for R rows of C slots, C the capacity.

    shapes: of layer 0's keys, its values, layer 1's keys, and so on. Layers of equal shapes share one buffer
    [n, R, heads, C, dim], so that moving a row's slots is one operation for all of them.
    """

    def __init__(self, shapes: Sequence[HeadShape], *, dtype: torch.dtype, device: torch.device) -> None:
        self._layers = [SlotLayer() for _ in shapes[::2]]
        super().__init__(layers=[*self._layers])
        self._kinds: dict[HeadShape, list[int]] = {}
        for index, shape in enumerate(shapes):
            self._kinds.setdefault(shape, []).append(index)
        self._buffers = [torch.zeros(len(kind), 0, 0, 0, 0) for kind in self._kinds.values()]
        self.dtype, self.device = dtype, device
        self.rows = self.capacity = 0

    def size(self, rows: int, capacity: int) -> int:
        """Bytes of buffers for so many rows of so many slots."""
        numbers = sum(heads * dim * len(kind) for (heads, dim), kind in self._kinds.items())
        return numbers * rows * capacity * self.dtype.itemsize

    def resize(self, rows: int, capacity: int, *, used: int = 0) -> None:
        """Reallocate. The first `used` slots of rows that exist before and after keep their content."""
        buffers = []
        for (heads, dim), old in zip(self._kinds, self._buffers, strict=True):
            before = old[:, :rows, :, :used]
            buffer = _zeros((len(before), rows, heads, capacity, dim), self.dtype, self.device)
            if before.numel():
                buffer[:, : self.rows, :, :used] = before
            buffers.append(buffer)
        self._buffers, self.rows, self.capacity = buffers, rows, capacity

    def begin(self, what: Pass) -> None:
        """Point every layer at the slots that the pass writes and sees."""
        rows, starts = [span.row for span in what.spans], [span.start for span in what.spans]
        neighbours = rows[-1] - rows[0] == len(rows) - 1
        aligned = neighbours and len(set(starts)) == 1 and not what.is_ragged
        span = slice(rows[0], rows[-1] + 1) if neighbours else slice(None)
        self._point(
            [
                buffer[:, span, :, starts[0] : starts[0] + what.width] if aligned else buffer.transpose(2, 3)
                for buffer in self._buffers
            ],
            [buffer[:, span, :, : what.extent] for buffer in self._buffers],
        )
        index = torch.tensor(rows, device=self.device)
        cells = None if aligned else self._cells(what, index, torch.tensor(starts, device=self.device))
        for layer in self._layers:
            layer.cells = cells
            layer.rows = None if neighbours else index
            layer.width = what.width

    def _cells(self, what: Pass, rows: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """(row, slot) of the new nodes: [B, W], or [1, N] where the model runs on the real ones alone."""
        if what.is_ragged:
            row, column = what.places
            return rows[row][None], (starts[row] + column)[None]
        return rows[:, None], starts[:, None] + torch.arange(what.width, device=self.device)

    def _point(self, targets: Sequence[Tensor], views: Sequence[Tensor]) -> None:
        """Hand each layer its part of the stacked views [n, ...], one pair per kind of layer."""
        ordered: dict[int, tuple[Tensor, Tensor]] = {}
        for kind, target, view in zip(self._kinds.values(), targets, views, strict=True):
            ordered.update(zip(kind, zip(target.unbind(), view.unbind(), strict=True), strict=True))
        for number, layer in enumerate(self._layers):
            (keys_at, keys), (values_at, values) = ordered[2 * number], ordered[2 * number + 1]
            layer.targets, layer.views = (keys_at, values_at), (keys, values)

    def compact(self, row: int, start: int, slots: Sequence[int]) -> None:
        """Move these slots of a row, ascending and none before `start`, to start, start + 1, ..."""
        index = torch.tensor(slots, device=self.device)
        for buffer in self._buffers:
            buffer[:, row, :, start : start + len(slots)] = buffer[:, row].index_select(2, index)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` slots of one row over another's."""
        for buffer in self._buffers:
            buffer[:, target, :, :length] = buffer[:, source, :, :length]

    def swap_rows(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` slots of two rows."""
        for buffer in self._buffers:
            kept = buffer[:, one, :, :length].clone()
            buffer[:, one, :, :length] = buffer[:, other, :, :length]
            buffer[:, other, :, :length] = kept


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros: a slot that nothing was written to is masked, but not a number times zero is not a number.

    On a CPU they come from the system as pages that take memory only once they are written, so that room for a long
    text costs nothing until the text is long.
    """
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)
