"""The module of multi-token prediction: its formula, unrolling, files, and that a slot reads what it should."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.nets.heads import assert_unrolled_as_drafted, some_ids
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.nets.attention import Causal
from truedraft.nets.eagle1 import Eagle1Config
from truedraft.nets.mtp import MtpNet

TARGET = tiny_model(seed=1, dtype=torch.float64)
ROWS = torch.randint(48, (2, 9), generator=torch.Generator().manual_seed(0))


def tiny_mtp(model=TARGET, *, draft=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    vocabulary = None if draft is None else some_ids(model.config.vocab_size, draft)
    net = MtpNet(Eagle1Config.like(model.config), vocabulary, generator=generator)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    net = net.to(dtype).requires_grad_(False)
    net.share(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    return net


def inputs_of(net, rows=ROWS):
    features = TARGET(rows, output_hidden_states=True).hidden_states[-1][..., None, :]
    positions = torch.arange(rows.shape[1] - 1).expand(rows.shape[0], -1)
    return net.fuse(features[:, :-1]), rows[:, 1:], positions


def test_a_slot_is_the_formula():
    """One slot attends to itself alone, so attention is its value's projection."""
    net = tiny_mtp()
    state, tokens, positions = inputs_of(net)
    out = net(state[:, :1], tokens[:, :1], positions[:, :1], Causal())
    layer, heads = net.layers[0], TARGET.config.num_attention_heads // TARGET.config.num_key_value_heads
    embedded = TARGET.get_input_embeddings()(tokens[:, :1])
    x = net.eh_proj(torch.cat((net.enorm(embedded), net.hnorm(state[:, :1])), -1))
    value = layer.self_attn.v_proj(layer.input_layernorm(x)).unflatten(-1, (-1, 8)).repeat_interleave(heads, -2)
    x = x + layer.self_attn.o_proj(value.flatten(-2))
    x = x + layer.mlp(layer.post_attention_layernorm(x))
    assert torch.allclose(out, net.norm(x), atol=1e-12)
    assert torch.allclose(net.logits(out), nn.functional.linear(out, TARGET.lm_head.weight))


@pytest.mark.parametrize("steps", [1, 3])
def test_unrolled_steps_are_the_chains_that_drafting_runs(steps):
    net = tiny_mtp()
    assert_unrolled_as_drafted(net, *inputs_of(net), steps=steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_fits_every_family(family):
    model = tiny_model(family)
    net = tiny_mtp(model, draft=20, dtype=torch.float32)
    features = model(ROWS, output_hidden_states=True).hidden_states[-1][..., None, :]
    out = net(net.fuse(features[:, :-1]), ROWS[:, 1:], torch.arange(8), Causal())
    assert net.logits(out).shape == (2, 8, 20)


@pytest.mark.parametrize("draft", [None, 20])
def test_a_saved_module_is_the_same_when_loaded(tmp_path, draft):
    net = tiny_mtp(draft=draft)
    net.notes = {"target": "tiny"}
    net.save(tmp_path)
    loaded = MtpNet.load(tmp_path, dtype=torch.float64)
    loaded.share(TARGET.get_input_embeddings().weight, TARGET.get_output_embeddings().weight)
    state, tokens, positions = inputs_of(net)
    out = net(state, tokens, positions, Causal())
    assert torch.equal(loaded(state, tokens, positions, Causal()), out)
    assert torch.equal(loaded.logits(out), net.logits(out)) and loaded.notes["target"] == "tiny"
    names = {"enorm.weight", "hnorm.weight", "eh_proj.weight", "norm.weight", "layers.0.input_layernorm.weight"}
    assert names < set(net.state_dict()) and not any(name.startswith("fc") for name in net.state_dict())


def test_another_heads_folder_is_refused(tmp_path):
    net = tiny_mtp()
    net.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(UnsupportedModelError, match="MtpModule"):
        MtpNet.load(tmp_path)
    del config["hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CorruptModelError, match="hidden_size"):
        MtpNet.load(tmp_path)


def test_it_can_start_as_the_targets_last_layer():
    net = MtpNet(Eagle1Config.like(TARGET.config)).double()
    last = TARGET.model.layers[-1]
    assert net.start_from(last, TARGET.model.norm)
    assert torch.equal(net.layers[0].mlp.up_proj.weight, last.mlp.up_proj.weight)
    assert torch.equal(net.norm.weight, TARGET.model.norm.weight)
    state = torch.randn(1, 32, dtype=torch.float64)
    read = net.eh_proj(torch.cat((torch.zeros_like(state), net.hnorm(state)), -1))
    assert torch.allclose(read, net.hnorm(state), atol=0.5) and not torch.allclose(read, 0 * state, atol=0.5)
    other = tiny_model("gpt2")
    assert not net.start_from(other.transformer.h[-1], other.transformer.ln_f)


def test_followed_matrices_receive_gradients():
    model = tiny_model(seed=1, dtype=torch.float64).requires_grad_(True)
    net = tiny_mtp(model).requires_grad_(True)
    names = set(net.state_dict())
    net.follow(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    state, tokens, positions = inputs_of(net)
    net.logits(net(state, tokens, positions, Causal())).logsumexp(-1).mean().backward()
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0
    assert set(net.state_dict()) == names
