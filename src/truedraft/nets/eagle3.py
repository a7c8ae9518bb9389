"""EAGLE-3's head (Li et al. 2025): one layer over fused low, middle and high hidden states and the next token.

Slot t of a row reads what the target knew at token t (its tapped states g_t, fused) and token t + 1, and speaks of
token t + 2; its position is t. Further draft steps read the layer's own output in place of fused states:

    slot      reads                         says
    t         fuse(g_t),     x_{t+1}        x_{t+2}      the committed text
    t + 1     output of t,   x_{t+2}        x_{t+3}      a draft, until the target has been there

Layout: `LlamaForCausalLMEagle3`. Taps are inputs of decoder layers, under `eagle_aux_hidden_state_layer_ids` at the top
level as vLLM numbers them, and one less each under `eagle_config`, as SGLang does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from truedraft.errors import UnsupportedModelError, VocabularyError
from truedraft.nets.attention import Attend
from truedraft.nets.head import EmbeddingHead, check_architecture, draw_weights
from truedraft.nets.layers import Attention, FeedForward, LayerConfig, norm
from truedraft.nets.vocabulary import DraftVocabulary

__all__ = ["Eagle3Config", "Eagle3Net", "usual_taps"]

_TAPS = "eagle_aux_hidden_state_layer_ids"
_ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")


def usual_taps(layers: int) -> tuple[int, int, int]:
    """EAGLE-3's own choice: the inputs of layers 2, L / 2 and L - 3.

    Raises `UnsupportedModelError` for a target in which they coincide.
    """
    taps = (2, layers // 2, layers - 3)
    if not 0 < taps[0] < taps[1] < taps[2]:
        raise UnsupportedModelError(
            f"a target of {layers} layers has no three distinct taps at 2, L / 2 and L - 3: name the taps"
        )
    return taps


@dataclass(frozen=True)
class Eagle3Config:
    """layer: sizes of the layer. taps: ascending. target_size: Ht.

    norm_before_residual: the residual starts from the normalised state. norm_output: the next step reads the
    normalised output. Both are false where a head shall run on every serving engine.
    """

    layer: LayerConfig
    taps: tuple[int, ...]
    target_size: int
    norm_before_residual: bool = False
    norm_output: bool = False

    def __post_init__(self) -> None:
        if not self.taps or list(self.taps) != sorted(set(self.taps)) or self.taps[0] < 0:
            raise UnsupportedModelError(f"taps are {self.taps}: expected ascending layers, each once")

    @classmethod
    def like(cls, config: Any, *, taps: tuple[int, ...] | None = None, vocabulary: int | None = None) -> Eagle3Config:
        """A head for the target with this transformers configuration. vocabulary: V, if not the config's."""
        text = config.get_text_config(decoder=True)
        chosen = usual_taps(text.num_hidden_layers) if taps is None else taps
        if max(chosen, default=0) > text.num_hidden_layers:
            raise UnsupportedModelError(f"taps are {chosen}: the target has {text.num_hidden_layers} layers")
        return cls(LayerConfig.like(config, vocabulary=vocabulary), chosen, text.hidden_size)

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Eagle3Config:
        """From a config.json. Raises `UnsupportedModelError` for variants that are not run here."""
        check_architecture(written, _ARCHITECTURES)
        nested = written.get("eagle_config") or {}
        for flag in ("norm_before_fc", "fc_norm", "parallel_drafting"):
            if written.get(flag) or nested.get(flag):
                raise UnsupportedModelError(f"{flag} is set: heads with it are not run")
        if _TAPS not in written:
            raise KeyError(f"{_TAPS} at the top level of its configuration, so its taps are not known")
        layer = LayerConfig.of(written)
        return cls(
            layer,
            tuple(written[_TAPS]),
            written.get("target_hidden_size") or layer.hidden_size,
            bool(written.get("norm_before_residual", False)),
            bool(written.get("norm_output", False)),
        )


