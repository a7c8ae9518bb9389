"""What makes kinds of heads differ in training: a fresh net, its loss, and how many steps it is unrolled.

medusa    heads at one state          next token                      (Cai et al. 2024, Medusa-1)
eagle1    one step, noise             state + 0.1 * cross-entropy     (Li et al. 2024)
eagle3    several steps of its own    cross-entropy, step j by 0.8^j  (Li et al. 2025)
mtp       the same                    the same; it starts as a copy of the target's last layer
model     a whole small model         forward KL                      (DistillSpec, Zhou et al. 2024)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truedraft.errors import VocabularyError
from truedraft.nets.eagle1 import Eagle1Config, Eagle1Net
from truedraft.nets.eagle3 import Eagle3Config, Eagle3Net
from truedraft.nets.medusa import MedusaConfig, MedusaNet
from truedraft.nets.mtp import MtpNet
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.targets.load import load_model
from truedraft.training.student import Student, pruned, usual_layers
from truedraft.training.unroll import Net

__all__ = ["RECIPES", "Recipe", "Size"]


@dataclass(frozen=True)
class Size:
    """What a fresh head is made from. config: of the target; output [V, H]: its output matrix. steps: J.

    taps: those of EAGLE-3, None for the usual ones. last: the target's last layer and its final norm. model, tokenizer:
    the target's own. layers: those that a small model takes over, None for the usual ones.
    """

    config: Any
    output: torch.Tensor
    vocabulary: DraftVocabulary
    steps: int
    taps: tuple[int, ...] | None = None
    seed: int = 0
    last: tuple[nn.Module, nn.Module] | None = None
    model: Any = None
    tokenizer: Any = None
    layers: tuple[int, ...] | None = None

    @property
    def generator(self) -> torch.Generator:
        """Of the first weights."""
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class Recipe:
    """A kind of drafter. make: a fresh net; load: one from a folder; the rest is what is usual for it."""

    make: Callable[[Size], Net]
    load: Callable[[Path, Size], Net]
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


def _model(size: Size) -> Net:
    usual = usual_layers(size.config.get_text_config(decoder=True).num_hidden_layers)
    layers = usual if size.layers is None else size.layers
    return Student(pruned(size.model, layers), size.vocabulary, tokenizer=size.tokenizer)


def _head(kind: type[Eagle1Net] | type[Eagle3Net] | type[MedusaNet]) -> Callable[[Path, Size], Net]:
    """Loads heads of a kind, which have their own draft vocabulary."""
    return lambda folder, size: kind.load(folder)


def _small(folder: Path, size: Size) -> Net:
    """Loads a model of the target's token ids. Raises `VocabularyError` for one that does not know all of them."""
    loaded: Any = load_model(folder, dtype="float32", device=size.output.device).model
    total, vocabulary = len(size.output), size.vocabulary
    known = total if size.tokenizer is None else min(len(size.tokenizer), total)
    said = len(loaded.get_output_embeddings().weight)
    if said < max(known, int(vocabulary.ids[-1]) + 1) or (vocabulary.is_full and said != total):
        raise VocabularyError(
            f"{folder} says {said} tokens, and the target {total}: expected a model of the target's own token ids"
        )
    return Student(loaded, vocabulary, tokenizer=size.tokenizer)


RECIPES: Mapping[str, Recipe] = {
    "medusa": Recipe(_medusa, _head(MedusaNet), steps=4, loss="next-token"),
    "eagle1": Recipe(_eagle1, _head(Eagle1Net), steps=1, loss="state + 0.1*cross-entropy", noise=0.2),
    "eagle3": Recipe(_eagle3, _head(Eagle3Net), steps=4, loss="cross-entropy"),
    "mtp": Recipe(_mtp, _head(MtpNet), steps=3, loss="cross-entropy"),
    "model": Recipe(_model, _small, steps=1, loss="forward-kl"),
}
"""By kind."""
