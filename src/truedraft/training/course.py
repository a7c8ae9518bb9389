"""How a training run goes: its length, its learning rate, what is looked at how often."""

from __future__ import annotations

import math
from dataclasses import dataclass

from truedraft.errors import ParameterError

__all__ = ["Course", "rate_at"]


@dataclass(frozen=True)
class Course:
    """How a run goes. steps: of the optimiser, in all. rate: its peak; warmup: steps up to it; then a cosine down to
    `final` of it. tokens: of a batch; accumulate: batches a step and process. clip: longest gradient. decay: weights'.
    bfloat16: products in that type, weights and their updates in float32. examine_every, checkpoint_every: steps.
    patience: examinations without a better acceptance after which the run ends; 0 never ends it.
    """

    steps: int
    rate: float = 6e-4
    warmup: int = 20
    final: float = 0.05
    tokens: int = 2048
    accumulate: int = 1
    clip: float = 1.0
    decay: float = 0.0
    bfloat16: bool = False
    examine_every: int = 100
    checkpoint_every: int = 100
    patience: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "accumulate", "examine_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} is {getattr(self, name)}: expected at least 1")
        for name in ("warmup", "patience"):
            if not getattr(self, name) >= 0:
                raise ParameterError(f"{name} is {getattr(self, name)}: expected at least 0")
        if not 0 <= self.final <= 1:
            raise ParameterError(f"final is {self.final}: expected a share of the peak rate, 0 to 1")
        if not 0 <= self.decay < math.inf:
            raise ParameterError(f"decay of weights is {self.decay}: expected a number, at least 0")
        for name in ("rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name} is {getattr(self, name)}: expected a number above 0")


def rate_at(step: int, course: Course) -> float:
    """The learning rate of a step (from 0): linear warm-up, then a cosine down to `final` of the peak."""
    if step < course.warmup:
        return course.rate * (step + 1) / course.warmup
    done = (step - course.warmup) / max(1, course.steps - course.warmup)
    return course.rate * (course.final + (1 - course.final) * (1 + math.cos(math.pi * min(1.0, done))) / 2)