class _Layer(nn.Module):
    """A decoder layer that reads twice its width: the next token's embedding beside the state."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        size = config.layer.hidden_size
        self._normalised = config.norm_before_residual
        self.self_attn = Attention(2 * size, config.layer)
        self.mlp = FeedForward(config.layer)
        self.input_layernorm = norm(size, config.layer)
        self.hidden_norm = norm(size, config.layer)
        self.post_attention_layernorm = norm(size, config.layer)

    def forward(self, embedded: Tensor, state: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """Embeddings [..., H] and states [..., H] -> [..., H]."""
        normalised = self.hidden_norm(state)
        both = torch.cat((self.input_layernorm(embedded), normalised), dim=-1)
        state = (normalised if self._normalised else state) + self.self_attn(both, rotation, attend)
        out: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out


class Eagle3Net(EmbeddingHead):
    """The head. A fresh one has random weights; `copy_output` gives its output matrix the target's rows."""

    kind = "eagle3"

    def __init__(
        self,
        config: Eagle3Config,
        vocabulary: DraftVocabulary | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(config.layer, vocabulary)
        layer, size = config.layer, config.layer.hidden_size
        self.config = config
        self.fc = nn.Linear(len(config.taps) * config.target_size, size, bias=False)
        self.midlayer = _Layer(config)
        self.norm = norm(size, layer)
        self.lm_head = nn.Linear(size, len(self.vocabulary), bias=False)
        draw_weights(self, generator)

    def taps(self, layers: int) -> tuple[int, ...]:
        """The taps of its configuration. Raises `UnsupportedModelError` if the target has fewer layers."""
        if self.config.taps[-1] > layers:
            raise UnsupportedModelError(f"the head taps layer {self.config.taps[-1]}, and the target has {layers}")
        return self.config.taps

    @property
    def target_size(self) -> int:
        """Ht."""
        return self.config.target_size

    def share(self, embedding: Tensor, head: Tensor) -> None:
        """Use the target's embedding; the output matrix is the head's own."""
        if self.embed_tokens is None:
            if embedding.shape[1] != self.config.layer.hidden_size:
                raise UnsupportedModelError(
                    f"the head has no embedding of its own and is {self.config.layer.hidden_size} wide: "
                    f"it cannot use the target's of {embedding.shape[1]}"
                )
            self._embedding = embedding.detach()

    def copy_output(self, head: Tensor) -> None:
        """Start the output matrix from the target's [V, Ht]; for a head as wide as the target."""
        with torch.no_grad():
            self.lm_head.weight.copy_(head[self.vocabulary.ids.to(head.device)])

    def fuse(self, features: Tensor) -> Tensor:
        """Tapped states [..., T, Ht] to what a slot of committed text reads [..., H]."""
        fused: Tensor = self.fc(features.flatten(-2))
        return fused

    def forward(self, state: Tensor, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """States [..., H], next tokens [...] and positions [...] to outputs [..., H], which the next step may read."""
        out: Tensor = self.midlayer(self.embedded(tokens, state.dtype), state, self._rotary(positions), attend)
        return self.norm(out) if self.config.norm_output else out

    def logits(self, out: Tensor) -> Tensor:
        """Outputs [..., H] to logits [..., Vd] of the draft vocabulary."""
        said: Tensor = self.lm_head(out if self.config.norm_output else self.norm(out))
        return said

    def to_json(self) -> dict[str, Any]:
        """As vLLM and SGLang read it."""
        config, taps = self.config, list(self.config.taps)
        return {
            "architectures": [_ARCHITECTURES[0]],
            **config.layer.to_json(),
            "draft_vocab_size": len(self.vocabulary),
            "target_hidden_size": config.target_size,
            "norm_before_residual": config.norm_before_residual,
            "norm_output": config.norm_output,
            "num_aux_hidden_states": len(taps),
            _TAPS: taps,
            "eagle_config": {"use_aux_hidden_state": True, _TAPS: [tap - 1 for tap in taps]},
        }

    def tensors(self) -> dict[str, Tensor]:
        """The weights and, of a reduced vocabulary, `d2t` (offsets) and `t2d`."""
        if self.vocabulary.is_full:
            return super().tensors()
        return {**super().tensors(), "d2t": self.vocabulary.offsets, "t2d": self.vocabulary.mask}

    @classmethod
    def build(cls, written: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        """A fresh net; `layers.0.` is taken for `midlayer.`, as engines do."""
        config = Eagle3Config.of(written)
        for name in [name for name in tensors if name.startswith("layers.0.")]:
            tensors[name.replace("layers.0.", "midlayer.", 1)] = tensors.pop(name)
        net = cls(config, _vocabulary(written, tensors))
        net.expect_embedding(config.layer, tensors)
        return net


def _vocabulary(written: Mapping[str, Any], tensors: dict[str, Tensor]) -> DraftVocabulary:
    """The draft vocabulary of a file. Raises KeyError where it is reduced and its map is missing."""
    size = written["vocab_size"]
    count = written.get("draft_vocab_size") or size
    mask, offsets = tensors.pop("t2d", None), tensors.pop("d2t", None)
    if offsets is None:
        if count != size:
            raise KeyError(f"the tensor d2t, which says what its {count} draft tokens are")
        return DraftVocabulary.full(size)
    found = DraftVocabulary.of_offsets(offsets, size)
    if len(found) != count:
        raise VocabularyError(f"d2t names {len(found)} draft tokens, and draft_vocab_size is {count}")
    if mask is not None and not torch.equal(mask.bool(), found.mask):
        raise VocabularyError("d2t and t2d name different tokens")
    return found
