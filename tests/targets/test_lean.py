"""Lean layers compute what the layers of transformers compute, in the same places."""

import pytest
import torch

from tests.targets.reference import text
from tests.tiny import FAMILIES, tiny_model
from truedraft.targets.attention import PLAIN, register
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.kernels import why_not
from truedraft.targets.lean import make_lean, signed, undo_lean
from truedraft.targets.packed import Product, joined, linears, pack, siblings
from truedraft.targets.stack import EarlyExit

LEAN = {"llama", "mistral", "qwen2", "qwen3"}


def lean_model(family, **changes):
    return _made_lean(tiny_model(family, **changes))


def _made_lean(model):
    model.set_attn_implementation(register(PLAIN))
    return model, make_lean(model, PLAIN)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_of_known_classes_become_lean(family):
    model, is_lean = lean_model(family)
    assert is_lean == (family in LEAN)
    assert not make_lean(model, PLAIN), "it was lean already"


@pytest.mark.parametrize("family", sorted(LEAN))
@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("nodes", [Nodes.chain([7, 8, 9]), Nodes((7, 8, 9, 10), (-1, 0, 0, 1))])
@torch.inference_mode()
def test_scores_and_features_are_those_of_transformers(family, nodes, ragged):
    plain, (lean, _) = CachedModel(tiny_model(family)), lean_model(family)
    lean = CachedModel(lean, ragged=ragged)
    taps = (0, 1, 3)
    for model in (plain, lean):
        model.read("a", text(21))
        model.read("b", text(5))
    expected = plain.extend(["a", "b"], [nodes, Nodes.chain([3])], taps)
    found = lean.extend(["a", "b"], [nodes, Nodes.chain([3])], taps)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one.logits, other.logits, atol=2e-4)
        assert torch.allclose(one.features, other.features, atol=2e-4)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"layer_types": ["sliding_attention"] * 3, "sliding_window": 4}),
        ("llama", {"sliding_window": 4}),
        ("mistral", {"layer_types": ["full_attention"] * 3}),
        ("mistral", {"sliding_window": None, "layer_types": ["sliding_attention"] * 3}),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 4}),
        ("qwen3", {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 4}),
        ("qwen3", {"layer_types": ["full_attention"] * 3, "sliding_window": 4}),
    ],
)
@torch.inference_mode()
def test_settings_count_where_transformers_reads_them(family, settings):
    plain = CachedModel(tiny_model(family, **settings))
    model, is_lean = lean_model(family, **settings)
    lean = CachedModel(model)
    assert is_lean
    for each in (plain, lean):
        each.read("a", text(21))
    one, other = (each.extend(["a"], [Nodes((7, 8, 9), (-1, 0, 0))])[0].logits for each in (plain, lean))
    assert torch.allclose(one, other, atol=2e-4)


@pytest.mark.parametrize("family", sorted(LEAN))
def test_what_was_lean_can_be_undone(family):
    model, before = tiny_model(family), tiny_model(family)
    for _ in range(2):
        assert make_lean(model, PLAIN)
        undo_lean(model)
        assert type(model.get_decoder()) is type(before.get_decoder())
        assert vars(model.get_decoder()).keys() == vars(before.get_decoder()).keys()
        assert not any(hasattr(layer, "lean") for layer in model.get_decoder().layers)


@pytest.mark.parametrize("family", sorted(LEAN))
@torch.inference_mode()
def test_a_pass_without_our_cache_is_transformers_own(family):
    plain, (lean, _) = tiny_model(family, attention="eager"), lean_model(family)
    lean.set_attn_implementation("eager")
    ids = torch.tensor([text(12)])
    found, expected = (model(ids, use_cache=False, output_hidden_states=True) for model in (lean, plain))
    assert torch.equal(found.logits, expected.logits)
    assert all(map(torch.equal, found.hidden_states, expected.hidden_states)) and len(found.hidden_states) == 4


@pytest.mark.skipif(why_not(torch.zeros(1)) is not None, reason="no packed products here")
@pytest.mark.parametrize("nodes", [Nodes.chain([7]), Nodes.chain([7, 8]), Nodes((7, 8, 9), (-1, 0, 0))])
@torch.inference_mode()
def test_rows_to_spare_are_nobodys(nodes):
    """Products that compute at least five rows: layers hand on five, and what comes out are the nodes, whole or cut."""
    taps = (0, 1, 3)
    few, many = (_packed(rows) for rows in (1, 5))
    for model in (few, many):
        model.read("a", text(21))
    expected, found = few.extend(["a"], [nodes], taps)[0], many.extend(["a"], [nodes], taps)[0]
    assert [layer.lean.rows for layer in many.model.model.layers] == [5, 5, 5]
    assert found.logits.shape == expected.logits.shape and found.features.shape == expected.features.shape
    assert torch.allclose(found.logits, expected.logits, atol=1e-5)
    assert torch.allclose(found.features, expected.features, atol=1e-5)
    early = EarlyExit(many, 2)
    early.catch_up("a", text(21))
    assert early.extend(["a"], [nodes])[0].logits.shape == expected.logits.shape


def _packed(rows):
    model = tiny_model("llama")
    ids = torch.zeros(1, 2, dtype=torch.long)
    for group in siblings(model, linears(model), lambda: model(ids, use_cache=False)):
        pack(model, group, Product(*joined(group), rows=rows))
    return CachedModel(_made_lean(model)[0], ragged=True)


def test_every_part_of_a_layer_counts():
    """A layer that left out a weight would agree with transformers only if that weight did nothing."""
    for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "layernorm", "q_norm"):
        model, changed = tiny_model("qwen3"), tiny_model("qwen3")
        with torch.no_grad():
            next(p for key, p in changed.named_parameters() if name in key).mul_(1.5).add_(0.01)
        before, after = (_logits(CachedModel(_made_lean(each)[0])) for each in (model, changed))
        assert not torch.allclose(after, before, atol=1e-4), name


@torch.inference_mode()
def _logits(cached):
    cached.read("a", text(9))
    return cached.extend(["a"], [Nodes.chain([4])])[0].logits


def test_the_sines_of_the_first_half_are_negative():
    tables = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    cos, sin = signed(tables)
    assert torch.equal(cos[:, :, 0], tables[0])
    assert torch.equal(sin[:, :, 0], torch.cat((-tables[1][..., :4], tables[1][..., 4:]), -1))
