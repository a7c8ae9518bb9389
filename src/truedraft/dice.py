"""The randomness of one sequence, from its seed. This file refuses to know what is drawn and why."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from truedraft.errors import ParameterError

__all__ = ["RandomDice"]

_SPARSE = 8  # weights a weight that is not zero, from which on zeros are left out


class RandomDice:
    """`core.Dice` from a seed: its own counter-based stream (Philox), so one sequence never disturbs another's.

    seed None takes fresh entropy from the operating system.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and seed < 0:
            raise ParameterError(f"seed is {seed}: expected 0 or more")
        self._stream = np.random.Generator(np.random.Philox(seed))

    def coin(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self._stream.random() < probability)

    def categorical(self, weights: Tensor) -> int:
        """An index of weights [V], by inverting their cumulative sum in float64."""
        row = weights.detach().cpu().numpy()
        carrying = row != 0
        # Zeros add nothing to a sum; leaving them out costs less than adding them up where they are many.
        sparse = int(np.count_nonzero(carrying)) * _SPARSE < len(row)
        kept = np.flatnonzero(carrying) if sparse else None
        cumulative = torch.from_numpy(row if kept is None else row[kept]).double().cumsum(0).numpy()
        total = float(cumulative[-1]) if len(cumulative) else 0.0
        if not 0 < total < math.inf:
            raise ParameterError(f"weights to draw from sum to {total}: expected a positive number")
        index = int(np.searchsorted(cumulative, self._stream.random() * total, side="right"))
        if index == len(cumulative):
            # The product can round up to the total itself; the last token with weight is then the one meant.
            return int(np.flatnonzero(carrying)[-1])
        return index if kept is None else int(kept[index])
