"""Does a row's result depend on that row alone? Products and attention are tried with random numbers, bit by bit.

A matrix library sums in an order that may depend on how many rows it is given, where a row stands, and how many
threads run. Which ones do not is a fact about a version and a processor, so it is found out where a model is loaded,
in a fraction of a second. This file refuses to know models.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from truedraft.targets.attention import Heads, Layout, Scoring, attend
from truedraft.targets.passes import Span, ancestors, depths_after

__all__ = ["HeadCount", "find_layout", "is_exact", "least_rows"]

_ROWS = (1, 2, 4, 8, 9, 16)  # libraries change their way behind 1, 3, 4 and 8 rows
_MULTIPLES = (4, 8, 16)
_BLOCKS = (192, 256, 384, 128, 320, 512)
_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 17, 24, 31, 33, 38, 100)
_FEW_WIDTHS = (1, 2, 4, 7, 9, 14, 17, 33)
_LARGE = 8_000_000  # weights; a product with more of them is tried at fewer widths, up to that of a large tree

Parents = tuple[int, ...]
Multiply = Callable[[Tensor], Tensor]
"""x [n, in] -> [n, out]."""

_FEW, _CHAIN, _LONG = (tuple(range(-1, count - 1)) for count in (3, 9, 100))
_TREE: Parents = (-1, 0, 0, 1, 1, 2, 3, 3, 5, 5, 8, 6, 0)  # its paths jump over other nodes


@dataclass(frozen=True)
class HeadCount:
    """The shape of one layer's attention, and the number that its scores are capped at, if they are."""

    query: int
    keys: int
    dim: int
    values_dim: int
    softcap: float | None = None


def least_rows(product_with: Callable[[Tensor], Multiply], weight: Tensor) -> int | None:
    """The fewest rows from which on the product with a weight [out, in] of this shape gives each row the same bits.

    None if there is no such number up to 16. Tried at several numbers of rows, places of a row, and threads.
    """
    widths = _FEW_WIDTHS if weight.numel() > _LARGE else _WIDTHS
    x, paired = _cancelling(weight, 2 * widths[-1])
    multiply = product_with(paired)
    same = dict.fromkeys(widths, True)
    expected = multiply(x)
    for _ in _threads():
        for width, start in product(widths, (0, widths[-1] // 2 + 1)):
            same[width] &= torch.equal(multiply(x[start : start + width]), expected[start : start + width])
    return next((rows for rows in _ROWS if all(same[width] for width in widths if width >= rows)), None)


def _cancelling(weight: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Rows [n, in] and a weight [out, in] of this shape whose products are all rounding, which no two orders share.

    Columns of the weight are equal in pairs, and rows of opposite sign there. Of other sums, a result in few bits would
    seldom show that they were added up otherwise.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(weight.shape[1], generator=generator)
    half = len(order) // 2
    one, other = order[:half], order[half : 2 * half]
    paired = weight.detach().clone()
    paired[:, other] = paired[:, one]
    x = _random(generator, rows, len(order)).to(weight.dtype)
    x[:, order[2 * half :]] = 0  # an odd one out
    x[:, other] = -x[:, one]
    return x, paired


def find_layout(heads: Collection[HeadCount]) -> Layout | None:
    """The first layout that is exact for all these shapes, the fastest kind first; None if there is none."""
    layouts = (Layout(rows, block, exact=True) for block, rows in product(_BLOCKS, _MULTIPLES))
    return next((layout for layout in layouts if all(is_exact(layout, shape) for shape in heads)), None)


def is_exact(layout: Layout, heads: HeadCount) -> bool:
    """Whether attention of this shape gives every node of chains and trees the bits that it has when decoded alone.

    Tried at prefixes around the multiples of a block, in batches, and with several numbers of threads.
    """
    block = layout.block or _BLOCKS[0]
    generator = torch.Generator().manual_seed(0)
    single = [
        *((base, _FEW) for base in (block - 2, 0, 2 * block - 1, block + 9)),
        *((base, _TREE) for base in (block + 1, 2 * block + 1, block - 5, 3 * block + 1, 0)),
        *((base, _CHAIN) for base in (17, block - 7, 2 * block - 30, 5 * block + 40)),
        (2 * block - 90, _LONG),
    ]
    batch = [(2 * block + 7, _TREE), (block - 4, _CHAIN), (2 * block - 5, _TREE)]
    passes = [batch, *([row] for row in single)]
    return all(_holds(layout, heads, rows, generator) for rows in passes)


def _holds(layout: Layout, heads: HeadCount, rows: Sequence[tuple[int, Parents]], generator: torch.Generator) -> bool:
    """Whether nodes with these parents, behind so many tokens, have together the bits that each has alone."""
    spans = [Span(row, base, tree, depths_after((), tree), len(tree)) for row, (base, tree) in enumerate(rows)]
    width, extent = max(span.fresh for span in spans), max(span.base + span.fresh for span in spans)
    query = _random(generator, len(rows), heads.query, width, heads.dim)
    keys = _random(generator, len(rows), heads.keys, extent + 5, heads.dim)[:, :, :extent]
    values = _random(generator, len(rows), heads.keys, extent + 5, heads.values_dim)[:, :, :extent]
    together = Heads(query, keys, values, _causal(spans, width, extent))
    scoring = Scoring(heads.dim**-0.5, layout, heads.softcap)
    alone = {
        (row, node): attend(_alone(together, row, node, span), scoring)[0, 0]
        for row, span in enumerate(spans)
        for node in {0, 1, span.fresh // 2, span.fresh - 2, span.fresh - 1}
    }
    for _ in _threads():
        outputs = attend(together, scoring, spans=spans)
        if not all(torch.equal(outputs[place], expected) for place, expected in alone.items()):
            return False
    return True


def _causal(spans: Sequence[Span], width: int, extent: int) -> Tensor:
    """A mask [B, 1, W, S] in positions."""
    mask = torch.full((len(spans), 1, width, extent), torch.finfo(torch.float32).min)
    for row, span in enumerate(spans):
        for node, depth in enumerate(span.depths):
            mask[row, 0, node, : span.base + depth + 1] = 0
        mask[row, 0, span.fresh :, 0] = 0
    return mask


def _alone(heads: Heads, row: int, node: int, span: Span) -> Heads:
    """The node as plain decoding would run it: nothing but its path behind the tokens."""
    path = ancestors(span.parents)[node].nonzero().flatten() + span.base
    slots = torch.cat([torch.arange(span.base), path])
    one = heads.row(row).part([node], heads.columns)
    return Heads(one.query, one.keys[:, :, slots], one.values[:, :, slots], torch.zeros(1, 1, 1, len(slots)))


def _random(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _threads() -> Iterator[int]:
    """Let the body run with one thread and with as many as there are now."""
    now = torch.get_num_threads()
    try:
        for count in sorted({1, now}):
            torch.set_num_threads(count)
            yield count
    finally:
        torch.set_num_threads(now)
