"""Our own attention for transformers' interface: grouped heads without copies of keys and values, and exact if asked.

All query heads that share a key head, and all new nodes, are the rows of one matrix product with that head's keys and
of one with its values. An exact `Layout` makes the bits of every row depend on its own query and path alone, because
everything lies where plain decoding would have put it:

    columns   scores are moved from slots to positions before the softmax, and weights back before they meet the values
    rows      a product has a multiple of so many rows that the library sums each of them in the same way
    blocks    the library sums columns in order within blocks of a fixed size, and adds the blocks in order

What is masked weighs exactly 0 and changes no sum. Whether a layout is exact belongs to a library and a processor;
`exact` finds out. This file refuses to know models and what masks mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

from truedraft.targets.masks import MASKED_ATTENTION
from truedraft.targets.passes import Span, ancestors, current

__all__ = ["PLAIN", "Heads", "Layout", "Scoring", "attend", "register"]

_LEAST_COLUMNS = 32  # sums over a few columns are special to libraries
_NOTHING = torch.zeros(())  # what products are added to, times 0
_TILE = 64  # new nodes at a time: the scores of more of them outgrow the processor's caches


@dataclass(frozen=True)
class Layout:
    """How attention is laid out.

    rows: a product is given a multiple of so many. block: how many columns the library sums in order; 0 if that is
    not known. exact: whether scores stand at positions, which the mask then has to expect.
    """

    rows: int = 1
    block: int = 0
    exact: bool = False

    @property
    def name(self) -> str:
        """How transformers knows it."""
        return f"truedraft-exact-{self.rows}-{self.block}" if self.exact else "truedraft"

    def holds(self, span: Span) -> bool:
        """Whether a row's nodes can be moved between slots and positions without leaving their block."""
        last = span.base + len(span.parents) - 1
        return span.is_chain or (self.block > 0 and span.base // self.block == last // self.block)


PLAIN = Layout()
"""Fast, and not exact: a tree's nodes are told apart by the mask."""


@dataclass(frozen=True)
class Scoring:
    """What turns products of queries and keys into scores."""

    scale: float
    layout: Layout = PLAIN
    softcap: float | None = None


@dataclass(frozen=True, eq=False)
class Heads:
    """What attends to what: query [B, H, W, D], keys [B, G, S, D], values [B, G, S, E], additive mask [B, 1, W, S].

    H is a multiple of G. Keys, values and mask may be views; only exact trees write to keys and values, for a moment.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None = None

    @property
    def columns(self) -> int:
        """S."""
        return self.keys.shape[2]

    def row(self, row: int) -> Heads:
        """One of the B rows."""
        one = slice(row, row + 1)
        return Heads(self.query[one], self.keys[one], self.values[one], None if self.mask is None else self.mask[one])

    def asking(self, query: Tensor) -> Heads:
        """Other queries."""
        return Heads(query, self.keys, self.values, self.mask)

    def widened(self, columns: int) -> Heads:
        """At least so many columns; those that are added are zeros, and masked."""
        more = columns - self.columns
        if more <= 0:
            return self
        keys, values = (functional.pad(tensor, (0, 0, 0, more)) for tensor in (self.keys, self.values))
        mask = self.query.new_zeros(1, 1, 1, self.columns) if self.mask is None else self.mask
        return Heads(self.query, keys, values, functional.pad(mask, (0, more), value=torch.finfo(mask.dtype).min))

    def part(self, nodes: slice | list[int], columns: int) -> Heads:
        """Some of the W nodes and the first columns."""
        mask = None if self.mask is None else self.mask[:, :, nodes, :columns]
        return Heads(self.query[:, :, nodes], self.keys[:, :, :columns], self.values[:, :, :columns], mask)


def register(layout: Layout) -> str:
    """Make a layout known to transformers; returns the name to load a model with."""
    AttentionInterface.register(layout.name, partial(_forward, layout=layout))
    AttentionMaskInterface.register(layout.name, MASKED_ATTENTION["truedraft-exact" if layout.exact else "truedraft"])
    return layout.name


def _forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function as transformers calls it; the output is [B, W, H, E]."""
    unknown = [name for name in ("position_bias", "s_aux") if options.get(name) is not None]
    if unknown:
        raise ValueError(f"this attention does not know {', '.join(unknown)}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    what = current()
    scoring = Scoring(scale, layout, options.get("softcap"))
    return attend(Heads(query, key, value, attention_mask), scoring, spans=() if what is None else what.spans), None


def attend(heads: Heads, scoring: Scoring, *, spans: Sequence[Span] = ()) -> Tensor:
    """Attention [B, W, H, E]. The mask is in positions for exact layouts, in slots for others.

    spans: which rows are trees, and where the new nodes start; without them all rows are chains.
    """
    layout = scoring.layout
    if layout.exact and not all(map(layout.holds, spans)):
        return torch.cat([_one_row(heads.row(row), scoring, span) for row, span in enumerate(spans)])
    if layout.exact and not all(span.is_chain for span in spans):
        return _grouped(heads, scoring, trees=spans)
    width = heads.query.shape[2]
    if width <= _TILE:
        return _grouped(heads, scoring)
    reach = max((span.start for span in spans), default=heads.columns)
    parts = [
        heads.part(slice(start, start + _TILE), min(heads.columns, reach + start + _TILE))
        for start in range(0, width, _TILE)
    ]
    return torch.cat([_grouped(part, scoring) for part in parts], dim=1)


def _one_row(heads: Heads, scoring: Scoring, span: Span) -> Tensor:
    """Attention [1, W, H, E] of one row."""
    if scoring.layout.holds(span):
        return attend(heads, scoring, spans=[span])
    return _path_by_path(heads, scoring, span)


def _grouped(heads: Heads, scoring: Scoring, *, trees: Sequence[Span] = ()) -> Tensor:
    """Attention [B, W, H, E] of all nodes in two products a key head."""
    layout = scoring.layout
    heads = heads.widened(_LEAST_COLUMNS) if layout.exact else heads
    batch, queries, width, _ = heads.query.shape
    groups = heads.keys.shape[1]
    shared = queries // groups
    used = shared * width
    by_node = (batch, groups, shared, width, -1)
    rows = _rows(heads.query, by_node, -(-used // layout.rows) * layout.rows)
    keys = heads.keys.flatten(0, 1).transpose(1, 2)
    products = torch.baddbmm(_NOTHING, rows, keys, beta=0, alpha=scoring.scale)
    scores = products[:, :used].view(by_node)
    if scoring.softcap is not None:
        scores.copy_(torch.tanh(scores / scoring.softcap) * scoring.softcap)
    for row, span in enumerate(trees):
        _to_positions(scores[row], span)
    if heads.mask is not None:
        scores += heads.mask[:, :, None]
    weights = torch.softmax(products, -1)
    for row, span in enumerate(trees):
        _to_slots(weights[:, :used].view(by_node)[row], span)
    mixed = _mix(weights, heads.values.flatten(0, 1), layout.block)[:, :used]
    if width > 1:
        mixed = mixed.view(by_node).permute(0, 3, 1, 2, 4)
    return mixed.reshape(batch, width, queries, -1)


def _rows(query: Tensor, by_node: tuple[int, ...], count: int) -> Tensor:
    """Queries [B, H, W, D] as the rows [B * G, count, D] of their key heads; what stands in rows to spare is arbitrary.

    A single node's queries lie like that already if its rows to spare may be the next heads, and be read behind them.
    """
    batch, groups, shared, width, _ = by_node
    dim = query.shape[3]
    if batch == width == 1 and query.stride(1) == dim and query.stride(3) == 1:
        last = query.storage_offset() + ((groups - 1) * shared + count) * dim
        if last * query.element_size() <= query.untyped_storage().nbytes():
            return query.as_strided((groups, count, dim), (shared * dim, dim, 1))
    rows = query.new_zeros(batch * groups, count, dim)
    rows[:, : shared * width].view(by_node).copy_(query.view(batch, groups, shared, width, dim))
    return rows


def _mix(weights: Tensor, values: Tensor, block: int) -> Tensor:
    """weights [n, R, S] times values [n, S, E], summed by blocks.

    The library does it itself unless there is more than one block but less than two: these it would halve.
    """
    if not block < weights.shape[2] < 2 * block:
        return torch.bmm(weights, values)
    others, their_values = weights[..., block:], values[:, block:]
    if (short := block + _LEAST_COLUMNS - weights.shape[2]) > 0:
        others, their_values = functional.pad(others, (0, short)), functional.pad(their_values, (0, 0, 0, short))
    return torch.bmm(weights[..., :block], values[:, :block]).baddbmm_(others, their_values)


# ── trees ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def _moves(parents: tuple[int, ...], fresh: int) -> tuple[Tensor, Tensor, Tensor]:
    """For a tree of n nodes: the ancestor [fresh, n] of each new node at each depth, the depth [n] of each node, and
    bool [fresh, n] which nodes are ancestors.

    A new node is its own last ancestor; deeper entries are arbitrary.
    """
    mask = ancestors(parents)
    depths = mask.sum(1) - 1
    lineage = torch.zeros_like(mask, dtype=torch.long)
    row, node = mask.nonzero(as_tuple=True)
    lineage[row, depths[node]] = node
    return lineage[-fresh:], depths, mask[-fresh:]


def _to_positions(scores: Tensor, span: Span) -> None:
    """Move scores [G, g, W, S] of one row from the slots of its nodes to the positions that they stand at."""
    if not span.is_chain:
        lineage, _, _ = _moves(span.parents, span.fresh)
        window = scores[:, :, : span.fresh, span.base : span.base + len(span.parents)]
        window.copy_(window.gather(-1, lineage.expand_as(window)))


def _to_slots(weights: Tensor, span: Span) -> None:
    """Move weights [G, g, W, S] of one row back; nodes that are no ancestors weigh 0."""
    if not span.is_chain:
        _, depths, related = _moves(span.parents, span.fresh)
        window = weights[:, :, : span.fresh, span.base : span.base + len(span.parents)]
        window.copy_(window.index_select(-1, depths) * related)


def _path_by_path(heads: Heads, scoring: Scoring, span: Span) -> Tensor:
    """Attention [1, W, H, E] of a tree: its paths one after the other, each moved right behind the committed tokens."""
    nodes, first = len(span.parents), len(span.parents) - span.fresh
    output = heads.query.new_zeros(1, heads.query.shape[2], heads.query.shape[1], heads.values.shape[3])
    tails = [tensor[:, :, span.base : span.base + nodes] for tensor in (heads.keys, heads.values)]
    kept = [tail.clone() for tail in tails]
    for leaf in sorted(set(range(first, nodes)) - set(span.parents)):
        path = ancestors(span.parents)[leaf].nonzero().flatten().tolist()
        for tail, nodes_before in zip(tails, kept, strict=True):
            tail[:, :, : len(path)] = nodes_before[:, :, path]
        new = [node - first for node in path if node >= first]
        output[:, new] = attend(heads.part(new, span.base + len(path)), scoring)
    for tail, nodes_before in zip(tails, kept, strict=True):
        tail.copy_(nodes_before)
    return output
