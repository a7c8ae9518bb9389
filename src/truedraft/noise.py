"""Seeded noise that a drafter and the target can share: a value for every (seed, position, token), made when asked for.

The tokens race: token x arrives after the time E(x) / w(x), E exponential with mean 1, and the first one is a draw with
probability proportional to the weights w. It is the Gumbel-max draw argmax(log w + g) with g = -log E, two logarithms
cheaper. Whoever uses the same seed and position sees the same E: a draw depends on the weights and on nothing else, not
on who else drew, in what order or beside which other sequence. This file refuses to know laws and rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truedraft.core import Dice
from truedraft.errors import ParameterError

__all__ = ["Noise", "NoisyDice", "SeededNoise", "noise_of", "winners"]

_Words = npt.NDArray[np.uint64]

_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 8192
"""Tokens a step: larger temporary arrays leave the processor's cache and cost more than the arithmetic."""


@runtime_checkable
class Noise(Protocol):
    """Exponential noise by position and token."""

    def exponential(self, position: int, tokens: Tensor) -> Tensor:
        """E [n] in float64, mean 1, of the token ids [n] at an absolute position of the text."""
        ...


@dataclass(frozen=True)
class SeededNoise:
    """`Noise` from a counter: SplitMix64 (Steele et al. 2014) of the token, its stream chosen by seed and position."""

    seed: int

    def exponential(self, position: int, tokens: Tensor) -> Tensor:
        """E [n] of the token ids [n]; the same bits on every machine's CPU, whatever the other ids are."""
        key = _mixed(_words(self.seed) * _STRIDE)
        key = _mixed(key + _words(position) * _STRIDE)
        ids = tokens.cpu().contiguous().numpy().view(np.uint64)
        times = np.empty(len(ids), np.float64)
        for start in range(0, len(ids), _CHUNK):
            part = slice(start, start + _CHUNK)
            words = _mixed(ids[part] * _STRIDE + key)
            # The upper 53 bits, centred in their cell: never 0 and never 1.
            np.log(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53, out=times[part])
        return torch.from_numpy(-times).to(tokens.device)


def _words(number: int) -> _Words:
    return np.array([number % 2**64], np.uint64)


def _mixed(words: _Words) -> _Words:
    """SplitMix64's finaliser: every bit of the input changes about half the bits of the output."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def winners(weights: Tensor, k: int, noise: Noise, position: int) -> list[int]:
    """The first k tokens of the race with weights [V], first one first; fewer if fewer have weight.

    As a set of k they are drawn without replacement. Only tokens of positive weight are given noise: O(support).
    """
    running = np.flatnonzero(weights.cpu().numpy() > 0)
    tokens = torch.from_numpy(running).to(weights.device)
    speed = weights[tokens] / noise.exponential(position, tokens)
    first = [int(speed.argmax())] if k == 1 and len(tokens) else speed.topk(max(0, min(k, len(tokens)))).indices
    return tokens[first].tolist()


@dataclass(frozen=True)
class NoisyDice:
    """A sequence's dice together with its seeded noise; implements `core.Dice` and `Noise`."""

    dice: Dice
    noise: Noise

    def coin(self, probability: float) -> bool:
        """As the dice fall."""
        return self.dice.coin(probability)

    def categorical(self, weights: Tensor) -> int:
        """As the dice fall."""
        return self.dice.categorical(weights)

    def exponential(self, position: int, tokens: Tensor) -> Tensor:
        """The noise's."""
        return self.noise.exponential(position, tokens)


def noise_of(dice: Dice) -> Noise:
    """The noise that a sequence's dice carry. Raises `ParameterError` if they carry none."""
    if not isinstance(dice, Noise):
        raise ParameterError(f"coupled sampling needs dice with seeded noise, got {type(dice).__name__}: use NoisyDice")
    return dice
