"""One decoder layer of Llama's kind, in parts: rotary positions, attention, the gated feed-forward.

Heads are layers of this kind whatever the target's family is: a head reads hidden states and embeddings, and what made
them is no matter to it. Names of modules are those that the files use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from truedraft.errors import UnsupportedModelError
from truedraft.nets.attention import Attend

__all__ = ["Attention", "FeedForward", "LayerConfig", "Rotary", "norm"]


@dataclass(frozen=True)
class LayerConfig:
    """Sizes of a layer, under the names of a Llama configuration. vocab_size: V, the target's number of logits."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False

    @classmethod
    def like(cls, config: Any, *, vocabulary: int | None = None) -> LayerConfig:
        """A layer of the target's own sizes, from its transformers configuration. vocabulary: if not the config's."""
        text = config.get_text_config(decoder=True)
        heads = text.num_attention_heads
        return cls(
            hidden_size=text.hidden_size,
            intermediate_size=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            num_attention_heads=heads,
            num_key_value_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
            vocab_size=vocabulary or text.vocab_size,
            max_position_embeddings=getattr(text, "max_position_embeddings", None) or 4096,
            rms_norm_eps=getattr(text, "rms_norm_eps", 1e-6),
            rope_theta=_theta(getattr(text, "rope_parameters", None) or {}),
        )

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> LayerConfig:
        """From a config.json. Raises `UnsupportedModelError` for what this layer cannot do, KeyError for a gap."""
        if (activation := written.get("hidden_act", "silu")) != "silu":
            raise UnsupportedModelError(f"hidden_act is {activation!r}: heads are run with silu only")
        if written.get("num_hidden_layers", 1) != 1:
            raise UnsupportedModelError(f"the head has {written['num_hidden_layers']} layers: heads of one are run")
        heads = written["num_attention_heads"]
        rope = dict(written.get("rope_parameters") or {})
        usual = {
            "num_key_value_heads": heads,
            "head_dim": written["hidden_size"] // heads,
            "rope_theta": rope.pop("rope_theta", 10000.0),
            "rope_scaling": rope if rope.get("rope_type", "default") != "default" else None,
        }
        given = {entry.name: written.get(entry.name) for entry in fields(cls)}
        found = usual | {name: value for name, value in given.items() if value is not None}
        needed = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
        return cls(**{name: written[name] for name in needed} | found)

    def to_json(self) -> dict[str, Any]:
        """As in a config.json."""
        constant = {"model_type": "llama", "num_hidden_layers": 1, "hidden_act": "silu", "tie_word_embeddings": False}
        return {**constant, **asdict(self)}


def _theta(rope: Mapping[str, Any]) -> float:
    """The base of the rotary positions; where layers differ in it, that of full attention."""
    if "rope_theta" not in rope and any(isinstance(value, Mapping) for value in rope.values()):
        rope = rope.get("full_attention") or next(value for value in rope.values() if isinstance(value, Mapping))
    return float(rope.get("rope_theta") or 10000.0)


def norm(size: int, config: LayerConfig) -> nn.RMSNorm:
    """Root mean square normalisation."""
    return nn.RMSNorm(size, eps=config.rms_norm_eps)


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021), the halves rotated against each other as Llama does."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        kind = (config.rope_scaling or {}).get("rope_type", (config.rope_scaling or {}).get("type", "default"))
        if kind in ("dynamic", "longrope"):
            raise UnsupportedModelError(f"rope type {kind!r} changes with the length of the text: expected a fixed one")
        settings: dict[str, Any] = {
            "head_dim": config.head_dim,
            "max_position_embeddings": config.max_position_embeddings,
        }
        rope = {**(config.rope_scaling or {}), "rope_type": kind, "rope_theta": config.rope_theta}
        made = LlamaRotaryEmbedding(LlamaConfig(**settings, rope_parameters=rope))
        self._frequencies = made.inv_freq.float()  # no buffer: a net in bfloat16 needs them in float32 still
        self._scale = float(made.attention_scaling)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [...] to cosines and sines [..., 1, d / 2], float32."""
        angles = positions[..., None, None].float() * self._frequencies.to(positions.device)
        return angles.cos() * self._scale, angles.sin() * self._scale


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """x [..., heads, d] turned by cosines and sines [..., 1, d / 2]."""
    cosines, sines = (each.to(x.dtype) for each in rotation)
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cosines - right * sines, right * cosines + left * sines), dim=-1)


class Attention(nn.Module):
    """Attention with rotary positions and fewer keys than queries; who sees whom is the `Attend`'s affair."""

    def __init__(self, inputs: int, config: LayerConfig) -> None:
        super().__init__()
        self._size, bias = config.head_dim, config.attention_bias
        queries, keys = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj = nn.Linear(inputs, queries, bias=bias)
        self.k_proj = nn.Linear(inputs, keys, bias=bias)
        self.v_proj = nn.Linear(inputs, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=bias)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """x [..., inputs] -> [..., H]; rotation as `Rotary` gives it."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self._size)) for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixture: Tensor = self.o_proj(attend(_rotate(query, rotation), _rotate(key, rotation), value).flatten(-2))
        return mixture


class FeedForward(nn.Module):
    """The gated feed-forward of Llama: down(silu(gate x) * up x)."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., H] -> [..., H]."""
        out: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out
