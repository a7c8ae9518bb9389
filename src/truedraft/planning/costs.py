"""What rounds cost, learned while they run: a profile's passes, corrected by the passes seen, and time outside them.

This file refuses to know what a round yields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from truedraft.planning.profile import Profile

__all__ = ["RoundCosts"]

Row: TypeAlias = list[float]

_FADING = 0.97
"""Slow, because a pass that is shared with a neighbour of the machine says little of the next."""
_STRENGTH = 4.0
"""Passes at other points count as much as so many at the point itself, where the two are about the same."""
_NOISE = 0.5
"""In logarithms: no noise makes passes differ by much more."""
_FORESEEN = 1.3
"""Passes that differ from the profile by no more than this factor are as foreseen."""
_FINE, _COARSE = 32, 4
"""Parts of a token to which a pass's width is looked up, and those by which passes are told apart."""
_CONTEXT = 256
"""Contexts are told apart by so many tokens."""


class _Mean:
    """A mean in which old values fade; one that is far off moves it no further than a factor of two would."""

    def __init__(self) -> None:
        self.weight, self.value = 0.0, 0.0

    def add(self, value: float) -> None:
        if self.weight:
            value = min(max(value, 0.5 * self.value), 2.0 * self.value)
        self.value = (_FADING * self.weight * self.value + value) / (_FADING * self.weight + 1.0)
        self.weight = _FADING * self.weight + 1.0

    def towards(self, other: float) -> float:
        """The mean, drawn towards another by as much as noise may hold them apart."""
        apart = abs(math.log(self.value / other)) / _NOISE
        strength = _STRENGTH / (1.0 + apart**4)
        return (self.weight * self.value + strength * other) / (self.weight + strength)


class RoundCosts:
    """Seconds of rounds by batch size and rung, from a profile and from rounds seen.

    sizes: drafted tokens [L + 1] by rung, nothing first.
    """

    def __init__(self, profile: Profile, sizes: Sequence[int]) -> None:
        self._profile, self._sizes = profile, sizes
        self._overall = _Mean()
        self._ratios: dict[tuple[int, float], _Mean] = {}
        self._outside: dict[int, dict[int, _Mean]] = {}
        self._known: dict[tuple[int, float, int], float] = {}
        self._curves: dict[tuple[int, int], NDArray[np.float64]] = {}

    def learn(self, batch: int, drafts: Sequence[int], context: float, target: float) -> None:
        """A pass over `batch` texts whose drafts had so many tokens took `target` seconds."""
        drafted = sum(drafts) / len(drafts) if self._profile.ragged else max(drafts)
        ratio = target / self._foreseen(batch, round(_FINE * drafted) / _FINE, context)
        self._overall.add(ratio)
        # However few the texts that bet, theirs is no pass of plain decoding.
        self._ratios.setdefault((batch, math.ceil(_COARSE * drafted) / _COARSE), _Mean()).add(ratio)

    def learn_outside(self, batch: int, rung: int, seconds: float) -> None:
        """A round allowed `rung` rungs took so long outside its pass."""
        self._outside.setdefault(batch, {}).setdefault(rung, _Mean()).add(seconds)

    def plain_passes(self, batch: int) -> float:
        """How many passes without a draft were seen at about this batch size, old ones fading."""
        near = (mean.weight for (other, size), mean in self._ratios.items() if size == 0 and _alike(other, batch))
        return max(near, default=0.0)

    @property
    def as_foreseen(self) -> bool:
        """Whether passes lately took what the profile says, by and large."""
        return 1.0 / _FORESEEN < (self._overall.value if self._overall.weight else 1.0) < _FORESEEN

    def passes(self, batch: int, context: float) -> Row:
        """Seconds of a pass [L + 1] with the draft of every rung, nothing drafted first; never falling."""
        overall = self._overall.value if self._overall.weight else 1.0
        points = sorted(size for other, size in self._ratios if other == batch)
        seen = [(size, self._ratios[batch, size]) for size in points]
        factors: float | NDArray[np.float64] = overall
        if seen:  # between two points that were seen, the correction lies between theirs
            values = [mean.towards(overall) for _, mean in seen]
            factors = np.interp(self._sizes, [size for size, _ in seen], values)
        return list(accumulate((self._curve(batch, context) * factors).tolist(), max))

    def entry(self, batch: int, context: float, passes: Row) -> float:
        """Seconds that a pass takes longer as soon as a few texts draft, beyond their part of the way to passes[1].

        Matrix products work in blocks of rows: one row more than fills them costs a block. Passes that are padded are
        as wide as their longest draft anyway.
        """
        few = min((size for other, size in self._ratios if other == batch and 0 < size < self._sizes[1]), default=0.0)
        if not self._profile.ragged or not few or self._ratios[batch, few].weight < _STRENGTH:
            return 0.0
        drafted = few - 0.5 / _COARSE
        found = self._ratios[batch, few].towards(self._overall.value) * self._foreseen(batch, drafted, context)
        return max(0.0, found - passes[0] - (passes[1] - passes[0]) * drafted / self._sizes[1])

    def outside(self, batch: int) -> Row:
        """Seconds outside the pass [L + 1] by rung; rungs not seen yet in proportion to the nearest that was."""
        known = self._outside.get(batch) or self._nearest(batch)
        base = known[0].value if 0 in known else 0.0
        seconds = [base] * len(self._sizes)
        rungs = sorted(rung for rung in known if rung)
        for place, size in enumerate(self._sizes):
            if place and rungs:
                nearest = min(rungs, key=lambda rung: abs(rung - place))
                seconds[place] = base + max(known[nearest].value - base, 0.0) * size / self._sizes[nearest]
        return seconds

    def _nearest(self, batch: int) -> dict[int, _Mean]:
        """What was seen at the batch size nearest to this one."""
        if not self._outside:
            return {}
        return self._outside[min(self._outside, key=lambda other: abs(other - batch))]

    def _curve(self, batch: int, context: float) -> NDArray[np.float64]:
        """The profile's passes [L + 1]."""
        key = batch, round(context / _CONTEXT)
        if key not in self._curves:
            self._curves[key] = np.array([self._foreseen(batch, size, context) for size in self._sizes])
        return self._curves[key]

    def _foreseen(self, batch: int, drafted: float, context: float) -> float:
        key = batch, drafted, round(context / _CONTEXT)
        if key not in self._known:
            self._known[key] = self._profile.pass_seconds(1 + drafted, batch=batch, context=_CONTEXT * key[2])
        return self._known[key]


def _alike(one: int, other: int) -> bool:
    """Whether two batch sizes are within a half of one another."""
    return max(one, other) <= 1.5 * min(one, other)
