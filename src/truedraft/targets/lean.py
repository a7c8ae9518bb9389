"""Decoder layers of the Llama kind, computed in few operations.

A small model's pass is a hundred products and a thousand small operations, and on a CPU each of the small ones costs
microseconds of Python before it does anything. The formulas are those of transformers; what is left out are calls:
queries, keys and values stay one tensor until they are rotated, gate and up until they are multiplied, and attention
is reached without a look-up. This file knows the layers whose formulas these are, by their classes, and no models.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from truedraft.targets.attention import PLAIN, Heads, Layout, Scoring, attend
from truedraft.targets.packed import together
from truedraft.targets.passes import Pass, current

__all__ = ["make_lean"]

_KNOWN = {
    "transformers.models.llama.modeling_llama.LlamaDecoderLayer",
    "transformers.models.mistral.modeling_mistral.MistralDecoderLayer",
    "transformers.models.qwen2.modeling_qwen2.Qwen2DecoderLayer",
    "transformers.models.qwen3.modeling_qwen3.Qwen3DecoderLayer",
}
"""Layers by their full names, so that a model's own module is the only one that has to be imported."""


class _Lean(nn.Module):
    """The forward of a decoder layer. Its weights, and all else, are the layer's own."""

    layout: Layout = PLAIN
    self_attn: Any
    mlp: Any
    input_layernorm: Any
    post_attention_layernorm: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **options: Any,
    ) -> Tensor:
        """hidden_states [B, W, D] -> [B, W, D], as the class it replaces; [1, N, D] in a ragged pass."""
        what = current()
        if cache is None or position_embeddings is None or what is None:
            result: Tensor = super().forward(
                hidden_states,
                attention_mask=attention_mask,
                cache=cache,
                position_embeddings=position_embeddings,
                **options,
            )
            return result
        attention, mlp = self.self_attn, self.mlp
        query, keys, values = _projected(attention, _normed(self.input_layernorm, hidden_states), position_embeddings)
        keys, values = cache.update(keys, values, attention.layer_idx)
        scoring = Scoring(attention.scaling, self.layout)
        if what.is_ragged:
            query = _spread(query, what)
        mixed = attend(Heads(query, keys, values, attention_mask), scoring, spans=what.spans)
        if what.is_ragged:
            mixed = mixed[what.places][None]
        hidden = hidden_states + attention.o_proj(mixed.flatten(2))
        gate_up = together((mlp.gate_proj, mlp.up_proj), _normed(self.post_attention_layernorm, hidden))
        gate, up = gate_up.chunk(2, -1)
        output: Tensor = hidden + mlp.down_proj(mlp.act_fn(gate) * up)
        return output


def _spread(query: Tensor, what: Pass) -> Tensor:
    """Queries [1, H, N, D] of a ragged pass as [B, H, W, D]; padding asks for nothing."""
    _, heads, _, dim = query.shape
    spread = query.new_zeros(len(what.spans), what.width, heads, dim)
    return spread.index_put_(what.places, query[0].transpose(0, 1)).transpose(1, 2)


def _projected(attention: Any, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [B, H, W, D] and keys [B, G, W, D], and values [B, G, W, D], of inputs [B, W, ...].

    Source: Su et al. 2021, "RoFormer", in the layout of two halves.
    """
    layers = (attention.q_proj, attention.k_proj, attention.v_proj)
    dim = attention.head_dim
    queries, groups = layers[0].out_features // dim, layers[1].out_features // dim
    heads = together(layers, x).unflatten(-1, (-1, dim))
    turning, values = heads[:, :, : queries + groups], heads[:, :, queries + groups :]
    if hasattr(attention, "q_norm"):
        parts = turning.split([queries, groups], 2)
        turning = torch.cat([_normed(attention.q_norm, parts[0]), _normed(attention.k_norm, parts[1])], 2)
    cos, sin = (part.unsqueeze(2) for part in rotation)
    half = dim // 2
    across = torch.cat((turning[..., half:].neg(), turning[..., :half]), -1)
    turned = (turning * cos).add_(across.mul_(sin)).transpose(1, 2)
    return turned[:, :queries], turned[:, queries:], values.transpose(1, 2)


def _normed(norm: Any, x: Tensor) -> Tensor:
    """x [..., D] over its root mean square (Zhang and Sennrich 2019), times the norm's weight.

    On a CPU PyTorch's own norm goes through float64 and takes twice the time.
    """
    scale = (x * x).mean(-1, keepdim=True).add_(norm.variance_epsilon).rsqrt_()
    return (x * scale).mul_(norm.weight)


def make_lean(model: Any, layout: Layout) -> bool:
    """Make the layers of known classes lean, in place, with attention of this layout; whether these are all layers."""
    layers = [x for x in model.modules() if f"{type(x).__module__}.{type(x).__qualname__}" in _KNOWN]
    lean = {kind: type(f"Lean{kind.__name__}", (_Lean, kind), {}) for kind in set(map(type, layers))}
    for layer in layers:
        layer.__class__ = lean[type(layer)]
        layer.layout = layout
    depth: int = model.config.get_text_config(decoder=True).num_hidden_layers
    return len(layers) == depth
