"""A head on disk: the names, shapes and settings that engines read, the same bits again, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.nets.heads import KINDS, some_ids, tiny_head
from tests.tiny import tiny_model
from truedraft.errors import (
    CorruptModelError,
    ModelError,
    UnknownModelError,
    UnsupportedModelError,
    VocabularyError,
)
from truedraft.nets.attention import Causal
from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.eagle3 import Eagle3Config, Eagle3Net
from truedraft.nets.head import CONFIG, NOTES, WEIGHTS, read_config
from truedraft.nets.medusa import MedusaNet

TARGET = tiny_model(seed=1)
NETS = {"medusa": MedusaNet, "eagle1": Eagle1Net, "eagle3": Eagle3Net}
H, HEADS, GROUPS, SIZE, INNER, V = 32, 4, 2, 8, 48, 48

LAYER = {
    "self_attn.o_proj.weight": [H, HEADS * SIZE],
    "mlp.gate_proj.weight": [INNER, H],
    "mlp.up_proj.weight": [INNER, H],
    "mlp.down_proj.weight": [H, INNER],
    "post_attention_layernorm.weight": [H],
}


def attention(inputs: int) -> dict[str, list[int]]:
    return {
        "self_attn.q_proj.weight": [HEADS * SIZE, inputs],
        "self_attn.k_proj.weight": [GROUPS * SIZE, inputs],
        "self_attn.v_proj.weight": [GROUPS * SIZE, inputs],
    }


def eagle3_tensors(draft: int | None) -> dict[str, list[int]]:
    layer = {**attention(2 * H), **LAYER, "input_layernorm.weight": [H], "hidden_norm.weight": [H]}
    reduced = {} if draft is None else {"d2t": [draft], "t2d": [V]}
    return {
        "fc.weight": [H, 3 * H],
        **{f"midlayer.{name}": shape for name, shape in layer.items()},
        "norm.weight": [H],
        "lm_head.weight": [draft or V, H],
        **reduced,
    }


def eagle1_tensors(draft: int | None) -> dict[str, list[int]]:
    return {
        "fc.weight": [H, 2 * H],
        **{f"layers.0.{name}": shape for name, shape in {**attention(H), **LAYER}.items()},
    }


def medusa_tensors(draft: int | None) -> dict[str, list[int]]:
    reduced = {} if draft is None else {"token_map": [draft]}
    blocks = {f"blocks.{head}.layers.0.weight": [H, H] for head in range(4)}
    return {**blocks, "lm_head.weight": [draft or V, H], **reduced}


LAYOUTS = {"medusa": medusa_tensors, "eagle1": eagle1_tensors, "eagle3": eagle3_tensors}
SETTINGS = {
    "medusa": {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": H,
        "vocab_size": V,
        "truncated_vocab_size": 20,
        "num_heads": 4,
        "num_hidden_layers": 1,
        "original_lm_head": True,
        "medusa_fc_bias": False,
    },
    "eagle1": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1},
    "eagle3": {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": H,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "head_dim": SIZE,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "vocab_size": V,
        "draft_vocab_size": 20,
        "target_hidden_size": H,
        "norm_before_residual": False,
        "norm_output": False,
        "tie_word_embeddings": False,
        "num_aux_hidden_states": 3,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 3],
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [-1, 0, 2]},
    },
}


def says(net, dtype=torch.float32):
    """Some numbers that depend on every weight."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(2, 5, len(net.taps(3)), H, generator=generator).to(dtype)
    if net.kind == "medusa":
        return net.logits(net(features))
    tokens = torch.randint(V, (2, 5), generator=generator)
    return net.logits(net(net.fuse(features), tokens, torch.arange(5).expand(2, 5), Causal()))


def share(net):
    net.share(TARGET.get_input_embeddings().weight, TARGET.get_output_embeddings().weight)
    return net


@pytest.mark.parametrize("draft", [None, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_have_the_names_and_shapes_that_engines_load(kind, draft, tmp_path):
    tiny_head(kind, TARGET, draft=draft).save(tmp_path)
    with safe_open(tmp_path / WEIGHTS, "pt") as file:
        found = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert found == LAYOUTS[kind](draft)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_those_that_engines_read(kind, tmp_path):
    tiny_head(kind, TARGET, draft=20).save(tmp_path, dtype=torch.bfloat16)
    written = read_config(tmp_path)
    assert {name: written[name] for name in SETTINGS[kind]} == SETTINGS[kind]
    assert written["torch_dtype"] == "bfloat16"
    if kind == "medusa":  # its loader renames every setting that counts heads or layers
        renamed = [name for name in written if "num" in name and ("heads" in name or "layers" in name)]
        assert sorted(renamed) == ["num_heads", "num_hidden_layers"]


def test_a_tied_target_leaves_no_tie_behind(tmp_path):
    assert TARGET.config.tie_word_embeddings
    tiny_head("eagle3", TARGET, draft=20).save(tmp_path)
    assert read_config(tmp_path)["tie_word_embeddings"] is False


def test_the_map_of_a_reduced_vocabulary_holds_offsets(tmp_path):
    net = tiny_head("eagle3", TARGET, draft=20)
    net.save(tmp_path)
    tensors, ids = load_file(tmp_path / WEIGHTS), net.vocabulary.ids
    assert tensors["d2t"].dtype == torch.int64 and tensors["t2d"].dtype == torch.bool
    assert torch.equal(tensors["d2t"] + torch.arange(20), ids)
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], ids)
    assert not torch.equal(ids, torch.arange(20))


