"""Which way of multiplying suits a linear layer: each is tried for exactness and measured, cold, as decoding runs it.

This file knows layers and clocks, no models.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from truedraft.targets.exact import least_rows
from truedraft.targets.kernels import MakeKernel, Packed
from truedraft.targets.packed import Linear, Product, joined

__all__ = ["Form", "Stopwatch", "Trial", "form_of", "pad", "try_out"]

_WIDTHS = (1, 2, 4, 8)
"""Tokens of the passes that a layer has to be fast for: MKL is quick with one, and slowest with two."""
_PADDED = (1, 4)
"""Rows that a single one may be padded to."""
_REPEATS = 3
_ROUNDS = 15
_CLEARLY, _MOSTLY = 0.9, 0.8
"""Another way than the usual one must take so much of its time in so many rounds: on a busy machine none does."""
_PATIENCE = 1.0  # seconds, after which fewer rounds have to do
_CACHE = 16_000_000  # numbers read between two measurements, so that a weight comes from memory as in a real pass
_SMALL = 500_000  # bytes of a weight that may well stay in the processor's caches


@dataclass(frozen=True)
class Form:
    """What the behaviour of a group's product depends on. rounds: whether the kernel may round the weights."""

    outputs: int
    inputs: int
    has_bias: bool
    kernel: MakeKernel = Packed
    rounds: bool = False


@dataclass(frozen=True)
class Trial:
    """A product, tried.

    exact_rows: the fewest rows with which it is exact, None if it never is. plain, packed: seconds of the usual passes
    either way; plain is infinite where weights are to be rounded, which those of the layers as they are would not be.
    """

    exact_rows: int | None
    plain: float
    packed: float


def form_of(group: Sequence[Linear], kernel: MakeKernel = Packed, *, rounds: bool = False) -> Form:
    """The form of a group's product with this kernel."""
    shapes = [joined([layer]) for layer in group]
    outputs, inputs = sum(len(weight) for weight, _ in shapes), shapes[0][0].shape[1]
    return Form(outputs, inputs, shapes[0][1] is not None, kernel, rounds)


class Stopwatch:
    """Measures what runs once in a pass."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._other = torch.ones(_CACHE)

    def best(self, run: Callable[[], object], *, cold: bool = True) -> float:
        """Seconds of the best of a few runs. cold: what it reads comes from memory."""
        seconds = float("inf")
        for _ in range(_REPEATS):
            if cold:
                self._other.sum()
            seconds = min(seconds, self._seconds(run))
        return seconds

    def fastest(self, arms: Mapping[int, Callable[[], object]], *, usual: int) -> int:
        """The arm that takes clearly less than the usual one in most rounds, in which all take turns; or the usual one.

        A machine that is busy with something else while a model is loaded must not make it slow for good.
        """
        rounds: list[dict[int, float]] = []
        begun = self._clock()
        for _ in range(_ROUNDS):
            rounds.append({arm: self._seconds(run) for arm, run in arms.items()})
            lost = [sum(each[arm] >= _CLEARLY * each[usual] for each in rounds) for arm in arms if arm != usual]
            if min(lost) >= _ROUNDS - int(_MOSTLY * _ROUNDS) or self._clock() - begun > _PATIENCE:
                break  # none can win any more, or there is no time

        def ratio(arm: int) -> float:
            return sorted(seconds[arm] / seconds[usual] for seconds in rounds)[int(_MOSTLY * len(rounds))]

        best = min(arms, key=ratio)
        return best if ratio(best) < _CLEARLY else usual

    def _seconds(self, run: Callable[[], object]) -> float:
        start = self._clock()
        run()
        return self._clock() - start


@torch.inference_mode()
def try_out(form: Form, group: Sequence[Linear], stopwatch: Stopwatch) -> Trial:
    """Measure a group's layers as they are and as one packed product, and look for the rows that make that exact."""
    layers, (weight, bias) = [joined([layer]) for layer in group], joined(group)
    product = Product(weight, bias, kernel=form.kernel)
    # A bias must be there, as kernels differ with it, and be nothing, or it hides the rounding that is looked for.
    nothing = None if bias is None else torch.zeros_like(bias)
    exact_rows = least_rows(lambda tried: Product(tried, nothing, kernel=form.kernel), weight)

    def plain(x: Tensor) -> None:
        for weight, bias in layers:
            functional.linear(x, weight, bias)

    def seconds(multiply: Callable[[Tensor], object], width: int) -> float:
        x = torch.randn(width, product.inputs).to(weight.dtype)
        return stopwatch.best(lambda: multiply(x), cold=weight.nbytes > _SMALL)

    return Trial(
        exact_rows,
        plain=float("inf") if form.rounds else sum(seconds(plain, width) for width in _WIDTHS),
        packed=sum(seconds(product, max(width, exact_rows or 1)) for width in _WIDTHS),
    )


@torch.inference_mode()
def pad(products: Sequence[Product], stopwatch: Stopwatch) -> None:
    """Have products pad a single row where that makes a pass through all of them faster.

    All are asked together: of a single one the clock is too rough to tell, and its weight would have to be driven out
    of the processor's caches, which here the others do.
    """
    if not products:
        return
    inputs = [torch.ones(1, product.inputs, dtype=product.dtype) for product in products]

    def run(rows: int) -> None:
        for product, x in zip(products, inputs, strict=True):
            product.pad_to(rows)
            product(x)

    usual = statistics.mode(product.padded for product in products)
    rows = stopwatch.fastest({rows: partial(run, rows) for rows in _PADDED}, usual=usual)
    for product in products:
        product.pad_to(rows)
