"""Heads over whole rows, step after step: what `batches` draws, computed.

EAGLE-1 and EAGLE-3 read their own output where a draft goes on (EAGLE-3's training-time test, Li et al. 2025, section
3.2; for EAGLE-1 it is HASS, Zhang et al. 2025); Medusa's heads are its steps; a model has one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from truedraft.nets.attention import Unrolled
from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.eagle3 import Eagle3Net
from truedraft.nets.medusa import MedusaNet
from truedraft.training.batches import Batch
from truedraft.training.student import Student

__all__ = ["Net", "unroll"]

Net = Eagle1Net | Eagle3Net | MedusaNet | Student


def unroll(net: Net, batch: Batch, *, noise: Tensor | None = None) -> Tensor:
    """The head's states [B, T, J, H] before its output matrix: of every slot and step, supervised or not.

    noise: added to the states that are read [B, T, n, H] (EAGLE-1, against what errors a draft has at run time).
    """
    if isinstance(net, Student):
        read: Tensor = net(batch.tokens)
        return batch.ahead(read, 1)[:, :, None]
    features = batch.inputs.to(next(net.parameters()).dtype)
    if noise is not None:
        features = features + noise
    if isinstance(net, MedusaNet):
        states: Tensor = net(features)
        return states[:, :, : batch.steps]
    attend = Unrolled()
    slots = torch.arange(batch.tokens.shape[1], device=features.device).expand(batch.tokens.shape)
    state: Tensor = net.fuse(features)
    steps = []
    for step in range(batch.steps):
        state = net(state, batch.ahead(batch.tokens, step + 1), slots + step, attend)
        steps.append(state)
    return torch.stack(steps, dim=2)
