"""Tiny random language models of the supported families, the same on every run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

WINDOW = 8
"""Positions that a layer with a sliding window looks back, its own included (Gemma 3, Mistral)."""

_SIZE = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _gpt2() -> PreTrainedConfig:
    shared = {name: _SIZE[name] for name in ("vocab_size", "bos_token_id", "eos_token_id")}
    return GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=64, **shared)


def _gemma3() -> PreTrainedConfig:
    types = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    size = {**_SIZE, "num_hidden_layers": len(types)}
    return Gemma3TextConfig(head_dim=16, query_pre_attn_scalar=16, sliding_window=WINDOW, layer_types=types, **size)


FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(tie_word_embeddings=True, **_SIZE),
    "qwen2": lambda: Qwen2Config(**_SIZE),
    "qwen3": lambda: Qwen3Config(head_dim=16, **_SIZE),
    "mistral": lambda: MistralConfig(sliding_window=WINDOW, **_SIZE),
    "phi3": lambda: Phi3Config(**_SIZE),
    "gpt2": _gpt2,
    "gemma3": _gemma3,
}
"""A configuration for every family."""


def tiny_model(
    family: str = "llama",
    *,
    attention: str = "sdpa",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    **changes: object,
) -> PreTrainedModel:
    """A random model of a family, in evaluation mode; `changes` are settings of its configuration.

    Its weights are larger than those of a fresh model, so that every part of the context moves the logits.
    """
    config = FAMILIES[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    torch.random.set_rng_state(state)
    return model.to(dtype).eval().requires_grad_(False)
