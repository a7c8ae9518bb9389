"""What makes kinds of heads differ in training: a fresh net, its loss, and how many steps it is unrolled.

medusa    heads at one state          next token                      (Cai et al. 2024, Medusa-1)
eagle1    one step, noise             state + 0.1 * cross-entropy     (Li et al. 2024)
eagle3    several steps of its own    cross-entropy, step j by 0.8^j  (Li et al. 2025)
mtp       the same                    the same; it starts as a copy of the target's last layer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from truedraft.nets.eagle1 import Eagle1Config, Eagle1Net
from truedraft.nets.eagle3 import Eagle3Config, Eagle3Net
from truedraft.nets.medusa import MedusaConfig, MedusaNet
from truedraft.nets.mtp import MtpNet
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.training.unroll import Net

__all__ = ["RECIPES", "Recipe", "Size"]


@dataclass(frozen=True)
class Size:
    """What a fresh head is made from. config: of the target; output [V, H]: its output matrix. steps: J.

    taps: those of EAGLE-3, None for the usual ones. last: the target's last layer and its final norm.
    """

    config: Any
    output: torch.Tensor
    vocabulary: DraftVocabulary
    steps: int
    taps: tuple[int, ...] | None = None
    seed: int = 0
    last: tuple[nn.Module, nn.Module] | None = None

    @property
    def generator(self) -> torch.Generator:
        """Of the first weights."""
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class Recipe:
    """A kind of head. make: a fresh net; load: one from a folder; steps, loss, decay, noise: what is usual for it."""

    make: Callable[[Size], Net]
    load: Callable[..., Net]
    steps: int
    loss: str
    decay: float = 0.8
    noise: float = 0.0


def _eagle3(size: Size) -> Net:
    config = Eagle3Config.like(size.config, taps=size.taps, vocabulary=size.vocabulary.size)
    net = Eagle3Net(config, size.vocabulary, generator=size.generator)
    net.copy_output(size.output)
    return net


def _eagle1(size: Size) -> Net:
    config = Eagle1Config.like(size.config, vocabulary=size.vocabulary.size)
    return Eagle1Net(config, size.vocabulary, generator=size.generator)


def _medusa(size: Size) -> Net:
    config = MedusaConfig.like(size.config, heads=size.steps, vocabulary=size.vocabulary.size)
    net = MedusaNet(config, size.vocabulary, generator=size.generator)
    net.copy_output(size.output)
    return net


def _mtp(size: Size) -> Net:
    config = Eagle1Config.like(size.config, vocabulary=size.vocabulary.size)
    net = MtpNet(config, size.vocabulary, generator=size.generator)
    if size.last is not None:
        net.start_from(*size.last)
    return net


RECIPES: Mapping[str, Recipe] = {
    "medusa": Recipe(_medusa, MedusaNet.load, steps=4, loss="next-token"),
    "eagle1": Recipe(_eagle1, Eagle1Net.load, steps=1, loss="state + 0.1*cross-entropy", noise=0.2),
    "eagle3": Recipe(_eagle3, Eagle3Net.load, steps=4, loss="cross-entropy"),
    "mtp": Recipe(_mtp, MtpNet.load, steps=3, loss="cross-entropy"),
}
"""By kind."""
