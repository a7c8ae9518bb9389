"""Attention of a pass without padding: the rest of the model runs on the real nodes alone, rows attend to their own.

This file refuses to know models and layouts.
"""

from __future__ import annotations

from torch import Tensor

from truedraft.targets.attention import Heads, Scoring, attend
from truedraft.targets.passes import Pass, Span

__all__ = ["attend_ragged"]

_ALONE = 16384
"""Scores of a node that take as long as one more product, for a row alone."""

_CHAIN = Span(0, 0, (-1,), (0,), 1)
"""In place of a row whose nodes attend on their own."""


def attend_ragged(query: Tensor, heads: Heads, scoring: Scoring, what: Pass) -> Tensor:
    """Attention [1, N, H, E] of the real nodes [1, H, N, D] of a ragged pass. heads: what they attend to, of all rows.

    Where few rows have more than one node, all attend with their first one, as in plain decoding, and those few once
    more alone: padded to the widest of them, every row would pay for it.
    """
    wide = len(what.wide)
    if wide * _ALONE >= (len(what.spans) - wide) * (what.width - 1) * heads.columns:
        return attend(heads.asking(_spread(query, what)), scoring, spans=what.spans)[what.places][None]
    firsts = query[0].index_select(1, what.firsts).transpose(0, 1)[:, :, None]
    first_of_all = heads.asking(firsts).part(slice(0, 1), heads.columns)
    alone = attend(first_of_all, scoring, spans=[span if span.fresh == 1 else _CHAIN for span in what.spans])
    mixed = alone.new_empty(query.shape[2], *alone.shape[2:]).index_copy_(0, what.firsts, alone[:, 0])
    for row, own in what.wide:
        span = what.spans[row]
        part = heads.row(row).asking(query[:, :, own]).part(slice(0, span.fresh), heads.columns)
        mixed[own] = attend(part, scoring, spans=[span])[0]
    return mixed[None]


def _spread(query: Tensor, what: Pass) -> Tensor:
    """Queries [1, H, N, D] of a ragged pass as [B, H, W, D]; padding asks for nothing."""
    _, heads, _, dim = query.shape
    spread = query.new_zeros(len(what.spans), what.width, heads, dim)
    return spread.index_put_(what.places, query[0].transpose(0, 1)).transpose(1, 2)
