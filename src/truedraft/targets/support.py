"""Which models can be decoded speculatively, and what a model's cache and context look like.

A rejected token must leave no trace, so a model's whole memory has to be keys and values that can be dropped; and
it must take its positions and its mask from outside, because a tree's are not those of a text. Configurations tell
the first; the second is tried out. This file refuses to know model names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache

from truedraft.errors import UnsupportedModelError
from truedraft.targets.slots import HeadShape

__all__ = ["SurveyCache", "check_supported", "context_length"]

_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
_GROWING_ROPE = {"dynamic", "longrope"}


def check_supported(model: PreTrainedConfig | PreTrainedModel) -> None:
    """Raise `UnsupportedModelError`, with the reason, for what cannot be decoded speculatively."""
    config = model if isinstance(model, PreTrainedConfig) else model.config
    text: Any = config.get_text_config()
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(text), None) if isinstance(model, PreTrainedConfig) else type(model)
    layer_types = set(getattr(text, "layer_types", None) or ()) - _ATTENTION_LAYERS
    caching = None if isinstance(model, PreTrainedConfig) else getattr(model, "generation_config", None)
    reasons = {
        "it is an encoder-decoder": getattr(config, "is_encoder_decoder", False),
        "it has a recurrent state, which cannot forget a rejected token": getattr(kind, "_is_stateful", False),
        f"its layers of type {', '.join(sorted(layer_types))} are not plain attention": bool(layer_types),
        "it attends to later tokens (it is not causal)": _looks_ahead(text),
        "its generation settings ask for a quantized cache": getattr(caching, "cache_implementation", "") == "quantized",
    }
    for reason, applies in reasons.items():
        if applies:
            raise UnsupportedModelError(f"{config.model_type} cannot be decoded speculatively: {reason}")


def _looks_ahead(text: Any) -> bool:
    """Whether a model of this configuration attends in both directions."""
    encoder = hasattr(text, "is_decoder") and not text.is_decoder and not hasattr(text, "use_cache")
    return encoder or not getattr(text, "is_causal", True) or bool(getattr(text, "use_bidirectional_attention", False))


def context_length(config: PreTrainedConfig) -> int | None:
    """The most tokens the model can read, None without a limit.

    Rotary embeddings that stretch with the text would turn the keys that are already cached into those of another
    text, so such a model's limit is the length up to which they do not.
    """
    text: Any = config.get_text_config()
    limit = getattr(text, "max_position_embeddings", None)
    rope = getattr(text, "rope_parameters", None) or {}
    for parameters in rope.values() if all(isinstance(value, dict) for value in rope.values()) else [rope]:
        if parameters.get("rope_type") in _GROWING_ROPE:
            original = parameters.get("original_max_position_embeddings") or limit
            limit = original if limit is None else min(limit, original)
    return limit


class SurveyCache(Cache):
    """Keeps nothing but the shapes of what it is given: one short pass tells how the model's layers cache."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._shapes: dict[int, tuple[HeadShape, HeadShape]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Note the shapes of the keys and values [B, heads, W, dim]."""
        keys, values = key_states.shape, value_states.shape
        self._shapes[layer_idx] = ((keys[1], keys[3]), (values[1], values[3]))
        return key_states, value_states

    @property
    def shapes(self) -> list[HeadShape]:
        """Of layer 0's keys, its values, layer 1's keys, and so on."""
        if sorted(self._shapes) != list(range(len(self._shapes))) or not self._shapes:
            raise UnsupportedModelError(f"only layers {sorted(self._shapes)} of the model cache keys and values")
        return [shape for layer in sorted(self._shapes) for shape in self._shapes[layer]]
