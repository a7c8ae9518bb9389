"""A chi-square test with its power said aloud."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from scipy import optimize, stats

__all__ = ["FALSE_ALARM", "POWER", "GoodnessOfFit", "goodness_of_fit"]

FALSE_ALARM = 1e-6
"""How often a lossless engine is refuted by chance."""
POWER = 0.99
"""How surely a bias of the size that is stated is seen."""
_EXPECTED = 5
"""Draws that a bin must be expected to hold, for the statistic to be chi-square."""
_CERTAIN = 1e-12
"""A law that leaves less than this to all texts but one has one text."""

Text = tuple[int, ...]


@dataclass(frozen=True)
class GoodnessOfFit:
    """Outcome of a test of counts against a law.

    bins: of texts; fewer than two compare nothing. impossible: draws of texts that the law gives no probability. seen:
    every bias whose total variation over the bins is at least this is refuted with probability `POWER`; it follows from
    the chi-square distance, since TV <= sqrt(distance) / 2. None without two bins. enough: draws from which on there
    are two; None if no number is enough, as the law has one text.
    """

    p_value: float
    statistic: float
    bins: int
    draws: int
    impossible: int
    seen: float | None
    enough: int | None

    @property
    def passed(self) -> bool | None:
        """Whether the counts agree with the law; None if there were too few of them to tell."""
        if self.impossible:
            return False
        return None if self.bins < 2 else self.p_value >= FALSE_ALARM


def goodness_of_fit(counts: Mapping[Text, int], law: Mapping[Text, float]) -> GoodnessOfFit:
    """Compare counts with a law; texts that are expected fewer than five times share a bin."""
    draws = sum(counts.values())
    observed, expected = _binned(counts, law)
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(expected) - 1
    return GoodnessOfFit(
        p_value=float(stats.chi2.sf(statistic, freedom)) if freedom else 1.0,
        statistic=statistic,
        bins=len(expected),
        draws=draws,
        impossible=sum(count for text, count in Counter(counts).items() if law.get(text, 0.0) == 0.0),
        seen=float((_noncentrality(freedom) / draws) ** 0.5 / 2) if freedom else None,
        enough=_enough(law),
    )


def _binned(counts: Mapping[Text, int], law: Mapping[Text, float]) -> tuple[list[int], list[float]]:
    """Observed and expected draws a bin. Every draw is in one, or the power would be another than the one stated."""
    draws = sum(counts.values())
    common = [text for text, chance in law.items() if chance * draws >= _EXPECTED]
    observed, expected = [counts.get(text, 0) for text in common], [law[text] * draws for text in common]
    others, rest = draws - sum(observed), draws - sum(expected)
    if rest >= _EXPECTED or not common:
        return [*observed, others], [*expected, rest]
    least = expected.index(min(expected))
    observed[least] += others
    expected[least] += rest
    return observed, expected


def _enough(law: Mapping[Text, float]) -> int | None:
    """Draws from which on there are two bins: the likeliest text and all others, at least."""
    likeliest = max(law.values())
    lesser = min(likeliest, 1.0 - likeliest)
    return math.ceil(_EXPECTED / lesser) + 1 if lesser > _CERTAIN else None


@cache
def _noncentrality(freedom: int) -> float:
    """The noncentrality at which the test has its power."""
    line = stats.chi2.isf(FALSE_ALARM, freedom)
    return float(optimize.brentq(lambda lam: stats.ncx2.sf(line, freedom, lam) - POWER, 1e-3, 1e4))
