"""The module that a checkpoint brings: loaded from its files, run as transformers runs it, drafting losslessly."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from tests.tiny import tiny_model
from truedraft import build
from truedraft.core import Shape
from truedraft.decode import Decoder
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.model import Model
from truedraft.nets.attention import Causal
from truedraft.nets.mtp_checkpoint import CheckpointMtp, brings_module
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.load import load_model
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

V, LAYERS = 48, 3


def config():
    return Glm4MoeConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        max_position_embeddings=128,
        num_mtp_layers=1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny random GLM-4 MoE with a module behind its last layer, as released checkpoints have it."""
    path = tmp_path_factory.mktemp("glm")
    torch.manual_seed(0)
    model = Glm4MoeForCausalLM(config())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    model.save_pretrained(path)
    weights = load_file(path / "model.safetensors")
    before, behind = f"model.layers.{LAYERS - 1}.", f"model.layers.{LAYERS}."
    block = {name.replace(before, behind): each.clone() for name, each in weights.items() if name.startswith(before)}
    block |= {f"{behind}{name}.weight": torch.rand(32) + 0.5 for name in ("enorm", "hnorm", "shared_head.norm")}
    block[f"{behind}eh_proj.weight"] = torch.randn(32, 64) * 0.2
    save_file({**weights, **block}, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.fixture
def target(folder, monkeypatch):
    monkeypatch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", [rf"model\.layers\.{LAYERS}.*"])
    return load_model(folder)


ROW = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]])


def test_it_says_what_transformers_own_module_says(target):
    net = CheckpointMtp(target.model)
    states = target.model(ROW, output_hidden_states=True).hidden_states[-1][:, :-1]
    module = MtpModel.from_pretrained(target.model)
    positions = torch.arange(1, ROW.shape[1])[None]
    cache = MtpCache(config=target.model.config.get_mtp_config())
    expected = module.forward_layer(0, states, positions, cache, input_ids=ROW[:, 1:])[0]

    def attend(query, key, value):
        return Causal()(query[None], key[None], value[None])[0]

    found = net(net.fuse(states[0, :, None]), ROW[0, 1:], positions[0], attend)
    assert torch.allclose(found, expected, atol=1e-5) and float(found.abs().max()) > 0.1
    assert torch.allclose(net.logits(found), target.model.lm_head(expected), atol=1e-4)


@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(2, 1)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "sampled"])
def test_texts_are_plain_decodings_and_do_not_depend_on_neighbours(target, shape, settings):
    prompts = [ROW[0].tolist(), [7, 8], list(range(10, 30))]

    def texts(drafter, shape, prompts, batch):
        decoder = Decoder(TorchTarget(target), drafter, rule_named("auto"), Fixed(shape))
        model = Model(decoder, Facts(vocabulary=V, context_length=128), batch=batch)
        return [result.token_ids for result in model.generate(prompts, max_new_tokens=20, **settings)]

    def drafter():
        return EagleDrafter(CheckpointMtp(target.model), layers=LAYERS)

    together = texts(drafter(), shape, prompts, 3)
    assert together == [text for prompt in prompts for text in texts(drafter(), shape, [prompt], 1)]
    if not settings:
        assert together == texts(NoDrafter(), Shape(0), prompts, 1)


def test_the_target_is_left_as_it_was(target):
    before = target.model(ROW).logits
    CheckpointMtp(target.model)
    EagleDrafter(CheckpointMtp(target.model), layers=LAYERS)
    assert torch.equal(target.model(ROW).logits, before)


def test_it_drafts_by_name_after_the_target_was_prepared(target, folder):
    prompt = ROW[0].tolist()
    loaded = build.load(str(folder), drafter="mtp")
    plain = build.load(str(folder), drafter="none")
    drafted = loaded.generate(prompt, max_new_tokens=20)
    assert drafted.token_ids == plain.generate(prompt, max_new_tokens=20).token_ids
    assert drafted.statistics.drafted > 0


def test_who_brings_a_module(target):
    assert brings_module(target.model) and not brings_module(tiny_model())
    with pytest.raises(UnsupportedModelError, match="llama"):
        CheckpointMtp(tiny_model())


def test_a_checkpoint_without_its_module_is_said(target, folder, tmp_path):
    target.model.config.name_or_path = str(tmp_path / "gone")
    with pytest.raises((CorruptModelError, UnsupportedModelError), match=r"gone|glm4_moe"):
        CheckpointMtp(target.model)
