"""A head that drafts as fast as this machine lets it: packed products, of weights in 16 bits where it has such.

What a head computes decides how much is accepted and never what is written, so it need not be exact. What is chosen
depends on the machine and on nothing that is measured: a seed gives the same text whenever a head is loaded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from truedraft.nets.attention import Causal
from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.eagle3 import Eagle3Net
from truedraft.nets.head import Head
from truedraft.nets.medusa import MedusaNet
from truedraft.nets.mtp_checkpoint import CheckpointMtp
from truedraft.targets.kernels import Float16, MakeKernel, Packed, why_not
from truedraft.targets.packed import Product, joined, linears, pack, siblings

__all__ = ["drafting_dtype", "speed_up"]


def drafting_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """In what a head beside a target of this type computes.

    That is the target's type, but bfloat16 for float32 on a CPU that multiplies in it and not by weights in float16.
    """
    if device.type != "cpu" or dtype is not torch.float32 or why_not(torch.empty(0), Float16) is None:
        return dtype
    has_products = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return torch.bfloat16 if has_products and why_not(torch.empty(0, dtype=torch.bfloat16)) is None else dtype


@torch.inference_mode()
def speed_up(net: Head | CheckpointMtp) -> Callable[[Tensor], Tensor]:
    """Pack the net's layers, whose weights are let go, where that can be done; returns what gives its logits."""
    weight = next(net.parameters())
    if weight.dtype not in (torch.float32, torch.bfloat16) or why_not(weight) is not None:
        return net.logits
    kernel: MakeKernel = Float16 if why_not(weight, Float16) is None else Packed
    for group in siblings(net, linears(net), lambda: _run(net)):
        matrix, bias = joined(group)
        pack(net, group, Product(matrix, bias, kernel=kernel))
    return Product(net.output.to(weight.dtype), kernel=kernel) if isinstance(net, Eagle1Net) else net.logits


def _run(net: Head | CheckpointMtp) -> None:
    """One pass over a slot or two."""
    weight = next(net.parameters())
    taps = len(net.taps(1 << 30))  # however many layers the target has
    features = torch.zeros(2, taps, net.target_size, dtype=weight.dtype)
    if isinstance(net, MedusaNet):
        net.logits(net(features))
    elif isinstance(net, Eagle1Net | Eagle3Net):
        tokens = torch.zeros(1, 2, dtype=torch.int64)
        net.logits(net(net.fuse(features)[None], tokens, tokens, Causal()))
