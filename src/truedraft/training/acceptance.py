"""Acceptance on texts that were not learned: what early stopping and learning curves go by, not the loss.

A greedy text is the target's own argmax, so a draft behind any of its tokens is accepted exactly as far as it agrees
with the text. That gives acceptance by position and, by walking through a text round by round, tokens per pass of a
chain, without running the target once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["RANKS", "Tally"]

RANKS = 10
"""Choices of a head that are looked at."""


@dataclass(frozen=True)
class Tally:
    """Counts over texts. tried [J], hit [J]: drafts that got to step j, and agreed there.

    rounds, emitted: of chains of J tokens. ranks [J][R]: guesses of step j, whatever became of those before, whose
    token was the head's first, second ... choice; guesses [J]: how many there were.
    """

    tried: tuple[int, ...]
    hit: tuple[int, ...]
    rounds: int = 0
    emitted: int = 0
    ranks: tuple[tuple[int, ...], ...] = ()
    guesses: tuple[int, ...] = ()

    @classmethod
    def empty(cls, steps: int) -> Tally:
        """Nothing counted yet."""
        none = (0,) * steps
        return cls(none, none, ranks=((0,) * RANKS,) * steps, guesses=none)

    @classmethod
    def of(cls, hits: Tensor, *, ranks: Sequence[Sequence[int]] = (), guesses: Sequence[int] = ()) -> Tally:
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
        hit = tuple(lasting.sum(0).tolist())
        return cls(tuple(tried), hit, rounds, len(hits), tuple(map(tuple, ranks)), tuple(guesses))

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            _sums(self.tried, other.tried),
            _sums(self.hit, other.hit),
            self.rounds + other.rounds,
            self.emitted + other.emitted,
            tuple(map(_sums, self.ranks, other.ranks)),
            _sums(self.guesses, other.guesses),
        )

    @property
    def by_position(self) -> tuple[float, ...]:
        """Of the drafts that got to a step, the share that agreed there."""
        return tuple(hit / tried if tried else 0.0 for hit, tried in zip(self.hit, self.tried, strict=True))

    @property
    def by_rank(self) -> tuple[tuple[float, ...], ...]:
        """Of all guesses of a step, the share whose token was the head's first, second ... choice [J][R]."""
        pairs = zip(self.ranks, self.guesses, strict=True)
        return tuple(tuple(count / max(1, guesses) for count in counts) for counts, guesses in pairs)

    @property
    def near(self) -> float:
        """The share of first guesses whose token was among the best four."""
        return sum(self.by_rank[0][:4]) if self.ranks else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Of greedy decoding with chains as long as there are steps."""
        return self.emitted / self.rounds if self.rounds else 1.0


def _sums(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(one, other, strict=True)))
