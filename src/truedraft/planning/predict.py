"""The speed of a setting before it is run: observed counts at measured costs, with the doubt that the sample leaves.

The account's own formula, tokens over cost, with the round's real parts in place of k c + 1: the pass over a batch is
as wide as its longest draft if it is padded, and as its mean one if not, and what happens outside the pass counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from truedraft.planning.account import overall_speedup
from truedraft.planning.counts import Counts
from truedraft.planning.profile import Profile

__all__ = ["Estimate", "RoundForecast", "foreseen_round", "overall_speedup", "predicted_speedup", "resampled"]


@dataclass(frozen=True)
class RoundForecast:
    """What a round is foreseen to bring, and what wider passes and drafts cost beyond a plain one, in plain rounds."""

    tokens: float
    widening: float
    drafting: float

    @property
    def cost(self) -> float:
        """In plain rounds."""
        return 1.0 + self.widening + self.drafting

    @property
    def speedup(self) -> float:
        """Times faster than plain decoding."""
        return self.tokens / self.cost

    def __str__(self) -> str:
        return (
            f"{self.tokens:.2f} tokens a round, for {self.cost:.2f} plain ones: drafts are {self.drafting:.2f} of it, "
            f"wider passes {self.widening:.2f}"
        )


def foreseen_round(
    counts: Counts,
    profile: Profile,
    drafter: str,
    *,
    draft_tokens: int | None = None,
    batch: int = 1,
    context: float | None = None,
) -> RoundForecast:
    """A round after the prompts are read.

    counts: of rounds at this setting, or, for chains, at a larger k: draft_tokens then cuts them to a smaller one.
    context: tokens of each text; None is the shortest one profiled.
    """
    survival, reach = counts.survival, counts.reach
    if draft_tokens is not None:
        survival, reach = survival[:draft_tokens], reach[:draft_tokens]
    alone, besides = (
        profile.pass_seconds(1, batch=batch, context=context),
        profile.outside_seconds("none", 0, batch=batch),
    )
    steps = sum(reach) if draft_tokens is not None else counts.levels_per_round  # a tree's steps are its levels
    outside = profile.outside_seconds(drafter, steps, batch=batch)
    plain = alone + besides
    widening = (_expected_pass(reach, profile, batch, context) - alone) / plain
    return RoundForecast(1.0 + sum(survival), widening, (outside - besides) / plain)


def predicted_speedup(
    counts: Counts,
    profile: Profile,
    drafter: str,
    *,
    draft_tokens: int | None = None,
    batch: int = 1,
    context: float | None = None,
) -> float:
    """Times faster than plain decoding, after the prompts are read; see `foreseen_round`."""
    return foreseen_round(counts, profile, drafter, draft_tokens=draft_tokens, batch=batch, context=context).speedup


def _expected_pass(reach: Sequence[float], profile: Profile, batch: int, context: float | None) -> float:
    """Expected seconds of a pass over `batch` independent drafts.

    Padded to the longest: the sum over w of P(longest >= w) (T(w + 1) - T(w)), where P(longest >= w) is
    1 - (1 - reach[w - 1])^B. Ragged: T at the mean width, around which that of a batch does not vary much.
    """
    if profile.ragged and batch > 1:
        return profile.pass_seconds(1.0 + sum(reach), batch=batch, context=context)
    seconds = before = profile.pass_seconds(1, batch=batch, context=context)
    for drafted, share in enumerate(reach, start=1):
        here = profile.pass_seconds(1 + drafted, batch=batch, context=context)
        seconds += (1.0 - (1.0 - share) ** batch) * (here - before)
        before = here
    return seconds


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds nine in ten resamples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def resampled(
    samples: Sequence[Counts], value: Callable[[Counts], float], *, draws: int = 200, seed: int = 0
) -> Estimate:
    """A value of the sum of per-prompt counts, with the bootstrap interval over prompts (Efron 1979), 5 % to 95 %."""
    dice = random.Random(seed)
    drawn = sorted(value(reduce(add, dice.choices(samples, k=len(samples)))) for _ in range(draws))
    return Estimate(value(reduce(add, samples)), drawn[int(0.05 * draws)], drawn[int(0.95 * draws) - 1])
