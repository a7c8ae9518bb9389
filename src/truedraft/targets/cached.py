"""A causal language model with a slot cache: rows of committed tokens, each followed by a tree of uncommitted nodes.

The target and every drafter that is a model run on it. It knows no session, no rule and no sampling parameter: rows
are named by any hashable key, and tokens come and go as the caller says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truedraft.core import Scores

__all__ = ["CachedModel", "Nodes"]


@dataclass(frozen=True)
class Nodes:
    """New, not yet committed nodes of one row.

    tokens [n] and parents [n] are parallel. A parent is an index into the row's uncommitted nodes so far, those of
    earlier `extend` calls first, then these; -1 stands directly after the committed prefix.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]


class CachedModel:
    """A causal language model and the keys and values of its rows."""

    vocab_size: int
    context_length: int | None
    layers: int
    hidden_size: int
    device: torch.device
    dtype: torch.dtype

    def __init__(self, model: torch.nn.Module, *, chunk: int = 512) -> None:
        raise NotImplementedError

    def reserve(self, key: Hashable, length: int) -> None:
        """Make sure that the row can hold `length` slots; `OutOfMemoryError` before anything is allocated."""
        raise NotImplementedError

    def cached(self, key: Hashable) -> int:
        """How many committed tokens the row holds; 0 if it is unknown."""
        raise NotImplementedError

    def read(self, key: Hashable, tokens: Sequence[int], taps: Sequence[int] = ()) -> Tensor | None:
        """Append committed tokens [P]; no logits are computed. Features [P, T, H], None without taps."""
        raise NotImplementedError

    def extend(self, keys: Sequence[Hashable], nodes: Sequence[Nodes], taps: Sequence[int] = ()) -> list[Scores]:
        """One forward pass over several rows; per row logits [n, V] and features [n, T, H] of the new nodes."""
        raise NotImplementedError

    def keep(self, key: Hashable, path: Sequence[int]) -> None:
        """The uncommitted nodes on `path` become committed, in this order; all others vanish."""
        raise NotImplementedError

    def rewind(self, key: Hashable, length: int) -> None:
        """Forget the committed tokens beyond `length`, and every uncommitted node."""
        raise NotImplementedError

    def release(self, key: Hashable) -> None:
        """Free the row; nothing happens if it is unknown."""
        raise NotImplementedError
