"""Acceptance on texts that were not learned: what early stopping and learning curves go by, not the loss.

A greedy text is the target's own argmax, so a draft behind any of its tokens is accepted exactly as far as it agrees
with the text. That gives acceptance by position and, by walking through a text round by round, tokens per pass of a
chain, without running the target once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Tally"]


@dataclass(frozen=True)
class Tally:
    """Counts over texts. tried [J], hit [J]: drafts that got to step j, and agreed there.

    near: first guesses whose token was among the best four. rounds, emitted: of chains of J tokens.
    """

    tried: tuple[int, ...]
    hit: tuple[int, ...]
    near: int = 0
    rounds: int = 0
    emitted: int = 0

    @classmethod
    def empty(cls, steps: int) -> Tally:
        """Nothing counted yet."""
        return cls((0,) * steps, (0,) * steps)

    @classmethod
    def of(cls, hits: Tensor, near: int = 0) -> Tally:
        """One text. hits [slots, J]: whether step j of a slot agrees; the slots are those that begin in the answer."""
        lasting = hits.cumprod(1).bool()
        steps = hits.shape[1]
        left = torch.arange(len(hits), 0, -1)  # guesses that the text has room for behind a slot
        tried = [
            int((lasting[:, step - 1] if step else torch.ones_like(left, dtype=torch.bool))[left > step].sum())
            for step in range(steps)
        ]
        accepted = lasting.sum(1).tolist()
        slot = rounds = 0
        while slot < len(hits):
            rounds, slot = rounds + 1, slot + accepted[slot] + 1
        return cls(tuple(tried), tuple(lasting.sum(0).tolist()), near, rounds, len(hits))

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            tuple(map(sum, zip(self.tried, other.tried, strict=True))),
            tuple(map(sum, zip(self.hit, other.hit, strict=True))),
            self.near + other.near,
            self.rounds + other.rounds,
            self.emitted + other.emitted,
        )

    @property
    def by_position(self) -> tuple[float, ...]:
        """Of the drafts that got to a step, the share that agreed there."""
        return tuple(hit / tried if tried else 0.0 for hit, tried in zip(self.hit, self.tried, strict=True))

    @property
    def near_rate(self) -> float:
        """The share of first guesses whose token was among the best four."""
        return self.near / self.tried[0] if self.tried[0] else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Of greedy decoding with chains as long as there are steps."""
        return self.emitted / self.rounds if self.rounds else 1.0
