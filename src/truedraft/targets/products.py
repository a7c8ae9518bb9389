"""Which way of multiplying suits a linear layer: each is tried for exactness and measured, cold, as decoding runs it.

This file knows layers and clocks, no models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from truedraft.targets.exact import least_rows
from truedraft.targets.kernels import MakeKernel, Packed
from truedraft.targets.packed import Linear, Product, joined

__all__ = ["Form", "Stopwatch", "Trial", "form_of", "try_out"]

_WIDTHS = (1, 8)
"""Tokens of the passes that a layer has to be fast for."""
_PADDED = (1, 2, 4)
"""Rows that a single one may be padded to, where more rows take less time."""
_WORTH = 0.9
"""Padding has to bring the time of a single row down to this part, because it is work of its own."""
_REPEATS = 3
_CACHE = 16_000_000  # numbers read between two measurements, so that a weight comes from memory as in a real pass


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

    exact_rows: the fewest rows with which it is exact, None if it never is. rows: what it should be given at least,
    which may be more, because that can be faster. plain, packed: seconds of the usual passes either way; plain is
    infinite where weights are to be rounded, which those of the layers as they are would not be.
    """

    exact_rows: int | None
    rows: int
    plain: float
    packed: float


def form_of(group: Sequence[Linear], kernel: MakeKernel = Packed, *, rounds: bool = False) -> Form:
    """The form of a group's product with this kernel."""
    shapes = [joined([layer]) for layer in group]
    outputs, inputs = sum(len(weight) for weight, _ in shapes), shapes[0][0].shape[1]
    return Form(outputs, inputs, shapes[0][1] is not None, kernel, rounds)


class Stopwatch:
    """Measures what runs once in a pass, with its weight out of the processor's caches."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._other = torch.ones(_CACHE)

    def best(self, run: Callable[[], object]) -> float:
        """Seconds of the best of a few runs."""
        seconds = float("inf")
        for _ in range(_REPEATS):
            self._other.sum()
            start = self._clock()
            run()
            seconds = min(seconds, self._clock() - start)
        return seconds


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
        return stopwatch.best(lambda: multiply(x))

    paddings = [rows for rows in _PADDED if rows >= (exact_rows or 1)] or [exact_rows or 1]
    packed = {rows: seconds(product, rows) for rows in {*paddings, *_WIDTHS}}
    rows = min(paddings, key=lambda rows: packed[rows] * (_WORTH if rows == paddings[0] else 1))
    return Trial(
        exact_rows,
        rows,
        plain=float("inf") if form.rounds else sum(seconds(plain, width) for width in _WIDTHS),
        packed=sum(packed[max(width, rows)] for width in _WIDTHS),
    )
