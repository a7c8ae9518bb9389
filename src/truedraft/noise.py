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
_Ids = npt.NDArray[np.int64]
_Times = npt.NDArray[np.float64]

_STRIDE, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GROUP = 64
"""Tokens a group: consecutive ids whose first arrival is known before their own."""
_FIRST_BATCH, _BATCH = 16, 64
"""Groups to look into at a time: the fastest so far excludes most others. Larger arrays would leave the cache."""


@runtime_checkable
class Noise(Protocol):
    """Exponential noise by position and token."""

    def exponential(self, position: int, tokens: Tensor) -> Tensor:
        """E [n] in float64, mean 1, of the token ids [n] at an absolute position of the text."""
        ...

    def earliest(self, position: int, groups: int) -> Tensor:
        """The least E [groups] in every group of 64 consecutive token ids, from id 0 on."""
        ...


@dataclass(frozen=True)
class SeededNoise:
    """`Noise` from a counter: SplitMix64 (Steele et al. 2014), its stream chosen by seed and position.

    A group's least E is drawn first, with the member that has it. The others follow it by a further E of their own:
    exponential times have no memory, so all are independent and of mean 1 again.
    """

    seed: int

    def exponential(self, position: int, tokens: Tensor) -> Tensor:
        """E [n] of the token ids [n], computed on the CPU: the same whatever the other ids, threads and devices are."""
        ids = tokens.cpu().contiguous().numpy()
        words = self._words(position, 0, ids // _GROUP)
        others = _exponential(self._words(position, 1, ids))
        others[(words % np.uint64(_GROUP)).view(np.int64) == ids % _GROUP] = 0.0
        return torch.from_numpy(_exponential(words) / _GROUP + others).to(tokens.device)

    def earliest(self, position: int, groups: int) -> Tensor:
        """The least E [groups] in every group of 64 ids."""
        return torch.from_numpy(_exponential(self._words(position, 0, np.arange(groups))) / _GROUP)

    def _words(self, position: int, stream: int, counters: _Ids) -> _Words:
        key = 0
        for number in (self.seed, position, stream):
            key = _mixed_one(key + number * _STRIDE)
        return _mixed(counters.view(np.uint64) * np.uint64(_STRIDE) + np.uint64(key))


def _exponential(words: _Words) -> _Times:
    """Times of mean 1 from the upper 53 bits, centred in their cell: no uniform is 0 or 1."""
    uniforms = (words >> np.uint64(11)).view(np.int64).astype(np.float64)
    uniforms += 0.5
    uniforms *= 2.0**-53
    return np.asarray(-np.log(uniforms))


def _mixed(words: _Words) -> _Words:
    """SplitMix64's finaliser, in place: every bit of the input changes about half the bits of the output."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(_FIRST)
    words ^= words >> np.uint64(27)
    words *= np.uint64(_SECOND)
    words ^= words >> np.uint64(31)
    return words


def _mixed_one(word: int) -> int:
    """`_mixed` of one word, modulo 2^64: numpy would take longer over it than over thousands."""
    word %= 2**64
    word = (word ^ word >> 30) * _FIRST % 2**64
    word = (word ^ word >> 27) * _SECOND % 2**64
    return word ^ word >> 31


def winners(weights: Tensor, k: int, noise: Noise, position: int) -> list[int]:
    """The first k tokens of the race with weights [V], first one first; fewer if fewer have weight.

    As a set of k they are drawn without replacement. A group whose largest weight over its earliest time is behind the
    k-th token so far holds no winner, so noise is made for a small part of a large vocabulary only.
    """
    row, best = weights.detach().cpu(), list[tuple[float, int]]()
    promise = _promise(row, noise, position)
    batch = _FIRST_BATCH
    while k > 0:
        enough = best[-1][0] if len(best) == k else 0.0
        groups = _largest(promise, batch, enough)
        if len(groups) == 0:
            break
        tokens = (groups[:, None] * _GROUP + np.arange(_GROUP)).ravel()
        tokens = tokens[tokens < len(row)]
        speeds = row.numpy()[tokens] / noise.exponential(position, torch.from_numpy(tokens)).numpy()
        ahead = _largest(speeds, k, enough)
        best = sorted([*best, *zip(speeds[ahead].tolist(), tokens[ahead].tolist(), strict=True)], reverse=True)[:k]
        promise[groups], batch = 0.0, _BATCH
    return [token for _, token in best]


def _largest(values: _Times, count: int, above: float) -> npt.NDArray[np.intp]:
    """Where the `count` largest values stand, or as many as exceed `above`; in no order."""
    places = np.flatnonzero(values > above)
    return places if len(places) <= count else places[np.argpartition(values[places], -count)[-count:]]


def _promise(row: Tensor, noise: Noise, position: int) -> _Times:
    """How fast the fastest token of every group may be, at most."""
    whole = len(row) // _GROUP * _GROUP
    heaviest = row[:whole].view(-1, _GROUP).amax(1).double().numpy()
    if whole < len(row):
        heaviest = np.append(heaviest, float(row[whole:].max()))
    return np.asarray(heaviest / noise.earliest(position, len(heaviest)).numpy())


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

    def earliest(self, position: int, groups: int) -> Tensor:
        """The noise's."""
        return self.noise.earliest(position, groups)


def noise_of(dice: Dice) -> Noise:
    """The noise that a sequence's dice carry. Raises `ParameterError` if they carry none."""
    if not isinstance(dice, Noise):
        raise ParameterError(f"coupled sampling needs dice with seeded noise, got {type(dice).__name__}: use NoisyDice")
    return dice
