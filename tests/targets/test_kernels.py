"""A kernel multiplies by the weight that it says it has, which is near the one that it was given."""

import pytest
import torch
from torch import nn

from truedraft.targets.kernels import KERNELS, Float16, Packed, why_not

ROUNDED = [name for name in KERNELS if name != "auto" and why_not(torch.zeros(1), KERNELS[name]) is None]
NEAR = {"float16": 2**-11, "bfloat16": 2**-8, "int8": 1.2 / 127, "int4": 0.6 / 15 * 2}
"""The largest error of a weight, over the largest weight."""

pytestmark = pytest.mark.skipif(why_not(torch.zeros(1)) is not None, reason="no packed products here")


def a_weight(outputs=48, inputs=96):
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1))


def as_multiplied(x, name, atol):
    """The rows that a kernel multiplies, and how far its results may be from theirs; atol where it rounds them."""
    if KERNELS[name].results is torch.float32:
        return x, {"rtol": 1e-5, "atol": 1e-4}
    return x.bfloat16().float(), {"rtol": 2**-7, "atol": atol}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_rounded_weights_are_near(name, scale):
    weight = a_weight() * scale
    error = (KERNELS[name](weight).dense() - weight).abs().max()
    assert 0 < error <= NEAR[name] * weight.abs().max()


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 96), (5, 96), (2, 3, 96), (33, 96), (0, 96)])
def test_the_product_is_that_of_the_rounded_weight(name, shape, bias):
    kernel, x, b = KERNELS[name](a_weight()), torch.randn(shape), torch.randn(48) if bias else None
    rows, near = as_multiplied(x, name, atol=0.1)
    expected = nn.functional.linear(rows, kernel.dense(), b)
    product = kernel.multiply(x, b)
    assert product.shape == expected.shape and product.dtype is x.dtype
    assert torch.allclose(product, expected, **near)


@pytest.mark.parametrize("name", ROUNDED)
def test_an_input_may_be_a_view_with_gaps(name):
    kernel, x = KERNELS[name](a_weight()), torch.randn(5, 200)[:, 7:103]
    assert torch.equal(kernel.multiply(x, None), kernel.multiply(x.contiguous(), None))


@pytest.mark.parametrize("name", ROUNDED)
def test_weights_that_are_all_alike_stay_so(name):
    for value in (0.0, 0.5):
        assert torch.allclose(KERNELS[name](torch.full((16, 64), value)).dense(), torch.tensor(value), rtol=2**-8)


def test_fewer_bits_are_fewer_bytes():
    weight = a_weight(64, 256)
    read = {name: KERNELS[name](weight).bytes / weight.numel() for name in ("auto", *ROUNDED)}
    expected = {"auto": 4.0, "float16": 2 + 4 / 256, "bfloat16": 2.0, "int8": 1 + 2 / 256, "int4": 0.5 + 4 / 32}
    assert read == pytest.approx({name: expected[name] for name in read})


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (40, 72), (17, 33), (5, 600)])
def test_weights_of_odd_shapes_are_read_to_their_end_and_no_further(name, outputs, inputs):
    kernel, x = KERNELS[name](a_weight(outputs, inputs)), torch.randn(7, inputs)
    rows, near = as_multiplied(x, name, atol=0.2)
    assert kernel.dense().shape == (outputs, inputs)
    assert torch.allclose(kernel.multiply(x, None), rows @ kernel.dense().t(), **near)


@pytest.mark.skipif("float16" not in ROUNDED, reason="no products of float16 here")
def test_weights_that_were_bfloat16_are_held_as_they_are():
    """Small ones beside large ones too, which float16 alone would round or lose."""
    wide = torch.ldexp(a_weight(), torch.randint(-14, 4, (48, 96), generator=torch.Generator().manual_seed(2)))
    for weight in (wide, 1e-20 * wide, 1e20 * wide, torch.zeros(3, 96), torch.cat([wide, 1e30 * wide])):
        stored = weight.bfloat16().float()
        assert Float16.holds(stored) and torch.equal(Float16(stored).dense(), stored)


@pytest.mark.skipif("float16" not in ROUNDED, reason="no products of float16 here")
def test_weights_of_more_digits_are_seen_to_be_rounded():
    stored = a_weight(9000, 8).bfloat16().float()
    assert Float16.holds(stored)
    stored[8765, 3] *= 1 + 2**-13
    assert not Float16.holds(stored)
    spread = torch.tensor([[1.0, 1.0078125 * 2**-40]])
    assert not Float16.holds(spread) and not torch.equal(Float16(spread).dense(), spread)


def test_what_cannot_be_packed_has_a_reason_in_one_line():
    class Missing(Packed):
        def __init__(self, weight):
            raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute\n'_reorder_linear_weight'")

    assert why_not(torch.zeros(1)) is None
    assert "on meta" in why_not(torch.zeros(1, device="meta"))
    assert "float64" in why_not(torch.zeros(1, dtype=torch.float64))
    reason = why_not(torch.zeros(1), Missing)
    assert "no packed product" in reason and "\n" not in reason


def test_a_product_that_is_wrong_is_not_used():
    class Wrong(Packed):
        def multiply(self, x, bias):
            return torch.zeros(len(x), 32)

    assert "wrong" in why_not(torch.zeros(1), Wrong)
