"""The randomness of one sequence, from its seed. This file refuses to know what is drawn and why."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from truedraft.errors import ParameterError

__all__ = ["RandomDice"]


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
        cumulative = weights.double().cumsum(0)
        total = float(cumulative[-1])
        if not 0 < total < math.inf:
            raise ParameterError(f"weights to draw from sum to {total}: expected a positive number")
        index = int(torch.searchsorted(cumulative, self._stream.random() * total, right=True))
        # The product can round up to the total itself; the last token with weight is then the one meant.
        return index if index < len(weights) else int(weights.nonzero()[-1])
