"""Decoders of the Llama kind, computed in few operations.

A small model's pass is a hundred products and a thousand small operations, and on a CPU each of the small ones costs
microseconds of Python before it does anything. The formulas are those of transformers; what is left out are calls:
queries, keys and values stay one tensor until they are rotated, gate and up until they are multiplied, and attention
and masks are reached without a look-up. This file knows the decoders whose formulas these are, by the classes of their
layers, and no models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function
from transformers.modeling_outputs import BaseModelOutputWithPast

from truedraft.targets.attention import Heads, Layout, Scoring, attend
from truedraft.targets.masks import MASKED_ATTENTION
from truedraft.targets.packed import as_one
from truedraft.targets.passes import Pass, current
from truedraft.targets.ragged import attend_ragged

__all__ = ["make_lean", "signed", "undo_lean"]


def _no_window(config: Any, place: int) -> int | None:
    """Whatever the configuration says."""
    return None


def _same_window(config: Any, place: int) -> int | None:
    """In all layers, whatever is said of single ones."""
    window: int | None = config.sliding_window
    return window


def _own_window(config: Any, place: int) -> int | None:
    """In the layers that are said to slide."""
    return _same_window(config, place) if config.layer_types[place] == "sliding_attention" else None


_KNOWN: dict[str, Callable[[Any, int], int | None]] = {
    "transformers.models.llama.modeling_llama.LlamaDecoderLayer": _no_window,
    "transformers.models.mistral.modeling_mistral.MistralDecoderLayer": _same_window,
    "transformers.models.qwen2.modeling_qwen2.Qwen2DecoderLayer": _own_window,
    "transformers.models.qwen3.modeling_qwen3.Qwen3DecoderLayer": _own_window,
}
"""Layers by their full names, so that a model's own module is the only one that has to be imported, and how many
positions each looks back: configurations hold settings that their models do not read.
"""


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


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines [B, W, 1, D] of a pass, the sines of the first half negative."""


def signed(tables: tuple[Tensor, Tensor]) -> Rotation:
    """The rotation of tables [B, W, D] as transformers makes them."""
    cos, sin = tables
    half = sin.shape[-1] // 2
    return cos.unsqueeze(2), torch.cat((sin[..., :half].neg(), sin[..., half:]), -1).unsqueeze(2)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a layer computes with, at hand: looking it up in modules and calling them takes as long as computing."""

    scoring: Scoring
    before_attention: _Norm
    projections: Callable[[Tensor], Tensor]
    head_norms: tuple[_Norm, _Norm] | None
    rows: int
    queries: int
    groups: int
    dim: int
    inner: int
    output: Callable[[Tensor], Tensor]
    before_mlp: _Norm
    gate_up: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]
    window: int | None

    @classmethod
    def of(cls, layer: Any, layout: Layout, window: int | None) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        dim = attention.head_dim
        layers = (attention.q_proj, attention.k_proj, attention.v_proj)
        norms = (_Norm.of(attention.q_norm), _Norm.of(attention.k_norm)) if hasattr(attention, "q_norm") else None
        products = as_one(*layers), as_one(attention.o_proj), as_one(mlp.gate_proj, mlp.up_proj), as_one(mlp.down_proj)
        projections, output, gate_up, down = products
        return cls(
            scoring=Scoring(attention.scaling, layout),
            before_attention=_Norm.of(layer.input_layernorm),
            projections=projections,
            head_norms=norms,
            rows=min(getattr(product, "rows", 1) for product in products),
            queries=layers[0].out_features // dim,
            groups=layers[1].out_features // dim,
            dim=dim,
            inner=mlp.up_proj.out_features,
            output=output,
            before_mlp=_Norm.of(layer.post_attention_layernorm),
            gate_up=gate_up,
            activation=mlp.act_fn.forward,
            down=down,
            window=window,
        )

    def __call__(
        self, hidden: Tensor, *, what: Pass, place: int, mask: Tensor | None, cache: Any, rotation: Rotation
    ) -> Tensor:
        """hidden [B, W, D] -> [B, W, D], or [1, N, D] in a ragged pass; place: the layer's, in the cache.

        Fewer rows than the products compute at least are made that many, and stay so from layer to layer.
        """
        hidden = _at_least(hidden, self.rows)
        query, keys, values = _projected(self, self.before_attention(hidden), rotation)
        keys, values = cache.update(keys, values, place)
        heads = Heads(query, keys, values, mask)
        if what.is_ragged:
            mixed = attend_ragged(query, heads, self.scoring, what)
        else:
            mixed = attend(heads, self.scoring, spans=what.spans)
        hidden = self.output(_at_least(mixed.flatten(2), self.rows)).add_(hidden)
        gate, up = self.gate_up(self.before_mlp(hidden)).split_with_sizes((self.inner, self.inner), 2)
        return self.down(self.activation(gate) * up).add_(hidden)


class _LeanDecoder(nn.Module):
    """The forward of a decoder. Its weights, and all else, are the decoder's own."""

    embed_tokens: nn.Module
    rotary_emb: nn.Module
    layers: nn.ModuleList
    config: Any
    last_norm: _Norm
    masks: Callable[..., Tensor | None]

    def forward(
        self,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        output_hidden_states: Collection[int] | bool | None = None,
        **options: Any,
    ) -> Any:
        """In a pass, the states of `output_hidden_states`, a list, by their numbers; else as the class it replaces.

        A state may have more rows than there are nodes; the others mean nothing.
        """
        what = current()
        if what is None or cache is None or input_ids is None or position_ids is None:
            names = {"input_ids": input_ids, "position_ids": position_ids, "cache": cache}
            return super().forward(**names, output_hidden_states=output_hidden_states, **options)
        taps = set() if isinstance(output_hidden_states, bool | None) else set(output_hidden_states)
        seen: Any = {}
        hidden: Tensor = self.embed_tokens(input_ids)
        rotation = signed(self.rotary_emb(hidden, position_ids))
        masks: dict[int | None, Tensor | None] = {}
        layer: Any
        for place, layer in enumerate(self.layers):
            lean: _Layer = layer.lean
            if lean.window not in masks:
                masks[lean.window] = self._mask(lean.window, hidden.dtype)
            if place in taps:
                seen[place] = hidden
            hidden = lean(hidden, what=what, place=place, mask=masks[lean.window], cache=cache, rotation=rotation)
        last = self.last_norm(hidden[:, : what.columns])
        if len(self.layers) in taps:
            seen[len(self.layers)] = last
        return BaseModelOutputWithPast(last_hidden_state=last, cache=cache, hidden_states=seen or None)

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """The mask of the layers that look back so far."""
        rule = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
        return self.masks(mask_function=rule, dtype=dtype, local_size=window)


