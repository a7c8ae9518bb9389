"""The ways in which a weight can lie in memory to be multiplied with: as it is, in 16 bits, in 8, in 4.

PyTorch multiplies by a weight as it lies there; oneDNN reads it several times faster in blocks of its own. Fewer bits
are fewer bytes to read, and reading is what a pass over few tokens waits for. Float16 leaves the rows that are
multiplied as they are; the other kernels round them to bfloat16, sum in float32 and round again. The operators are
those of PyTorch's compiler and of its quantization: they are not all public, so `why_not` tries them before they are
trusted. This file refuses to know layers and models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "KERNELS",
    "EightBit",
    "Float16",
    "FourBit",
    "Half",
    "Kernel",
    "MakeKernel",
    "Packed",
    "why_not",
    "with_spare",
]

_BATCH = 8  # rows that the kernels are told to expect; a weight packed for fewer than 4 is slow beyond one row
_GROUP = 32  # inputs that share a scale and a zero in 4 bits
_LEAST_SCALE = 1e-12  # of weights that are all alike
_INPUTS, _OUTPUTS = 64, 16  # in few bits the operators read so many at once, past the end of what is there
_LARGEST = 15  # an output's largest weight is brought below 2 to this power, which float16 just holds
_STEEPEST = 100  # powers of two that bring it there, so that what undoes them is still a number
_STEPS = (1, 2, 3, 4, 6, 8)
_TRIED = 60  # rows: all of FBGEMM's ways to cut them into blocks
_CHUNK = 512  # outputs that are looked at together; the first tell nearly always


class Kernel(Protocol):
    """A weight W [out, in], laid out once. bytes: of memory that a product reads."""

    bytes: int
    results: ClassVar[torch.dtype]
    """What products are rounded to: in bfloat16 the logits of a head tie."""
    padded: ClassVar[int]
    """Rows that a single one is best padded to, as a rule: oneDNN is faster with four, FBGEMM slower."""

    def __init__(self, weight: Tensor) -> None: ...

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b, [n, in] -> [n, out]."""

    def dense(self) -> Tensor:
        """W as it is multiplied by, in new memory."""


MakeKernel = type[Kernel]
"""A class of kernels: it lays a weight out."""


class Packed:
    """In its own type, in oneDNN's blocks. x may have more dimensions than two."""

    results: ClassVar[torch.dtype] = torch.float32
    padded: ClassVar[int] = 4

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _BATCH)
        self._linear = _operator(torch.ops.mkldnn._linear_pointwise.default)
        self.bytes = weight.nbytes

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b."""
        return self._linear(x, self._packed, bias, "none", [], "")

    def dense(self) -> Tensor:
        """W."""
        dense: Tensor = self._packed.to_dense()
        return dense


class Half(Packed):
    """In bfloat16, in oneDNN's blocks: half the bytes of float32."""

    results: ClassVar[torch.dtype] = torch.bfloat16

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight.to(torch.bfloat16))
        self._dtype = weight.dtype

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b."""
        return _with_bias(super().multiply(x.to(torch.bfloat16), None).to(x.dtype), bias)

    def dense(self) -> Tensor:
        """W, rounded."""
        return super().dense().to(self._dtype)


class Float16:
    """In float16, in FBGEMM's blocks: half the bytes, while rows and sums stay float32.

    The weights of each output are multiplied by a power of two, which its results are divided by, so that weights that
    were bfloat16 are held as they are: eight digits of them fit from the largest down to 2^-32 of it.
    """

    results: ClassVar[torch.dtype] = torch.float32
    padded: ClassVar[int] = 1

    def __init__(self, weight: Tensor) -> None:
        numbers = weight.detach()
        scale = _scale(numbers)
        self._packed = torch.ops.quantized.linear_prepack_fp16((numbers * scale).contiguous(), None)
        self._linear = _operator(torch.ops.quantized.linear_dynamic_fp16.default)
        self._unscale = scale.reciprocal().flatten()
        self.bytes = weight.numel() * 2 + self._unscale.nbytes

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b, of as many rows as have the same bits in every product, though more be computed."""
        count, inputs = x.numel() // x.shape[-1], x.shape[-1]
        if spare := -count % _alike():
            rows = with_spare(x.reshape(count, inputs), count + spare)
            product = self._linear(rows, self._packed)[:count].view(*x.shape[:-1], -1)
        else:
            product = self._linear(x, self._packed)
        return _with_bias(product.mul_(self._unscale), bias)

    def dense(self) -> Tensor:
        """W, rounded."""
        weight: Tensor = torch.ops.quantized.linear_unpack_fp16(self._packed)[0]
        return weight.to(self._unscale.dtype) * self._unscale[:, None]

    @staticmethod
    def holds(weight: Tensor) -> bool:
        """Whether no weight is rounded."""
        return all(map(_fits, weight.detach().split(_CHUNK)))


def with_spare(x: Tensor, rows: int) -> Tensor:
    """x [n, in] as `rows` rows. What the others hold does not matter: copies of a single row are made soonest."""
    count = len(x)
    return x.expand(rows, -1).contiguous() if count == 1 else functional.pad(x, (0, 0, 0, rows - count))


@cache
def _alike() -> int:
    """FBGEMM sums a row in the same order in all products of so many rows, and of twice as many, and so on.

    It cuts rows into blocks of up to six, and where it has no AVX-512 blocks of one or two are summed otherwise.
    """
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(rows, 64, generator=generator) for rows in (16, 2 * _TRIED))
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    expected = torch.ops.quantized.linear_dynamic_fp16(x, packed)

    def is_alike(rows: int) -> bool:
        product = torch.ops.quantized.linear_dynamic_fp16(x[:rows].contiguous(), packed)
        return torch.equal(product, expected[:rows])

    return next((step for step in _STEPS if all(map(is_alike, range(step, _TRIED, step)))), 1)


def _scale(weight: Tensor) -> Tensor:
    """The power of two [out, 1] that brings each output's weights to where float16 has most digits."""
    exponent = torch.frexp(weight.abs().amax(1, keepdim=True)).exponent
    return torch.ldexp(weight.new_ones(len(weight), 1), (_LARGEST - exponent).clamp(-_STEEPEST, _STEEPEST))


def _fits(weight: Tensor) -> bool:
    scaled = weight * _scale(weight)
    return torch.equal(scaled.to(torch.float16).to(weight.dtype), scaled)


class _FewBits:
    """What 8 and 4 bits share: rows in bfloat16, and weights padded with zeros to what the operators read at once."""

    results: ClassVar[torch.dtype] = torch.bfloat16
    padded: ClassVar[int] = 1

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


def _operator(overload: Any) -> Callable[..., Tensor]:
    """What an overload calls: a tenth of a product would be Python that looks at the overload."""
    operator: Callable[..., Tensor] = getattr(overload, "_op", overload)
    return operator


def _with_bias(product: Tensor, bias: Tensor | None) -> Tensor:
    return product if bias is None else product.add_(bias)


KERNELS: dict[str, MakeKernel] = {
    "auto": Packed,
    "float16": Float16,
    "bfloat16": Half,
    "int8": EightBit,
    "int4": FourBit,
}
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
