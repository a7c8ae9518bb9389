"""Decoder layers of the Llama kind, computed in few operations.

A small model's pass is a hundred products and a thousand small operations, and on a CPU each of the small ones costs
microseconds of Python before it does anything. The formulas are those of transformers; what is left out are calls:
queries, keys and values stay one tensor until they are rotated, gate and up until they are multiplied, and attention
is reached without a look-up. This file knows the layers whose formulas these are, by their classes, and no models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truedraft.targets.attention import Heads, Layout, Scoring, attend
from truedraft.targets.packed import as_one
from truedraft.targets.passes import Pass, current

__all__ = ["Rotation", "make_lean"]

_KNOWN = {
    "transformers.models.llama.modeling_llama.LlamaDecoderLayer",
    "transformers.models.mistral.modeling_mistral.MistralDecoderLayer",
    "transformers.models.qwen2.modeling_qwen2.Qwen2DecoderLayer",
    "transformers.models.qwen3.modeling_qwen3.Qwen3DecoderLayer",
}
"""Layers by their full names, so that a model's own module is the only one that has to be imported."""


@dataclass(frozen=True, slots=True)
class _Norm:
    """A norm's weight [D] times the root of D, and D times what keeps it from dividing by zero.

    Both are tensors, because a number is made into one at every use.
    """

    weight: Tensor
    epsilon: Tensor

    @classmethod
    def of(cls, norm: Any) -> _Norm:
        weight, size = norm.weight.detach(), norm.weight.numel()
        return cls(weight * math.sqrt(size), weight.new_tensor(norm.variance_epsilon * size))

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., D] over its root mean square (Zhang and Sennrich 2019), times the weight.

        On a CPU PyTorch's own norm goes through float64 and takes twice the time.
        """
        scale = (x * x).sum(-1, keepdim=True).add_(self.epsilon).rsqrt_()
        return (x * scale).mul_(self.weight)


class Rotation:
    """The rotation of a pass as its layers want it, which the first of them makes for all."""

    def __init__(self) -> None:
        self._latest: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def of(self, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Cosines and sines [B, W, 1, D] of tables [B, W, D], the sines of the first half negative."""
        latest = self._latest  # read once: another thread may be in another pass
        if latest is None or latest[0] is not tables:
            cos, sin = tables
            half = sin.shape[-1] // 2
            signed = torch.cat((sin[..., :half].neg(), sin[..., half:]), -1)
            latest = self._latest = tables, (cos.unsqueeze(2), signed.unsqueeze(2))
        return latest[1]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a layer computes with, at hand: looking it up in modules and calling them takes as long as computing."""

    scoring: Scoring
    rotation: Rotation
    before_attention: _Norm
    projections: Callable[[Tensor], Tensor]
    head_norms: tuple[_Norm, _Norm] | None
    rows: int
    queries: int
    groups: int
    dim: int
    output: Callable[[Tensor], Tensor]
    before_mlp: _Norm
    gate_up: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, layer: Any, layout: Layout, rotation: Rotation, *, carries: bool) -> _Parts:
        """carries: whether a layer may leave more rows to the next than there are nodes."""
        attention, mlp = layer.self_attn, layer.mlp
        dim = attention.head_dim
        layers = (attention.q_proj, attention.k_proj, attention.v_proj)
        norms = (_Norm.of(attention.q_norm), _Norm.of(attention.k_norm)) if hasattr(attention, "q_norm") else None
        products = as_one(*layers), as_one(attention.o_proj), as_one(mlp.gate_proj, mlp.up_proj), as_one(mlp.down_proj)
        return cls(
            scoring=Scoring(attention.scaling, layout),
            rotation=rotation,
            before_attention=_Norm.of(layer.input_layernorm),
            projections=products[0],
            head_norms=norms,
            rows=min(getattr(product, "rows", 1) for product in products) if carries else 1,
            queries=layers[0].out_features // dim,
            groups=layers[1].out_features // dim,
            dim=dim,
            output=products[1],
            before_mlp=_Norm.of(layer.post_attention_layernorm),
            gate_up=products[2],
            activation=mlp.act_fn.forward,
            down=products[3],
        )


class _Lean(nn.Module):
    """The forward of a decoder layer. Its weights, and all else, are the layer's own."""

    parts: _Parts
    self_attn: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **options: Any,
    ) -> Tensor:
        """hidden_states [B, W, D] -> [B, W, D], as the class it replaces; [1, N, D] in a ragged pass.

        Fewer rows than the products compute at least are made that many, and stay so up to the last norm.
        """
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
        parts = self.parts
        rotation = parts.rotation.of(position_embeddings)
        hidden = _at_least(hidden_states, parts.rows)
        query, keys, values = _projected(parts, parts.before_attention(hidden), rotation)
        keys, values = cache.update(keys, values, self.self_attn.layer_idx)
        if what.is_ragged:
            query = _spread(query, what)
        mixed = attend(Heads(query, keys, values, attention_mask), parts.scoring, spans=what.spans)
        if what.is_ragged:
            mixed = mixed[what.places][None]
        hidden = parts.output(_at_least(mixed.flatten(2), parts.rows)).add_(hidden)
        gate, up = parts.gate_up(parts.before_mlp(hidden)).chunk(2, -1)
        return parts.down(parts.activation(gate) * up).add_(hidden)


