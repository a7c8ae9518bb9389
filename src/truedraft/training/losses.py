"""Losses on what a head says, each named and separate, and sums of them with weights.

p is the target's distribution and q the head's, both over the draft vocabulary. Every loss is a number a guess [N]:

    forward-kl      sum p (log p - log q)       covers all that the target may say
    cross-entropy   -sum p log q                the same gradient, an entropy cheaper (EAGLE-3)
    reverse-kl      sum q (log q - log p)       bets on one of the things it may say
    tv              sum |p - q| / 2             one minus the acceptance rate of speculative sampling
    acceptance      -log sum min(p, q)          the log of the acceptance rate (LK losses, 2026)
    next-token      -log q(x)                   x is the token that followed (Medusa)
    state           smooth L1                   of the head's state and the target's, mean over its entries (EAGLE-1)

"state + 0.1*cross-entropy" is EAGLE-1's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from truedraft.errors import ParameterError

__all__ = ["LOSSES", "Guesses", "Objective"]


@dataclass(frozen=True, eq=False)
class Guesses:
    """N guesses. said [N, Vd]: the head's logits; taught [N, Vd]: the target's of the same tokens; p: their softmax.

    token [N]: draft ids of the tokens that followed. state, true_state [N, H]: the head's state and the target's.
    """

    said: Tensor
    taught: Tensor
    p: Tensor
    token: Tensor
    state: Tensor
    true_state: Tensor


def _forward_kl(guesses: Guesses) -> Tensor:
    return (guesses.p * (guesses.taught.log_softmax(-1) - guesses.said.log_softmax(-1))).sum(-1)


def _cross_entropy(guesses: Guesses) -> Tensor:
    return nn.functional.cross_entropy(guesses.said, guesses.p, reduction="none")


def _reverse_kl(guesses: Guesses) -> Tensor:
    said = guesses.said.log_softmax(-1)
    return (said.exp() * (said - guesses.taught.log_softmax(-1))).sum(-1)


def _total_variation(guesses: Guesses) -> Tensor:
    return (guesses.p - guesses.said.softmax(-1)).abs().sum(-1) / 2


def _acceptance(guesses: Guesses) -> Tensor:
    both = torch.minimum(guesses.taught.log_softmax(-1), guesses.said.log_softmax(-1))
    return -both.logsumexp(-1)


def _next_token(guesses: Guesses) -> Tensor:
    return nn.functional.cross_entropy(guesses.said, guesses.token, reduction="none")


def _state(guesses: Guesses) -> Tensor:
    return nn.functional.smooth_l1_loss(guesses.state, guesses.true_state, reduction="none").mean(-1)


LOSSES: Mapping[str, Callable[[Guesses], Tensor]] = {
    "forward-kl": _forward_kl,
    "cross-entropy": _cross_entropy,
    "reverse-kl": _reverse_kl,
    "tv": _total_variation,
    "acceptance": _acceptance,
    "next-token": _next_token,
    "state": _state,
}
"""By name."""


@dataclass(frozen=True)
class Objective:
    """A sum of losses with weights."""

    parts: tuple[tuple[float, str], ...]

    @classmethod
    def parse(cls, text: str) -> Objective:
        """From "state + 0.1*cross-entropy". Raises `ParameterError` for a name or weight that is none."""
        parts = []
        for part in text.split("+"):
            weight, _, name = part.rpartition("*")
            try:
                number = float(weight) if weight.strip() else 1.0
            except ValueError:
                number = -1.0
            if name.strip() not in LOSSES or not 0 < number < math.inf:
                raise ParameterError(
                    f"loss is {text!r}: expected names of {', '.join(LOSSES)}, with a weight as in 0.1*tv, joined by +"
                )
            parts.append((number, name.strip()))
        return cls(tuple(parts))

    def __call__(self, guesses: Guesses) -> Tensor:
        """The loss of every guess [N]."""
        return torch.stack([weight * LOSSES[name](guesses) for weight, name in self.parts]).sum(0)

    def __str__(self) -> str:
        return " + ".join(name if weight == 1 else f"{weight:g}*{name}" for weight, name in self.parts)
