"""Toy models with clocks of their own, for tests of whatever measures."""

from __future__ import annotations

from truedraft.core import Shape
from truedraft.decode import Decoder
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import Script, TabularTarget, random_language
from truedraft.verify.auto import rule_named

FACTS = Facts(vocabulary=4)
LANGUAGE = random_language(4, seed=7)
PROMPTS = ((0, 1), (2, 1), (3, 0), (1, 1))


class Clock:
    """Time that passes only where somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(TabularTarget):
    """A toy target: a pass takes a second up to the ridge and then in proportion, and `slope` more for every token past
    the first; reading a prompt takes `reading`."""

    def __init__(self, clock: Clock, *, slope: float = 0.0, reading: float = 5.0, ridge: float = 1e9) -> None:
        super().__init__(LANGUAGE)
        parts = {"clock": clock, "slope": slope, "reading": reading, "ridge": ridge, "known": set()}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def score(self, sessions, trees, taps):
        tokens = len(sessions) * max(map(len, trees))
        self.clock.now += max(1.0, tokens / self.ridge) + self.slope * (tokens - 1)
        self.clock.now += self.reading * sum(session not in self.known for session in sessions)
        self.known.update(sessions)
        return super().score(sessions, trees, taps)


def written(prompt, tokens=64):
    """How the toy language goes on greedily."""
    model = Model(Decoder(TabularTarget(LANGUAGE), NoDrafter(), rule_named("auto"), Fixed(Shape(0))), FACTS)
    return [*prompt, *model.generate(list(prompt), max_new_tokens=tokens).token_ids]


def model(clock, drafter=None, shape=None, policy=None, **target):
    """A toy model on a clock."""
    policy = policy or Fixed(shape or Shape(0))
    decoder = Decoder(Timed(clock, **target), drafter or NoDrafter(), rule_named("auto"), policy, clock=clock)
    return Model(decoder, FACTS)


def oracle(right=None):
    """A drafter that knows the toy prompts' texts."""
    return Script([written(prompt) for prompt in PROMPTS], vocabulary=4, right=right)
