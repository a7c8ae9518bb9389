"""A chi-square test with its power said aloud."""

from __future__ import annotations

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

Text = tuple[int, ...]


@dataclass(frozen=True)
class GoodnessOfFit:
    """Outcome of a test of counts against a law.

    impossible: draws of texts that the law gives no probability. seen: every bias whose total variation over the bins
    is at least this is refuted with probability `POWER`; it follows from the chi-square distance, since
    TV <= sqrt(distance) / 2.
    """

    p_value: float
    statistic: float
    bins: int
    draws: int
    impossible: int
    seen: float

    @property
    def passed(self) -> bool:
        """Whether the counts agree with the law."""
        return self.impossible == 0 and self.p_value >= FALSE_ALARM


def goodness_of_fit(counts: Mapping[Text, int], law: Mapping[Text, float]) -> GoodnessOfFit:
    """Compare counts with a law; texts that are expected fewer than five times share a bin."""
    draws = sum(counts.values())
    bins = [text for text, chance in law.items() if chance * draws >= 5]
    observed = [counts.get(text, 0) for text in bins]
    expected = [law[text] * draws for text in bins]
    if (rest := draws - sum(expected)) >= 5:
        observed.append(draws - sum(observed))
        expected.append(rest)
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = max(len(expected) - 1, 1)
    impossible = sum(count for text, count in Counter(counts).items() if law.get(text, 0.0) == 0.0)
    return GoodnessOfFit(
        p_value=float(stats.chi2.sf(statistic, freedom)),
        statistic=statistic,
        bins=len(expected),
        draws=draws,
        impossible=impossible,
        seen=float((_noncentrality(freedom) / draws) ** 0.5 / 2),
    )


@cache
def _noncentrality(freedom: int) -> float:
    """The noncentrality at which the test has its power."""
    line = stats.chi2.isf(FALSE_ALARM, freedom)
    return float(optimize.brentq(lambda lam: stats.ncx2.sf(line, freedom, lam) - POWER, 1e-3, 1e4))
