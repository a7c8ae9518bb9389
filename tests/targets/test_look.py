"""A look at a short pass finds what multiplies where no packed layer can make it exact."""

import pytest
import torch
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM

from tests.targets.reference import grown, tiny_gemma2
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import UnsupportedModelError
from truedraft.targets.exact import HeadCount
from truedraft.targets.fast import prepare
from truedraft.targets.kernels import why_not
from truedraft.targets.look import look_at


def mixtral(experts):
    size = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    model = MixtralForCausalLM(MixtralConfig(**size, **heads, sliding_window=None, max_position_embeddings=128))
    model.set_experts_implementation(experts)
    return grown(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_multiply_in_their_layers_alone(family):
    model = tiny_model(family)
    look = look_at(model)
    assert look.outside == frozenset() and look.foreign is None and look.heads
    assert sum(map(len, look.groups)) == len({layer for group in look.groups for layer in group}) > 4
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
def test_experts_multiply_outside(experts):
    assert look_at(mixtral(experts)).outside
    if why_not(torch.zeros(1)) is None:
        preparation = prepare(mixtral(experts))
        assert not preparation.exact
        assert any("mixtral multiplies outside its linear layers" in note for note in preparation.notes)
        with pytest.raises(UnsupportedModelError, match="outside its linear layers"):
            prepare(mixtral(experts), exact=True)


class Scaled(nn.Linear):
    """A layer that packing leaves alone, because it does more."""

    def forward(self, x):
        return super().forward(x) * 2


def test_layers_that_are_not_packed_multiply_outside():
    model = tiny_model()
    model.model.layers[1].mlp.down_proj.__class__ = Scaled
    assert look_at(model).outside


@pytest.mark.parametrize(("factors", "sums"), [(1, False), (2, True)])
def test_a_product_of_single_numbers_adds_nothing_up(factors, sums):
    """As where positions are multiplied by frequencies: what stands in other rows cannot matter."""

    def multiply(module, inputs, output):
        return output + 0 * output[..., :factors] @ output[..., :factors].transpose(1, 2).sum(2, keepdim=True)

    model = tiny_model()
    model.model.norm.register_forward_hook(multiply)
    assert bool(look_at(model).outside) == sums


def test_what_caps_scores_is_seen():
    assert look_at(tiny_gemma2()).heads == {HeadCount(4, 2, 16, 16, softcap=2.0)}