class _LeanNorm(nn.Module):
    """The forward of the last norm, for the rows alone that are nodes."""

    lean: _Norm

    def forward(self, hidden_states: Tensor) -> Tensor:
        """hidden_states [B, at least W, D] -> [B, W, D]."""
        what = current()
        if what is None:
            result: Tensor = super().forward(hidden_states)
            return result
        return self.lean(hidden_states[:, : what.columns])


def _at_least(x: Tensor, rows: int) -> Tensor:
    """x [B, n, D] with n at least `rows` if B is 1; what stands in rows to spare is arbitrary."""
    batch, count, _ = x.shape
    if batch > 1 or count >= rows:
        return x
    return x.expand(-1, rows, -1) if count == 1 else nn.functional.pad(x, (0, 0, 0, rows - count))


def _spread(query: Tensor, what: Pass) -> Tensor:
    """Queries [1, H, N, D] of a ragged pass as [B, H, W, D]; padding asks for nothing."""
    _, heads, _, dim = query.shape
    spread = query.new_zeros(len(what.spans), what.width, heads, dim)
    return spread.index_put_(what.places, query[0].transpose(0, 1)).transpose(1, 2)


def _projected(parts: _Parts, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [B, H, W, D] and keys [B, G, W, D], and values [B, G, W, D], of inputs [B, W, ...].

    Source: Su et al. 2021, "RoFormer", in the layout of two halves.
    """
    sizes = parts.queries, parts.groups
    cos, sin = rotation
    heads = parts.projections(x)[:, : cos.shape[1]]
    heads = heads.view(*heads.shape[:2], -1, parts.dim)
    turning, values = heads.split_with_sizes((sum(sizes), parts.groups), 2)
    if parts.head_norms is not None:
        pairs = zip(parts.head_norms, turning.split_with_sizes(sizes, 2), strict=True)
        turning = torch.cat([norm(part) for norm, part in pairs], 2)
    across = turning.roll(parts.dim // 2, -1)
    rotated = (turning * cos).add_(across.mul_(sin)).transpose(1, 2)
    query, keys = rotated.split_with_sizes(sizes, 1)
    return query, keys, values.transpose(1, 2)


def make_lean(model: Any, layout: Layout) -> bool:
    """Make the layers of known classes lean, in place, with attention of this layout; whether these are all layers."""
    layers = [x for x in model.modules() if f"{type(x).__module__}.{type(x).__qualname__}" in _KNOWN]
    depth: int = model.config.get_text_config(decoder=True).num_hidden_layers
    whole = len(layers) == depth
    rotation, lean = Rotation(), {kind: _leaner(_Lean, kind) for kind in set(map(type, layers))}
    for layer in layers:
        layer.parts = _Parts.of(layer, layout, rotation, carries=whole)
        layer.__class__ = lean[type(layer)]
    if whole:
        norm = model.get_decoder().norm
        norm.lean = _Norm.of(norm)
        norm.__class__ = _leaner(_LeanNorm, type(norm))
    return whole


def _leaner(lean: type, kind: type) -> type:
    """A class of modules with a lean forward."""
    return type(f"Lean{kind.__name__}", (lean, kind), {})
