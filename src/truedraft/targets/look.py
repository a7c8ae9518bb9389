"""One short pass of a model, looked at: which layers share an input, what attention is given, what else multiplies.

Its attention computes nothing that counts while it is looked at. This file refuses to know model names, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from truedraft.targets.attention import PLAIN
from truedraft.targets.exact import HeadCount
from truedraft.targets.masks import MASKED_ATTENTION
from truedraft.targets.packed import Linear, linears, siblings

__all__ = ["Look", "look_at"]

_SURVEY = "truedraft-survey"
_PLACES = {"position_ids", "cache_position", "cu_seq_lens_q", "cu_seq_lens_k"}
"""Tensors that an attention is given and that only say where tokens stand, which masks tell ours."""

_PRODUCTS = {"mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot", "matmul", "linear", "bilinear", "einsum"}
_PRODUCTS |= {"convolution", "conv1d", "conv2d", "attention"}
"""What operators are called that sum products, by a word of their names."""


@dataclass(frozen=True)
class Look:
    """What one short pass shows.

    groups: layers that share an input. heads: the shapes of attention, none if it does not use transformers' interface.
    foreign: why no attention but the model's own will do, None if nothing is known against it. outside: the operators
    that multiply outside of those layers and of attention.
    """

    groups: list[list[Linear]]
    heads: frozenset[HeadCount]
    foreign: str | None
    outside: frozenset[str]


class _Attention:
    """In the place of a model's attention, it notes what it is given."""

    def __init__(self) -> None:
        self.heads: set[HeadCount] = set()
        self.foreign: str | None = None

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """Something of the shape of attention's output [B, W, H, E]."""
        self.heads.add(
            HeadCount(query.shape[1], key.shape[1], query.shape[3], value.shape[3], options.get("softcap") or None)
        )
        unknown = sorted(name for name, given in options.items() if isinstance(given, Tensor) and name not in _PLACES)
        if unknown:
            self.foreign = f"it is given {', '.join(unknown)}, which ours does not know"
        elif attention_mask is not None and (attention_mask.dim() != 4 or attention_mask.shape[1] != 1):
            self.foreign = "its masks differ from head to head"
        output = value.mean(2, keepdim=True).repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        return output.expand(-1, -1, query.shape[2], -1).transpose(1, 2).contiguous(), None


class _Products(TorchDispatchMode):
    """While it is entered, it notes the operators that multiply, but not inside of some layers."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[str] = set()
        self._inside = 0
        self._hooks = [layer.register_forward_pre_hook(self._enter_layer) for layer in layers]
        self._hooks += [layer.register_forward_hook(self._leave_layer) for layer in layers]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator as it is, noted."""
        name = func._schema.name.rpartition("::")[2]
        if not self._inside and _sums_products(name, args):
            self.found.add(name)
        return func(*args, **(kwargs or {}))

    def _enter_layer(self, *_: Any) -> None:
        self._inside += 1

    def _leave_layer(self, *_: Any) -> None:
        self._inside -= 1

    def let_go(self) -> None:
        """Leave the layers alone."""
        for hook in self._hooks:
            hook.remove()


def _sums_products(name: str, operands: Sequence[Any]) -> bool:
    """Whether this operator adds up products: one factor alone, as for rotary angles, is nothing to be added up."""
    if not _PRODUCTS & set(name.split("_")):
        return False
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    factors = tensors[1:] if name.startswith(("add", "badd")) else tensors
    return not factors or factors[0].dim() == 0 or factors[0].shape[-1] != 1


def look_at(model: PreTrainedModel) -> Look:
    """Run two tokens through the model and look on; its attention is left as it was."""
    attention, layers = _Attention(), linears(model)
    AttentionInterface.register(_SURVEY, attention)
    AttentionMaskInterface.register(_SURVEY, MASKED_ATTENTION[PLAIN.name])
    before = model.config._attn_implementation
    products = _Products(layers)

    def run() -> None:
        with products:
            model(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)

    model.set_attn_implementation(_SURVEY)
    try:
        groups = siblings(model, layers, run)
    finally:
        model.set_attn_implementation(before)
        products.let_go()
    return Look(groups, frozenset(attention.heads), attention.foreign, frozenset(products.found))
