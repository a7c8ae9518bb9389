"""What takes the place of a model's own attention and decoder gives its logits, or the model keeps what it has."""

import pytest
import torch
from transformers import DogeConfig, DogeForCausalLM, LlamaModel

from tests.targets.reference import grown, one_path_at_a_time, text
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import UnsupportedModelError
from truedraft.targets.adopt import adopt
from truedraft.targets.attention import PLAIN
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.fast import prepare
from truedraft.targets.kernels import why_not

LEAN = {"llama", "mistral", "qwen2", "qwen3"}
pytestmark = pytest.mark.skipif(why_not(torch.zeros(1)) is not None, reason="no model is prepared here")


def scores_as_its_paths(model):
    original = model.config._attn_implementation
    cached, nodes = CachedModel(model), Nodes((5, 6, 7), (-1, 0, 0))
    cached.read("a", text(19))
    (scores,) = cached.extend(["a"], [nodes])
    assert model.config._attn_implementation == original
    return scores.logits


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_our_attention(family):
    model = tiny_model(family)
    adoption = adopt(model, PLAIN)
    assert (adoption.attention, adoption.can_be_lean, adoption.fault) == (True, family in LEAN, None)
    assert model.config._attn_implementation == PLAIN.name
    assert type(model.get_decoder()) is type(tiny_model(family).get_decoder())


def test_masks_that_differ_from_head_to_head_are_left_to_transformers():
    size = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}

    def doge():
        model = grown(DogeForCausalLM(DogeConfig(**size, **heads)))
        for layer in model.model.layers:
            layer.self_attn.A.data.fill_(0.5)
        return model

    model, nodes = doge(), ((5, 6, 7), (-1, 0, 0))
    (note,) = prepare(model).notes
    assert "doge keeps its own attention: its masks differ from head to head" in note
    assert torch.allclose(scores_as_its_paths(model), one_path_at_a_time(doge(), text(19), *nodes), atol=2e-4)
    with pytest.raises(UnsupportedModelError, match="from head to head"):
        prepare(doge(), exact=True)


def with_option(value):
    """A Llama whose attention is given an option that transformers' sdpa overlooks."""
    model = tiny_model()
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(
            lambda module, inputs, options: (inputs, options | {"position_bias": value}), with_kwargs=True
        )
    return model


@pytest.mark.parametrize(("value", "reason"), [(1.0, "a pass fails"), (torch.ones(1), "it is given position_bias")])
@torch.inference_mode()
def test_an_attention_with_options_that_ours_refuses_stays(value, reason):
    model = with_option(value)
    preparation = prepare(model)
    assert not preparation.exact and not preparation.ragged and model.config._attn_implementation == "sdpa"
    assert reason in preparation.notes[0] and len(preparation.notes) == 1
    assert reason in prepare(with_option(value), exact=False).notes[0]
    ids = torch.tensor([text(30)])
    assert torch.allclose(model(ids).logits, tiny_model()(ids).logits, atol=2e-4)
    with pytest.raises(UnsupportedModelError, match=reason.split(" (")[0]):
        prepare(with_option(value), exact=True)


class Louder(LlamaModel):
    """A decoder of Llama's layers that does something more."""

    def forward(self, *inputs, **options):
        output = super().forward(*inputs, **options)
        output.last_hidden_state = output.last_hidden_state * 1.5
        return output


@torch.inference_mode()
def test_a_decoder_that_does_more_than_its_layers_stays():
    model, before = tiny_model(), tiny_model()
    for each in (model, before):
        each.model.__class__ = Louder
    preparation = prepare(model)
    assert not preparation.ragged and type(model.model) is Louder
    assert any("the decoder stays transformers' own" in note for note in preparation.notes)
    expected = one_path_at_a_time(before, text(19), (5, 6, 7), (-1, 0, 0))
    assert torch.allclose(scores_as_its_paths(model), expected, atol=2e-4)
