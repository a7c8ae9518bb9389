"""A model that counts its tokens by itself is found out when it is wrapped, or refused where that would take long."""

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM, Llama4ForCausalLM, Llama4TextConfig

from tests.targets.reference import grown, one_path_at_a_time, text
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import UnsupportedModelError
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.trial import survey


def gpt_neo(window, kinds=("global", "local"), positions=512):
    size = {"vocab_size": 48, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 48}
    types = [[list(kinds), 1]]
    config = GPTNeoConfig(attention_types=types, window_size=window, max_position_embeddings=positions, **size)
    return grown(GPTNeoForCausalLM(config))


def llama4(floor, *, tuned=True, chunk=8192):
    size = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "intermediate_size_mlp": 48, "head_dim": 8}
    size |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "moe_layers": []}
    tuning = {"attn_temperature_tuning": tuned, "floor_scale": floor, "attention_chunk_size": chunk}
    return grown(Llama4ForCausalLM(Llama4TextConfig(no_rope_layer_interval=2, **size, **tuning)))


@pytest.mark.parametrize("window", [3, 8, 100, 256])
def test_windows_that_are_counted_in_slots_are_found_out(window):
    with pytest.raises(UnsupportedModelError, match="unlike its paths"):
        CachedModel(gpt_neo(window))


@pytest.mark.parametrize("floor", [4, 8, 200])
def test_scales_that_grow_with_the_slots_are_found_out(floor):
    with pytest.raises(UnsupportedModelError, match="unlike its paths"):
        CachedModel(llama4(floor))


@pytest.mark.parametrize(
    ("make", "setting"), [(lambda: gpt_neo(2000), "window_size 2000"), (lambda: llama4(8192), "floor_scale 8192")]
)
def test_what_shows_only_in_a_long_text_is_refused_untried(make, setting):
    model = make()
    passes = []
    model.get_input_embeddings().register_forward_pre_hook(lambda *_: passes.append(None))
    with pytest.raises(UnsupportedModelError, match=setting) as raised:
        CachedModel(model)
    assert not passes and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gpt_neo(256, kinds=("global", "global"), positions=64),
        lambda: llama4(8192, tuned=False),
        lambda: llama4(8192, tuned=False, chunk=8),
    ],
    ids=["all global", "no scale", "chunks by the mask"],
)
def test_their_kin_that_count_nothing_are_not(make):
    cached, prefix = CachedModel(make()), text(21)
    cached.read("a", prefix)
    cached.read("b", text(3))
    nodes = Nodes((5, 6, 7), (-1, 0, 0))
    scores, _ = cached.extend(["a", "b"], [nodes, Nodes.chain((5,))])
    expected = one_path_at_a_time(cached.model, prefix, nodes.tokens, nodes.parents)
    assert torch.allclose(scores.logits, expected, atol=1e-3)


def test_it_is_short():
    """Tokens run on: also where a window is so large that only a mask can know it."""
    for family, window in ((name, window) for name in FAMILIES for window in (None, 4096)):
        model = tiny_model(family, **({} if window is None else {"sliding_window": window}))
        tokens = []
        model.get_input_embeddings().register_forward_pre_hook(
            lambda module, inputs, tokens=tokens: tokens.append(inputs[0].numel())
        )
        survey(model)
        assert sum(tokens) <= 32 and len(tokens) <= 4, family


@pytest.mark.parametrize("positions", [3, 5, 16])
def test_the_long_text_fits_a_short_context(positions):
    CachedModel(tiny_model("gpt2", n_positions=positions))
