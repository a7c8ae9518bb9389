"""Who attends to what: whole rows, and rows that are unrolled over several draft steps.

A layer makes queries, keys and values and asks an `Attend` for the mixture, so the same layer serves training, where
rows are whole, and drafting, where keys are kept by the drafter.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["Attend", "Causal", "Unrolled"]


class Attend(Protocol):
    """Mixes values by attention."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [..., h, d], key and value [..., g, d] of the tokens that are run, to mixtures [..., h, d]."""
        ...


class Causal:
    """Attention of whole rows [B, T, ...]: position t sees 0 .. t. Rows are padded on the right, if at all."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [B, T, h, d], key and value [B, T, g, d] -> [B, T, h, d]."""
        query, key, value = (each.transpose(-3, -2) for each in (query, key, value))
        grouped = query.shape[-3] != key.shape[-3]
        return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped).transpose(-3, -2)


class Unrolled:
    """Attention of whole rows over successive draft steps: EAGLE-3's training-time test (Li et al. 2025, section 3.2).

    Slot t of step 0 stands for the text up to token t + 1, slot t of step j for a draft of j more tokens behind it:

        step 0   slot t sees the keys of step 0 at 0 .. t                               as a committed token does
        step j   slot t sees those, and the keys of steps 1 .. j at t only              its own draft and no other

    Call it once a step, in order, with the queries, keys and values of all slots. One object serves one unrolling.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Tensor, Tensor]] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [B, T, h, d], key and value [B, T, g, d] -> [B, T, h, d]."""
        self._steps.append((key, value))
        if len(self._steps) == 1:
            return Causal()(query, key, value)
        batch, length, heads, size = query.shape
        groups = key.shape[2]
        query = query.view(batch, length, groups, heads // groups, size) * size**-0.5
        first_key, first_value = self._steps[0]
        committed = torch.einsum("btgrd,bsgd->bgrts", query, first_key)
        ahead = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        committed = committed.masked_fill(ahead, -torch.inf)
        drafted = [torch.einsum("btgrd,btgd->bgrt", query, step)[..., None] for step, _ in self._steps[1:]]
        wide = torch.promote_types(query.dtype, torch.float32)
        weights = torch.cat([committed, *drafted], dim=-1).softmax(-1, dtype=wide).to(query.dtype)
        mixture = torch.einsum("bgrts,bsgd->btgrd", weights[..., :length], first_value)
        for place, (_, step) in enumerate(self._steps[1:], start=length):
            mixture = mixture + torch.einsum("bgrt,btgd->btgrd", weights[..., place], step)
        return mixture.reshape(batch, length, heads, size)
