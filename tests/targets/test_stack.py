"""Some of a model's layers as a model of its own, and its first layers on its own rows."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import ParameterError, UnsupportedModelError
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.fast import prepare
from truedraft.targets.stack import EarlyExit, stack

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])


def rebuilt(family, model, kept):
    """A fresh model of fewer layers that is given the kept layers' weights by name."""
    config = type(model.config)(**model.config.to_dict())
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[index] for index in kept]
    config.num_hidden_layers = len(kept)
    fresh = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(model.dtype)
    places = {f".{old}.": f".{new}." for new, old in enumerate(kept)}
    state = {}
    for name, tensor in model.state_dict().items():
        numbers = [part for part in name.split(".") if part.isdigit()]
        if not numbers:
            state[name] = tensor
        elif f".{numbers[0]}." in places:
            state[name.replace(f".{numbers[0]}.", places[f".{numbers[0]}."])] = tensor
    fresh.load_state_dict(state)
    return fresh.eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kept", [(0, 2), (1,), (0, 1, 2)], ids=str)
def test_it_is_the_model_with_fewer_layers(family, kept):
    model = tiny_model(family, dtype=torch.float64)
    expected = rebuilt(family, model, kept)(IDS).logits
    before = model(IDS).logits
    smaller = stack(model, kept)
    assert torch.allclose(smaller(IDS).logits, expected, atol=1e-12)
    assert torch.equal(model(IDS).logits, before)  # and the model is what it was
    row = CachedModel(smaller)
    row.read("text", IDS[0, :5].tolist())
    scores = row.extend(["text"], [Nodes.chain(IDS[0, 5:].tolist())])[0]
    assert torch.allclose(scores.logits, expected[0, 5:], atol=1e-9)


def test_weights_are_shared_packed_or_not():
    model = tiny_model()
    smaller = stack(model, (0, 2))
    ours = {id(parameter) for parameter in model.parameters()}
    assert all(id(parameter) in ours for parameter in smaller.parameters())
    prepare(model, exact=False)
    packed = stack(model, (0, 2))
    assert torch.allclose(packed(IDS).logits, smaller_logits(), atol=1e-3)


def smaller_logits():
    return stack(tiny_model(), (0, 2))(IDS).logits


@pytest.mark.parametrize("kept", [(), (2, 0), (0, 0), (-1, 2), (1, 3)], ids=str)
def test_layers_are_checked(kept):
    with pytest.raises(ParameterError, match="layers"):
        stack(tiny_model(), kept)


def test_a_model_without_a_list_of_layers_is_refused(monkeypatch):
    model = tiny_model()
    monkeypatch.setattr(model.config, "num_hidden_layers", 7)
    with pytest.raises(UnsupportedModelError, match="list"):
        stack(model, (0,))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_an_early_exit_reads_the_models_own_rows_and_leaves_them(family):
    model = tiny_model(family, dtype=torch.float64)
    whole, text = CachedModel(model), IDS[0].tolist()
    first = EarlyExit(whole, 2)
    expected = stack(model, (0, 1))(IDS).logits[0]
    first.catch_up("text", text[:6])
    assert whole.cached("text") == first.known("text", text) == 6
    scores = first.extend(["text"], [Nodes.chain(text[6:])])[0]
    assert torch.allclose(scores.logits, expected[6:], atol=1e-9)
    first.keep("text", (0, 1))
    whole.catch_up("text", text[:6])  # as the target does before it scores
    assert whole.cached("text") == 6
    scores = whole.extend(["text"], [Nodes.chain(text[6:])])[0]
    assert torch.allclose(scores.logits, model(IDS).logits[0, 6:], atol=1e-9)
    first.release("text")
    assert whole.cached("text") == 6
