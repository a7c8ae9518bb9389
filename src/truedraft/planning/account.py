"""The account of speculation: what a round is expected to yield, what it costs, and whether it pays.

Pure functions of numbers. This page refuses to know any model, clock or trace; its twin in JavaScript is
`web/js/account.js`, and a test holds the two together.

    alpha   acceptance rate, 1 - TV(p, q) = sum_x min(p(x), q(x))
    k       draft tokens in a chain
    c       cost of one draft step over the cost of one target step
    rates   acceptance rate per draft position, each given that all positions before were accepted
    ridge   tokens in one pass at which the pass stops being free: below it memory is the limit, above it arithmetic
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from truedraft.errors import ParameterError

__all__ = [
    "WORTHWHILE",
    "Advice",
    "advise",
    "alpha_from",
    "decayed_rates",
    "expected_tokens",
    "expected_tokens_by_position",
    "overall_speedup",
    "pass_cost",
    "ridge_of",
    "speedup",
    "sweet_spot",
]

WORTHWHILE = 1.05
"""The least speedup worth a second model in memory."""

ORDINARY_ALPHA, ORDINARY_C = 0.8, 0.1
"""What a well-matched pair reaches; whichever of the two helps more when put right is the one to blame."""


class Advice(StrEnum):
    """The verdict in words."""

    WORTH_IT = "worth-it"
    OTHER_LENGTH = "other-length"
    """The pair is good, this k is not."""
    PAST_THE_RIDGE = "past-the-ridge"
    """It would pay if the pass over all drafted tokens of the batch still cost one step."""
    OVERHEAD_TOO_LARGE = "overhead-too-large"
    """Decoding gains, and too little of the time is decoding."""
    DRAFT_TOO_EXPENSIVE = "draft-too-expensive"
    ACCEPTANCE_TOO_LOW = "acceptance-too-low"


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens a round with k drafts emits on average when every position is accepted with probability alpha.

    (1 - alpha^(k+1)) / (1 - alpha), Leviathan et al. 2023 (arXiv 2211.17192), equation 1, as the sum
    1 + alpha + ... + alpha^k, which is exact at alpha = 1 too. The 1 is the correction or bonus token.
    """
    _check_count("k", k)
    return expected_tokens_by_position([alpha] * k)


def expected_tokens_by_position(rates: Sequence[float]) -> float:
    """Tokens a round emits on average: 1 + sum_j prod_{i<=j} rates[i], with one rate a draft position."""
    tokens = 1.0
    for rate in reversed(rates):
        _check_rate(rate)
        tokens = 1.0 + rate * tokens
    return tokens


def alpha_from(tokens: float, k: int) -> float:
    """The constant acceptance rate at which rounds with k drafts emit `tokens` tokens on average.

    Turns what engines report into alpha: tokens per pass, or 1 + k times accepted over drafted. By bisection.
    """
    _check_count("k", k)
    if not 1 <= tokens <= k + 1:
        raise ParameterError(f"a round with k = {k} emits from 1 to {k + 1} tokens on average, got {tokens}")
    low, high = 0.0, 1.0
    for _ in range(60):
        alpha = (low + high) / 2
        low, high = (alpha, high) if expected_tokens(alpha, k) < tokens else (low, alpha)
    return (low + high) / 2


def decayed_rates(alpha: float, decay: float, k: int) -> tuple[float, ...]:
    """k rates that fall by a constant factor: alpha, alpha decay, alpha decay^2, ..."""
    _check_rate(alpha)
    _check_rate(decay)
    _check_count("k", k)
    rates = []
    for _ in range(k):
        rates.append(alpha)
        alpha *= decay
    return tuple(rates)


def ridge_of(peak_flops: float, bandwidth: float, bytes_per_parameter: float) -> float:
    """Tokens in one pass at which reading the weights and computing with them take equally long.

    peak_flops in FLOP/s, bandwidth in bytes/s. A pass over n tokens costs 2 n FLOP and bytes_per_parameter bytes a
    parameter (Williams et al. 2009, the roofline model). A data sheet predicts the ridge, only a measurement finds it.
    """
    for name, value in (("peak_flops", peak_flops), ("bandwidth", bandwidth), ("bytes", bytes_per_parameter)):
        if not value > 0:
            raise ParameterError(f"{name} must be positive, got {value}")
    return peak_flops / bandwidth * bytes_per_parameter / 2