def test_medusas_map_holds_ids(tmp_path):
    net = tiny_head("medusa", TARGET, draft=20)
    net.save(tmp_path)
    assert torch.equal(load_file(tmp_path / WEIGHTS)["token_map"], net.vocabulary.ids)


def test_a_head_with_an_output_matrix_of_its_own_each(tmp_path):
    tiny_head("medusa", TARGET, draft=20, one_output=False, heads=2).save(tmp_path)
    names = set(load_file(tmp_path / WEIGHTS))
    assert names == {f"blocks.{n}.layers.0.weight" for n in (0, 1)} | {f"lm_heads.{n}.weight" for n in (0, 1)} | {
        "token_map"
    }
    assert MedusaNet.load(tmp_path).config.one_output is False


@pytest.mark.parametrize("draft", [None, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_loads_with_the_same_bits(kind, draft, tmp_path):
    net = tiny_head(kind, TARGET, draft=draft)
    net.notes = {"trained": {"tokens": 5}}
    net.save(tmp_path)
    again = share(NETS[kind].load(tmp_path))
    assert again.config == net.config
    assert torch.equal(again.vocabulary.ids, net.vocabulary.ids)
    assert again.notes["trained"] == {"tokens": 5}
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(says(again), says(net))


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_on_disk_is_whole_precision_again(kind, tmp_path):
    net = tiny_head(kind, TARGET, draft=20)
    net.save(tmp_path, dtype=torch.bfloat16)
    again = NETS[kind].load(tmp_path)
    for name, tensor in net.state_dict().items():
        assert again.state_dict()[name].dtype == torch.float32
        assert torch.equal(again.state_dict()[name], tensor.bfloat16().float())
    half = share(NETS[kind].load(tmp_path, dtype=torch.bfloat16))
    assert says(half, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("changes", [{"norm_before_residual": True}, {"norm_output": True}], ids=str)
def test_the_flags_of_eagle3_are_kept_and_heeded(changes, tmp_path):
    plain = tiny_head("eagle3", TARGET)
    net = share(Eagle3Net(replace(plain.config, **changes)))
    net.load_state_dict(plain.state_dict())
    net.save(tmp_path)
    assert torch.equal(says(share(Eagle3Net.load(tmp_path))), says(net))
    state, tokens = torch.randn(1, 5, H), torch.arange(5)[None]
    outs = [each(state, tokens, tokens, Causal()) for each in (plain, net)]
    assert not torch.allclose(*outs)


def test_an_embedding_of_its_own_is_used(tmp_path):
    net = tiny_head("eagle3", TARGET)
    net.save(tmp_path)
    own = torch.randn(V, H)
    save_file({**load_file(tmp_path / WEIGHTS), "embed_tokens.weight": own}, tmp_path / WEIGHTS)
    loaded = share(Eagle3Net.load(tmp_path))
    assert torch.equal(loaded.embed_tokens.weight, own)
    net.share(own, own)
    assert torch.equal(says(loaded), says(net))


def test_the_other_name_of_the_layer_is_understood(tmp_path):
    net = tiny_head("eagle3", TARGET)
    net.save(tmp_path)
    renamed = {name.replace("midlayer.", "layers.0."): x for name, x in load_file(tmp_path / WEIGHTS).items()}
    save_file(renamed, tmp_path / WEIGHTS)
    assert torch.equal(says(share(Eagle3Net.load(tmp_path))), says(net))


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────


def rewrite(folder, *, settings=None, drop=(), tensors=None) -> None:
    """Change a head's folder: settings of None are taken away."""
    written = {**read_config(folder), **(settings or {})}
    (folder / CONFIG).write_text(json.dumps({name: value for name, value in written.items() if value is not None}))
    kept = {name: x for name, x in load_file(folder / WEIGHTS).items() if name not in drop}
    save_file({**kept, **(tensors or {})}, folder / WEIGHTS)


FAULTS = {
    "no output matrix": ("eagle3", {"drop": ["lm_head.weight"]}, CorruptModelError, "lacks the tensor lm_head.weight"),
    "no map": ("eagle3", {"drop": ["d2t", "t2d"]}, CorruptModelError, "d2t"),
    "absolute map": ("eagle3", {"tensors": {"d2t": some_ids(V, 20).ids}}, VocabularyError, "below 48"),
    "maps disagree": ("eagle3", {"tensors": {"t2d": torch.ones(V, dtype=torch.bool)}}, VocabularyError, "t2d"),
    "map too short": ("eagle3", {"tensors": {"d2t": torch.zeros(3, dtype=torch.int64)}}, VocabularyError, "20"),
    "renamed key": ("eagle3", {"tensors": {"fc2.weight": torch.zeros(1)}}, CorruptModelError, "fc2.weight"),
    "bias": ("eagle3", {"tensors": {"fc.bias": torch.zeros(H)}}, CorruptModelError, "fc.bias"),
    "other shape": ("eagle3", {"tensors": {"fc.weight": torch.zeros(H, H)}}, CorruptModelError, "fc.weight"),
    "no number": ("eagle3", {"tensors": {"norm.weight": torch.full((H,), torch.nan)}}, CorruptModelError, "finite"),
    "no taps": ("eagle3", {"settings": {"eagle_aux_hidden_state_layer_ids": None}}, CorruptModelError, "taps"),
    "taps doubled": ("eagle3", {"settings": {"eagle_aux_hidden_state_layer_ids": [1, 1, 2]}}, ModelError, "taps"),
    "no size": ("eagle3", {"settings": {"hidden_size": None}}, CorruptModelError, "hidden_size"),
    "size no number": ("eagle3", {"settings": {"hidden_size": "wide"}}, CorruptModelError, "damaged"),
    "norm before fc": ("eagle3", {"settings": {"norm_before_fc": True}}, UnsupportedModelError, "norm_before_fc"),
    "two layers": ("eagle3", {"settings": {"num_hidden_layers": 2}}, UnsupportedModelError, "2 layers"),
    "activation": ("eagle1", {"settings": {"hidden_act": "gelu"}}, UnsupportedModelError, "gelu"),
    "growing rope": (
        "eagle1",
        {"settings": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}},
        UnsupportedModelError,
        "dynamic",
    ),
    "a whole model": ("eagle1", {"drop": ["fc.weight"]}, CorruptModelError, "fc.weight"),
    "no token map": ("medusa", {"drop": ["token_map"]}, CorruptModelError, "token_map"),
    "too few heads": ("medusa", {"settings": {"num_heads": 5}}, CorruptModelError, "blocks.4"),
    "another kind": ("medusa", {"settings": {"model_type": "llama"}}, UnsupportedModelError, "'llama'"),
}


@pytest.mark.parametrize(("kind", "change", "error", "words"), FAULTS.values(), ids=FAULTS)
def test_a_head_that_is_not_whole_is_refused(kind, change, error, words, tmp_path):
    tiny_head(kind, TARGET, draft=20).save(tmp_path)
    rewrite(tmp_path, **change)
    with pytest.raises(error) as raised:
        NETS[kind].load(tmp_path)
    message = str(raised.value)
    assert words in message and str(tmp_path) in message and "\n" not in message


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_and_missing_files(kind, tmp_path):
    with pytest.raises(UnknownModelError, match=r"no config.json"):
        NETS[kind].load(tmp_path)
    tiny_head(kind, TARGET).save(tmp_path)
    whole = (tmp_path / WEIGHTS).read_bytes()
    (tmp_path / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptModelError, match="cannot be read"):
        NETS[kind].load(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(CorruptModelError, match=r"has no model.safetensors"):
        NETS[kind].load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UnsupportedModelError, match="pickled"):
        NETS[kind].load(tmp_path)
    for text, words in (("{", "cannot be read"), ("[]", "JSON object")):
        (tmp_path / CONFIG).write_text(text)
        with pytest.raises(CorruptModelError, match=words):
            NETS[kind].load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_another_kind_is_refused(kind, tmp_path):
    tiny_head(kind, TARGET, draft=20).save(tmp_path)
    for other in set(KINDS) - {kind}:
        with pytest.raises(ModelError):
            NETS[other].load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_save_leaves_the_head_that_was_there(kind, tmp_path, monkeypatch):
    net = tiny_head(kind, TARGET)
    net.save(tmp_path)
    before = (tmp_path / WEIGHTS).read_bytes()

    def broken(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr("truedraft.nets.head.save_file", broken)
    with pytest.raises(OSError, match="no space"):
        net.save(tmp_path)
    assert (tmp_path / WEIGHTS).read_bytes() == before


def test_notes_stand_under_a_key_of_their_own(tmp_path):
    net = tiny_head("eagle1", TARGET, draft=20)
    net.notes = {"target": "llama"}
    net.save(tmp_path)
    assert read_config(tmp_path)[NOTES] == {"target": "llama", "draft_vocabulary": net.vocabulary.ids.tolist()}


def test_default_taps_of_a_deep_target():
    assert Eagle3Config.like(tiny_model(num_hidden_layers=8).config).taps == (2, 4, 5)
