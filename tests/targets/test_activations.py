"""Numbers get the same activation wherever they stand, and activation functions stay what they are."""

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from tests.tiny import FAMILIES, tiny_model
from truedraft.targets.activations import EvenActivation, even_activations

NAMES = ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 1, 48), (3, 100), (2, 5, 64), (1, 70_000), (33, 1536), (0, 48), (2, 0)])
def test_it_is_the_function(name, shape):
    x = torch.randn(shape)
    result = EvenActivation(ACT2FN[name])(x)
    assert result.shape == x.shape
    assert torch.allclose(result, ACT2FN[name](x), atol=1e-6)


def rows_apart(function, x):
    return torch.cat([function(row[None]) for row in x])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [17, 48, 100, 1536])
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_a_row_has_the_same_bits_in_any_company(name, width, threads):
    even, x, before = EvenActivation(ACT2FN[name]), 3 * torch.randn(61, width), torch.get_num_threads()
    expected = rows_apart(even, x)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(even(x), expected)
        assert torch.equal(even(torch.cat([x, x], dim=1)[:, :width]), expected)  # a view with gaps
        assert torch.equal(even(x[7:40]), expected[7:40])
    finally:
        torch.set_num_threads(before)


def test_pytorchs_own_differ():
    """What the pieces are for. If this fails, PyTorch has changed, and they may go."""
    x = 3 * torch.randn(61, 17)
    assert not torch.equal(nn.functional.silu(x), rows_apart(nn.functional.silu, x))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_activation_of_a_model_is_replaced_once(family):
    model = tiny_model(family)
    even_activations(model)
    even = [module for module in model.modules() if isinstance(module, EvenActivation)]
    assert even and all(type(module.function).__module__ != EvenActivation.__module__ for module in even)
    count = len(list(model.modules()))
    even_activations(model)
    assert len(list(model.modules())) == count


def test_what_learns_or_is_none_is_left_alone():
    model = nn.Sequential(nn.PReLU(), nn.SiLU())
    model.register_module("nothing", None)
    even_activations(model)
    assert isinstance(model[0], nn.PReLU) and isinstance(model[1], EvenActivation)
