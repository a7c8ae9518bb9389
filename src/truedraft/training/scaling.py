"""Even inputs for the layer that a head reads hidden states with, while it is trained.

Entries of a target's hidden states differ a hundredfold in size, and a head's file has no place for a norm of them. So
the layer is trained on entries divided by their usual size, and its weights are divided by it when they are written:

    W x = (W s) (x / s)         trained: W s, on x / s         written: W

which is the same head, found in far fewer steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.medusa import MedusaNet
from truedraft.nets.mtp import MtpNet
from truedraft.training.features import Row
from truedraft.training.student import Student
from truedraft.training.unroll import Net

__all__ = ["EvenInputs", "usual_sizes"]

_ROWS = 64
_AS_THEY_ARE = (MedusaNet, MtpNet, Student)
"""Nets that read states as they are, normalise them, or read none."""


def usual_sizes(net: Net, rows: Sequence[Row], columns: Sequence[int], embedding: Tensor) -> Tensor | None:
    """Root mean square of every input of `net.fc` over some rows [inputs]; None for a net that has no such layer.

    First tokens are left out: many models store enormous values there.
    """
    if isinstance(net, _AS_THEY_ARE):
        return None
    states = torch.cat([row.features[1:, list(columns)].float().flatten(1) for row in rows[:_ROWS]])
    if isinstance(net, Eagle1Net):
        tokens = torch.cat([row.tokens[1:] for row in rows[:_ROWS]])
        states = torch.cat([embedding[tokens].float().cpu(), states], dim=1)
    sizes = states.square().mean(0).sqrt()
    return sizes.clamp(min=1e-3 * float(sizes.mean()))


class EvenInputs:
    """A head whose reading layer is given even inputs. sizes [inputs] as of `usual_sizes`; None leaves it as it is."""

    def __init__(self, net: Net, sizes: Tensor | None) -> None:
        self._layer: nn.Linear | None = None if sizes is None or isinstance(net, _AS_THEY_ARE) else net.fc
        self._sizes = torch.ones(()) if sizes is None else sizes
        if self._layer is not None:
            self._sizes = self._sizes.to(self._layer.weight.device)
            self._layer.register_forward_pre_hook(lambda layer, inputs: (inputs[0] / self._sizes,))

    @torch.no_grad()
    def take(self) -> None:
        """The net holds weights as they are written: make them those that are trained."""
        if self._layer is not None:
            self._layer.weight.mul_(self._sizes)

    @contextmanager
    def written(self) -> Iterator[None]:
        """The net with its weights as they are written; afterwards those that are trained are back, bit for bit."""
        if self._layer is None:
            yield
            return
        trained = self._layer.weight.detach().clone()
        with torch.no_grad():
            self._layer.weight.div_(self._sizes)
        try:
            yield
        finally:
            with torch.no_grad():
                self._layer.weight.copy_(trained)
