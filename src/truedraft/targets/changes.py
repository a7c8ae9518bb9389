"""Has a model changed since? Whoever holds the object may train it, load other weights into it or switch an adapter.

No weight is read: PyTorch counts how often a tensor was written in place. What is written through `.data`, or a view
made in inference mode, it does not count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from torch import nn

__all__ = ["state_of"]

_SWITCHES = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")
"""Attributes by which layers with adapters tell which of them is active, and how much it counts."""


def state_of(model: nn.Module) -> Hashable:
    """Something that is equal at two times if the model computes the same at both."""
    weights = tuple(
        (id(weight), weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        for weight in model.parameters()
    )
    return weights, tuple(_switches(model))


def _switches(model: nn.Module) -> Iterator[str]:
    for part in model.modules():
        own = vars(part)
        if "_active_adapter" in own or "_disable_adapters" in own:
            yield repr([own.get(name) for name in _SWITCHES])
