"""Seeded noise that a drafter and the target can share: a value for every (seed, position, token), made when asked for.

The tokens race: token x arrives after the time E(x) / w(x), E exponential with mean 1, and the first one is a draw with
probability proportional to the weights w. It is the Gumbel-max draw argmax(log w + g) with g = -log E, two logarithms
cheaper. Whoever uses the same seed and position sees the same E: a draw depends on the weights and on nothing else, not
on who else drew, in what order or beside which other sequence. This file refuses to know laws and rules.
"""

from __future__ import annotations

from collections.abc import Iterator
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
            words >>= np.uint64(11)
            # The upper 53 bits, centred in their cell: never 0 and never 1.
            np.multiply(words + 0.5, 2.0**-53, out=times[part])
            np.log(times[part], out=times[part])
        return torch.from_numpy(np.negative(times, out=times)).to(tokens.device)


def _words(number: int) -> _Words:
    return np.array([number % 2**64], np.uint64)


def _mixed(words: _Words) -> _Words:
    """SplitMix64's finaliser, in place: every bit of the input changes about half the bits of the output."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def winners(weights: Tensor, k: int, noise: Noise, position: int) -> list[int]:
    """The first k tokens of the race with weights [V], first one first; fewer if fewer have weight.

    As a set of k they are drawn without replacement. O(support), beyond finding it.
    """
    row = weights.detach().cpu().numpy()
    best: list[tuple[float, int]] = []
    for tokens in _pieces(row) if k > 0 else ():
        speed = row[tokens] / noise.exponential(position, torch.from_numpy(tokens)).numpy()
        if len(best) == k:
            ahead = np.flatnonzero(speed > best[-1][0])
        else:
            ahead = np.argpartition(speed, -k)[-k:] if len(speed) > k else np.arange(len(speed))
        best = sorted([*best, *zip(speed[ahead].tolist(), tokens[ahead].tolist(), strict=True)], reverse=True)[:k]
    return [token for speed_, token in best if speed_ > 0.0]


def _pieces(row: npt.NDArray[np.floating]) -> Iterator[npt.NDArray[np.int64]]:
    """The tokens of positive weight in pieces of at most `_CHUNK`; where they are many, the others come along."""
    if np.count_nonzero(row > 0) * 4 > len(row):
        for start in range(0, len(row), _CHUNK):
            yield np.arange(start, min(start + _CHUNK, len(row)))
        return
    running = np.flatnonzero(row > 0)
    for start in range(0, len(running), _CHUNK):
        yield running[start : start + _CHUNK]


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
