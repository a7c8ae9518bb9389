"""Linear layers whose weights are laid out once for the processor's own matrix kernels.

Layers that read the same input (queries, keys and values; gate and up) become one product. This file refuses to know
which models there are: it looks at the layers and at one short pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from truedraft.targets.kernels import MakeKernel, Packed, with_spare

__all__ = ["PackedLinear", "Product", "as_one", "joined", "linears", "pack", "siblings"]

Linear = nn.Linear | Conv1D


class Product:
    """x W^T + b with W [out, in] packed, always of at least `rows` rows: some kernels sum fewer in another order.

    Numbers are immutable; `pad_to` has more rows computed, where that is faster.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, rows: int = 1, kernel: MakeKernel = Packed
    ) -> None:
        self.outputs, self.inputs = weight.shape
        self.dtype = weight.dtype
        self._kernel = kernel(weight)
        self.bias = None if bias is None else bias.detach()
        self.rows = self._least = rows
        self.latest: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        count = x.numel() // self.inputs
        if 0 < count < self.rows:
            rows = with_spare(x.reshape(count, self.inputs), self.rows)
            return self._multiply(rows)[:count].view(*x.shape[:-1], self.outputs)
        return self._multiply(x)

    def pad_to(self, rows: int) -> None:
        """Compute at least so many rows, and never fewer than at first."""
        self.rows = max(rows, self._least)

    def _multiply(self, x: Tensor) -> Tensor:
        return self._kernel.multiply(x, self.bias)

    @property
    def padded(self) -> int:
        """Rows that a single one is best padded to, as a rule."""
        return self._kernel.padded

    @property
    def bytes(self) -> int:
        """Of the weight that a product reads."""
        return self._kernel.bytes

    def weight(self) -> Tensor:
        """W [out, in] as it is multiplied by, unpacked into new memory."""
        return self._kernel.dense()

    def __deepcopy__(self, memo: dict[int, Any]) -> Product:
        """Itself: copies of a model share what does not change."""
        return self


class PackedLinear(nn.Module):
    """A linear layer for inference: some columns of a product that it may share with its siblings.

    Siblings are called one after the other with the same tensor. The first computes the product for all, the last
    lets go of it; whoever is called with another tensor computes its own.
    """

    def __init__(self, product: Product, columns: slice | None = None, *, last: bool = True) -> None:
        super().__init__()
        self.product = product
        self.columns = slice(0, product.outputs) if columns is None else columns
        self.in_features = product.inputs
        self.out_features: int = self.columns.stop - self.columns.start
        self._shares = self.out_features < product.outputs
        self._last = last

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        product = self.product
        if not self._shares:
            return product(x)
        latest = product.latest
        if latest is None or latest[0] is not x:
            latest = x, product(x)
        product.latest = None if self._last else latest
        return latest[1][..., self.columns]

    @property
    def weight(self) -> Tensor:
        """W [out, in], unpacked into new memory at every access."""
        return self.product.weight()[self.columns]

    @property
    def bias(self) -> Tensor | None:
        """b [out], None without."""
        return None if self.product.bias is None else self.product.bias[self.columns]

    def extra_repr(self) -> str:
        """What printing the module adds."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def as_one(*layers: Any) -> Callable[[Tensor], Tensor]:
    """What gives the outputs of layers that read the same input one behind the other, [..., the sum of their widths].

    Where they are the whole of one product, that is the product itself.
    """
    first = layers[0]
    if isinstance(first, PackedLinear) and first.product.outputs == sum(layer.out_features for layer in layers):
        return first.product
    return first if len(layers) == 1 else lambda x: torch.cat([layer(x) for layer in layers], -1)


def linears(model: nn.Module) -> list[Linear]:
    """The plain linear layers of a model, each once."""
    return [x for x in model.modules() if isinstance(x, nn.Linear | Conv1D) and type(x) in (nn.Linear, Conv1D)]


@torch.inference_mode()
def siblings(model: nn.Module, layers: Sequence[Linear], run: Callable[[], object]) -> list[list[Linear]]:
    """The layers in groups that `run`, a pass of the model, calls one after the other with the same tensor."""
    groups: list[list[Linear]] = []
    calls: dict[Linear, int] = dict.fromkeys(layers, 0)
    before: list[Tensor | None] = [None]  # kept alive, so that another tensor cannot take its identity

    def note(layer: Linear, inputs: tuple[Tensor, ...]) -> None:
        calls[layer] += 1
        if inputs[0] is before[0]:
            groups[-1].append(layer)
        else:
            groups.append([layer])
        before[0] = inputs[0]

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    together = [group for group in groups if len(group) > 1 and _can_join(group) and all(calls[x] == 1 for x in group)]
    joined = {layer for group in together for layer in group}
    return together + [[layer] for layer in layers if layer not in joined]


def _can_join(group: Sequence[Linear]) -> bool:
    """Whether one product can do the work of these layers."""
    return len({(weight.dtype, weight.device, bias is None) for weight, bias in map(_parameters, group)}) == 1


def _parameters(layer: Linear) -> tuple[Tensor, Tensor | None]:
    """W [out, in] and b [out] of a layer; Conv1D keeps its weight transposed."""
    weight = layer.weight.t() if isinstance(layer, Conv1D) else layer.weight
    return weight, layer.bias


def joined(group: Sequence[Linear]) -> tuple[Tensor, Tensor | None]:
    """W [out, in] and b [out] of one product that does the work of the whole group."""
    if len(group) == 1:
        return _parameters(group[0])
    weights, biases = zip(*map(_parameters, group), strict=True)
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)


def pack(model: nn.Module, group: Sequence[Linear], product: Product) -> None:
    """Replace a group of a model's layers by their product; their weights are let go."""
    ends = list(accumulate(_parameters(layer)[0].shape[0] for layer in group))
    replacements = {
        layer: PackedLinear(product, slice(start, end), last=layer is group[-1])
        for layer, start, end in zip(group, [0, *ends], ends, strict=False)
    }
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in replacements:
                parent._modules[name] = replacements[child]
    for layer in group:
        del layer.weight, layer.bias  # whoever still holds the layer does not hold its memory
