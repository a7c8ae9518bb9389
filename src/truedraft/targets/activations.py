"""Activation functions whose result at a place does not depend on where in memory that place is.

PyTorch computes most of a tensor with vector instructions and what is left over at the end of a loop one number at a
time, which for SiLU and GELU gives other bits; a large tensor has such an end for every thread. Here each piece of a
tensor is small enough for one thread and long enough for vectors alone. This file refuses to know which functions
there are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["EvenActivation", "even_activations"]

_VECTOR = 64  # numbers; a multiple of what one step of a vector loop takes on any processor
_PIECE = 16_384  # numbers; PyTorch gives fewer than 32,768 to a single thread

_HOMES = {"torch.nn.modules.activation", "transformers.activations"}
"""Where classes of activation functions are defined."""


class EvenActivation(nn.Module):
    """An elementwise activation function, computed in pieces that leave nothing over."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """x [..., F] -> [..., F]."""
        width = x.shape[-1]
        if width % _VECTOR == 0 and x.numel() <= _PIECE:
            result: Tensor = self.function.forward(x)  # a call of a module takes as long as a small activation
            return result
        padded = functional.pad(x, (0, -width % _VECTOR))
        pieces = [self.function(piece) for piece in padded.reshape(-1).split(_PIECE)]
        return torch.cat(pieces).view(padded.shape)[..., :width] if pieces else x


def even_activations(model: nn.Module) -> None:
    """Replace every activation function of a model that is a module without parameters."""
    for parent in [module for module in model.modules() if not isinstance(module, EvenActivation)]:
        for name, child in parent._modules.items():
            if child is not None and type(child).__module__ in _HOMES and not list(child.parameters()):
                parent._modules[name] = EvenActivation(child)
