"""The tokens that a head can say: all of the target's, or the frequent ones.

A head over fewer tokens is cheaper by far, and a token that it cannot say only costs acceptance. Everything outside
the net speaks the target's ids; this file is the one place where the two are told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from truedraft.errors import VocabularyError

__all__ = ["DraftVocabulary"]


@dataclass(frozen=True, eq=False)
class DraftVocabulary:
    """ids [Vd], ascending: the target's id of every draft token. size: V, the target's number of logits."""

    ids: Tensor
    size: int

    def __post_init__(self) -> None:
        ids = self.ids
        if ids.dim() != 1 or len(ids) == 0 or ids.dtype != torch.int64:
            raise VocabularyError(f"a draft vocabulary is a list of int64 ids, got {ids.dtype} {list(ids.shape)}")
        if int(ids[0]) < 0 or int(ids[-1]) >= self.size or bool((ids.diff() <= 0).any()):
            raise VocabularyError(f"a draft vocabulary needs ascending target ids below {self.size}, each once")

    @classmethod
    def full(cls, size: int) -> DraftVocabulary:
        """All of the target's tokens."""
        return cls(torch.arange(size), size)

    @classmethod
    def of_target(cls, given: DraftVocabulary | None, size: int) -> DraftVocabulary:
        """The one that is given, or all tokens of a target with so many logits.

        Raises `VocabularyError` for one of another target.
        """
        if given is not None and given.size != size:
            raise VocabularyError(f"the draft vocabulary is one of {given.size}, not {size} ids")
        return given or cls.full(size)

    @classmethod
    def frequent(cls, counts: Tensor, count: int) -> DraftVocabulary:
        """The `count` tokens that came most often, by counts [V]; among equals those with the lower id."""
        most = torch.sort(counts, descending=True, stable=True).indices[:count]
        return cls(most.sort().values, len(counts))

    @classmethod
    def of_offsets(cls, offsets: Tensor, size: int) -> DraftVocabulary:
        """From offsets [Vd], as EAGLE-3 stores them under `d2t`: target id minus draft id."""
        return cls(offsets.to(torch.int64) + torch.arange(len(offsets)), size)

    def __len__(self) -> int:
        """Vd."""
        return len(self.ids)

    @property
    def is_full(self) -> bool:
        """Whether draft ids are the target's."""
        return len(self) == self.size

    @property
    def offsets(self) -> Tensor:
        """Target id minus draft id [Vd]."""
        return self.ids - torch.arange(len(self))

    @property
    def mask(self) -> Tensor:
        """Bool [V]: which of the target's tokens can be said."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        mask[self.ids] = True
        return mask

    @cached_property
    def places(self) -> Tensor:
        """The draft id of every target id [V]; -1 for a token that cannot be said."""
        places = torch.full((self.size,), -1)
        places[self.ids] = torch.arange(len(self))
        return places

    def scatter(self, logits: Tensor) -> Tensor:
        """Draft logits [..., Vd] to the target's ids [..., V]; a token that cannot be said gets probability 0."""
        if self.is_full:
            return logits
        full = logits.new_full((*logits.shape[:-1], self.size), -torch.inf)
        full[..., self.ids.to(logits.device)] = logits
        return full

    def coverage(self, counts: Tensor) -> float:
        """The share of a text with these token counts [V] that can be said."""
        total = float(counts.sum())
        return float(counts[self.ids].sum()) / total if total else 0.0
