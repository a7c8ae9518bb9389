"""Small random heads of every kind for a tiny target, the same on every run."""

from __future__ import annotations

import torch
from torch import Tensor

from truedraft.nets.attention import Causal, Unrolled
from truedraft.nets.eagle1 import Eagle1Config, Eagle1Net
from truedraft.nets.eagle3 import Eagle3Config, Eagle3Net
from truedraft.nets.head import Head
from truedraft.nets.medusa import MedusaConfig, MedusaNet
from truedraft.nets.vocabulary import DraftVocabulary

KINDS = ("medusa", "eagle1", "eagle3")


def some_ids(size: int, count: int) -> DraftVocabulary:
    """A reduced draft vocabulary that is not the first ids."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(3))[:count]
    return DraftVocabulary(order.sort().values, size)


def tiny_head(kind: str, model, *, draft: int | None = None, dtype=torch.float32, seed: int = 0, **changes) -> Head:
    """A random head for a tiny model, its weights large enough that every input moves what it says."""
    generator = torch.Generator().manual_seed(seed)
    size = model.config.vocab_size
    vocabulary = None if draft is None else some_ids(size, draft)
    if kind == "medusa":
        net: Head = MedusaNet(MedusaConfig.like(model.config, **changes), vocabulary)
    elif kind == "eagle1":
        net = Eagle1Net(Eagle1Config.like(model.config, **changes), vocabulary)
    else:
        net = Eagle3Net(Eagle3Config.like(model.config, **{"taps": (0, 1, 3), **changes}), vocabulary)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3, generator=generator)
            else:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    net = net.to(dtype).requires_grad_(False)
    net.share(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    return net


def assert_unrolled_as_drafted(net, state: Tensor, tokens: Tensor, positions: Tensor, *, steps: int) -> None:
    """Unrolled steps are the chains that drafting runs, slot by slot."""
    attend, outs, read = Unrolled(), [], state
    length = tokens.shape[1] - steps
    for step in range(steps + 1):
        outs.append(net(read[:, :length], tokens[:, step : step + length], positions[:, :length] + step, attend))
        read = outs[-1]
    for slot in range(length):
        chain = state[:, : slot + 1]
        for step in range(steps + 1):
            count = slot + 1 + step
            out = net(chain, tokens[:, :count], positions[:, :count], Causal())
            assert torch.allclose(out[:, -1], outs[step][:, slot], atol=1e-10)
            chain = torch.cat((chain, out[:, -1:]), dim=1)