def pass_cost(tokens: float, ridge: float) -> float:
    """Cost of a pass over `tokens` tokens, in passes below the ridge: flat up to the ridge, then proportional."""
    if not ridge > 0:
        raise ParameterError(f"ridge must be positive, got {ridge}; leave it infinite if you do not know it")
    return max(1.0, tokens / ridge)


def speedup(tokens: float, k: int, c: float, *, batch: int = 1, ridge: float = math.inf) -> float:
    """Times faster than plain decoding, for rounds that emit `tokens` tokens after k draft steps of relative cost c.

    tokens / (k c + 1) below the ridge (arXiv 2211.17192, theorem 3.8). With `batch` sequences the verification pass
    holds batch (k + 1) tokens and may leave the plateau, while a draft step is c of a target step at the same batch.
    """
    _check_count("k", k)
    if not 0 <= c < math.inf:
        raise ParameterError(f"c must be finite and not negative, got {c}: it is draft step time over target step time")
    if batch < 1:
        raise ParameterError(f"batch must be at least 1, got {batch}")
    step = pass_cost(batch, ridge)
    return tokens * step / (k * c * step + pass_cost(batch * (k + 1), ridge))


def overall_speedup(decoding: float, overhead: float) -> float:
    """Speedup of whole requests, when a share `overhead` of plain decoding's time is not sped up (Amdahl 1967).

    1 / (overhead + (1 - overhead) / decoding): reading the prompt is such a share, so that short outputs after long
    prompts gain little. A `decoding` of 0, for a cost beyond all numbers, gives 0.
    """
    return decoding / (overhead * decoding + (1.0 - overhead))


def sweet_spot(rates: Sequence[float], c: float, *, batch: int = 1, ridge: float = math.inf) -> tuple[int, float]:
    """The k from 0 to len(rates) with the highest speedup, and that speedup; the shorter draft wins a tie.

    k = 0 is plain decoding, so the speedup is never below 1.
    """
    best = (0, 1.0)
    for k in range(1, len(rates) + 1):
        gain = speedup(expected_tokens_by_position(rates[:k]), k, c, batch=batch, ridge=ridge)
        if gain > best[1]:
            best = (k, gain)
    return best


def advise(
    rates: Sequence[float], c: float, k: int, *, batch: int = 1, ridge: float = math.inf, overhead: float = 0.0
) -> Advice:
    """What to make of drafting k tokens, and if it does not pay, why: the one thing whose repair would help most.

    rates must reach at least to k; lengths up to len(rates) are considered as alternatives. overhead: the share of
    plain decoding's time, below 1, that is not sped up.
    """
    if not 0 < k <= len(rates):
        raise ParameterError(f"k must be from 1 to the {len(rates)} given rates, got {k}")
    asked = speedup(expected_tokens_by_position(rates[:k]), k, c, batch=batch, ridge=ridge)
    if overall_speedup(asked, overhead) >= WORTHWHILE:
        return Advice.WORTH_IT
    if overall_speedup(sweet_spot(rates, c, batch=batch, ridge=ridge)[1], overhead) >= WORTHWHILE:
        return Advice.OTHER_LENGTH
    if overall_speedup(sweet_spot(rates, c)[1], overhead) >= WORTHWHILE:
        return Advice.PAST_THE_RIDGE
    if sweet_spot(rates, c, batch=batch, ridge=ridge)[1] >= WORTHWHILE:
        return Advice.OVERHEAD_TOO_LARGE
    cheaper = sweet_spot(rates, min(c, ORDINARY_C))[1]
    closer = sweet_spot([max(rate, ORDINARY_ALPHA) for rate in rates], c)[1]
    return Advice.DRAFT_TOO_EXPENSIVE if cheaper > closer else Advice.ACCEPTANCE_TOO_LOW


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ParameterError(f"an acceptance rate lies between 0 and 1, got {rate}")


def _check_count(name: str, value: int) -> None:
    if value < 0:
        raise ParameterError(f"{name} must not be negative, got {value}")
