"""Which models can be decoded speculatively, as far as their configuration tells.

A rejected token must leave no trace, so a model's whole memory has to be keys and values that can be dropped. What a
configuration does not tell is tried out in `trial`. This file refuses to know model names.
"""

from __future__ import annotations

from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedModel

from truedraft.errors import UnsupportedModelError

__all__ = ["check_supported", "context_length"]

_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
_GROWING_ROPE = {"dynamic", "longrope"}


def check_supported(model: PreTrainedConfig | PreTrainedModel) -> None:
    """Raise `UnsupportedModelError`, with the reason, for what cannot be decoded speculatively."""
    config = model if isinstance(model, PreTrainedConfig) else model.config
    text = config.get_text_config(decoder=True)
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(text), None) if isinstance(model, PreTrainedConfig) else type(model)
    layer_types = sorted(set(getattr(text, "layer_types", None) or ()) - _ATTENTION_LAYERS)
    generation = None if isinstance(model, PreTrainedConfig) else getattr(model, "generation_config", None)
    bidirectional = getattr(text, "is_causal", True) is False or getattr(text, "use_bidirectional_attention", 0) is True
    reasons = {
        "it is an encoder-decoder": getattr(config, "is_encoder_decoder", False),
        "it has a recurrent state, which cannot forget a rejected token": getattr(kind, "_is_stateful", False),
        f"its layers of type {', '.join(layer_types)} are not plain attention": layer_types,
        "it attends to later tokens": bidirectional,
        "its generation settings ask for a quantized cache": (
            getattr(generation, "cache_implementation", None) == "quantized"
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UnsupportedModelError(f"{config.model_type} cannot be decoded speculatively: {reason}")


def context_length(config: PreTrainedConfig) -> int | None:
    """The most tokens the model can read, None without a limit.

    Rotary embeddings that stretch with the text would turn the keys that are already cached into those of another
    text, so such a model's limit is the length up to which they do not.
    """
    text: Any = config.get_text_config(decoder=True)
    limit = getattr(text, "max_position_embeddings", None)
    rope = getattr(text, "rope_parameters", None) or {}
    for parameters in rope.values() if all(isinstance(value, dict) for value in rope.values()) else [rope]:
        if parameters.get("rope_type") in _GROWING_ROPE:
            original = parameters.get("original_max_position_embeddings") or limit
            limit = original if limit is None else min(limit, original)
    return limit