def _at_least(x: Tensor, rows: int) -> Tensor:
    """x [B, n, D] with n at least `rows` if B is 1; what stands in rows to spare is arbitrary."""
    batch, count, _ = x.shape
    if batch > 1 or count >= rows:
        return x
    return x.expand(-1, rows, -1) if count == 1 else nn.functional.pad(x, (0, 0, 0, rows - count))


def _projected(layer: _Layer, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [B, H, W, D] and keys [B, G, W, D], and values [B, G, W, D], of inputs [B, W, ...].

    Source: Su et al. 2021, "RoFormer", in the layout of two halves.
    """
    sizes = layer.queries, layer.groups
    cos, sin = rotation
    heads = layer.projections(x)[:, : cos.shape[1]]
    heads = heads.view(*heads.shape[:2], -1, layer.dim)
    turning, values = heads.split_with_sizes((sum(sizes), layer.groups), 2)
    if layer.head_norms is not None:
        pairs = zip(layer.head_norms, turning.split_with_sizes(sizes, 2), strict=True)
        turning = torch.cat([norm(part) for norm, part in pairs], 2)
    across = turning.roll(layer.dim // 2, -1)
    rotated = (turning * cos).add_(across.mul_(sin)).transpose(1, 2)
    query, keys = rotated.split_with_sizes(sizes, 1)
    return query, keys, values.transpose(1, 2)


def make_lean(model: Any, layout: Layout) -> bool:
    """Make a decoder lean, in place, with attention of this layout, if all its layers are known; whether they were."""
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", ())
    names = [f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in layers]
    if isinstance(decoder, _LeanDecoder) or not names or not _KNOWN.keys() >= set(names):
        return False
    lean = [_Layer.of(layer, layout, _KNOWN[names[at]](decoder.config, at)) for at, layer in enumerate(layers)]
    decoder.last_norm = _Norm.of(decoder.norm)
    for layer, computed in zip(layers, lean, strict=True):
        layer.lean = computed
    decoder.masks = MASKED_ATTENTION["truedraft-exact" if layout.exact else "truedraft"]
    decoder.__class__ = _leaner(type(decoder))
    return True


def undo_lean(model: Any) -> None:
    """Make a lean decoder what it was."""
    decoder = model.get_decoder()
    decoder.__class__ = type(decoder).__bases__[1]
    for layer in decoder.layers:
        del layer.lean
    del decoder.last_norm, decoder.masks


def _leaner(kind: type) -> type:
    """The class of a lean decoder. transformers finds what it knows of a class by its full name, so that stays."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (_LeanDecoder, kind), names)
