"""The ways in which a weight can lie in memory to be multiplied with: as it is, in half precision, in 8 bits, in 4.

PyTorch multiplies by a weight as it lies there; oneDNN reads it several times faster in blocks of its own. Fewer bits
are fewer bytes to read, and reading is what a pass over few tokens waits for; the rows that are multiplied are then
rounded to bfloat16, summed in float32 and rounded again. The operators are those that PyTorch's compiler emits: they
are not public, so `why_not` tries them before they are trusted. This file refuses to know layers and models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["KERNELS", "EightBit", "FourBit", "Half", "Kernel", "MakeKernel", "Packed", "why_not"]

_BATCH = 8  # rows that the kernels are told to expect; a weight packed for fewer than 4 is slow beyond one row
_GROUP = 32  # inputs that share a scale and a zero in 4 bits
_LEAST_SCALE = 1e-12  # of weights that are all alike
_INPUTS, _OUTPUTS = 64, 16  # in few bits the operators read so many at once, past the end of what is there


class Kernel(Protocol):
    """A weight W [out, in], laid out once. bytes: of memory that a product reads."""

    bytes: int

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b, [n, in] -> [n, out]."""

    def dense(self) -> Tensor:
        """W as it is multiplied by, in new memory."""


MakeKernel = Callable[[Tensor], Kernel]


class Packed:
    """In its own type, in oneDNN's blocks. x may have more dimensions than two."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _BATCH)
        self._linear = torch.ops.mkldnn._linear_pointwise.default  # found once: a look-up takes microseconds
        self.bytes = weight.nbytes

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b."""
        product: Tensor = self._linear(x, self._packed, bias, "none", [], "")
        return product

    def dense(self) -> Tensor:
        """W."""
        dense: Tensor = self._packed.to_dense()
        return dense


class Half(Packed):
    """In bfloat16, in oneDNN's blocks: half the bytes of float32."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight.to(torch.bfloat16))
        self._dtype = weight.dtype

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b."""
        return _with_bias(super().multiply(x.to(torch.bfloat16), None).to(x.dtype), bias)

    def dense(self) -> Tensor:
        """W, rounded."""
        return super().dense().to(self._dtype)


class _FewBits:
    """What 8 and 4 bits share: rows in bfloat16, and weights padded with zeros to what the operators read at once."""

    def __init__(self, weight: Tensor) -> None:
        self._outputs, self._inputs = weight.shape
        self._dtype = weight.dtype

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b."""
        rows = x.reshape(-1, self._inputs).to(torch.bfloat16)
        if more := -self._inputs % _INPUTS:
            rows = functional.pad(rows, (0, more))
        product = self._product(rows.contiguous()).to(x.dtype)
        if product.shape[1] > self._outputs:
            product = product[:, : self._outputs].contiguous()
        return _with_bias(product.view(*x.shape[:-1], self._outputs), bias)

    def dense(self) -> Tensor:
        """W, rounded to its levels: the product with the unit vectors."""
        return self.multiply(torch.eye(self._inputs, dtype=self._dtype), None).t().contiguous()

    def _product(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def _padded(self, weight: Tensor) -> Tensor:
        return functional.pad(weight.detach().float(), (0, -self._inputs % _INPUTS, 0, -self._outputs % _OUTPUTS))


class EightBit(_FewBits):
    """In 8 bits, with a scale for every output: a quarter of the bytes."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        numbers = self._padded(weight)
        scale = (numbers.abs().amax(1, keepdim=True) / 127).clamp_(min=_LEAST_SCALE).to(torch.bfloat16)
        self._levels = (numbers / scale).round_().clamp_(-127, 127).to(torch.int8)
        self._scale = scale.flatten()
        self.bytes = self._levels.nbytes + self._scale.nbytes

    def _product(self, rows: Tensor) -> Tensor:
        return torch._weight_int8pack_mm(rows, self._levels, self._scale)


class FourBit(_FewBits):
    """In 4 bits, with a scale and a zero for every 32 inputs: a bit more than an eighth of the bytes."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        numbers = self._padded(weight)
        groups = numbers.view(len(numbers), -1, _GROUP)
        least, most = groups.amin(-1), groups.amax(-1)
        scale = ((most - least) / 15).clamp_(min=_LEAST_SCALE).to(torch.bfloat16)
        zero = (least + 8 * scale.float()).to(torch.bfloat16)  # what level 8 stands for
        levels = ((groups - zero[..., None].float()) / scale[..., None] + 8).round_().clamp_(0, 15).to(torch.int32)
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.view(numbers.shape), 8)
        self._scale_zero = torch.stack([scale.t(), zero.t()], -1).contiguous()
        self._multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default
        self.bytes = self._packed.nbytes + self._scale_zero.nbytes

    def _product(self, rows: Tensor) -> Tensor:
        product: Tensor = self._multiply(rows, self._packed, _GROUP, self._scale_zero)
        return product


def _with_bias(product: Tensor, bias: Tensor | None) -> Tensor:
    return product if bias is None else product.add_(bias)


KERNELS: dict[str, MakeKernel] = {"auto": Packed, "bfloat16": Half, "int8": EightBit, "int4": FourBit}
"""By what users call them."""


def why_not(weight: Tensor, kernel: MakeKernel = Packed) -> str | None:
    """Why weights of this device and type cannot be multiplied with this way; None if they can. It is tried."""
    if weight.device.type != "cpu":
        return f"packed layers are for CPUs, and the model is on {weight.device.type}"
    sample = torch.randn(32, 64).to(weight.dtype)
    try:
        made = kernel(sample)
        difference = made.multiply(sample[:5], None) - functional.linear(sample[:5], made.dense())
    except (AttributeError, NotImplementedError, RuntimeError) as error:
        return f"PyTorch {torch.__version__} has no packed product of {weight.dtype} here: {str(error).splitlines()[0]}"
    largest = float(difference.abs().max())
    return None if largest < 1 else f"the packed product is wrong by {largest:.2g} on this processor"
