"""EAGLE-1's head (Li et al. 2024), which EAGLE-2 uses too: one layer that continues the target's last hidden states.

Slot t of a row reads the target's state f_t (its last, after the final norm) and token t + 1, and says what the state
at token t + 1 will be; the target's own output matrix turns that into token t + 2. Its position is t:

    slot      reads                         says
    t         f_t,           x_{t+1}        f_{t+1}, so x_{t+2}      the committed text
    t + 1     output of t,   x_{t+2}        f_{t+2}, so x_{t+3}      a draft, until the target has been there

Layout: vLLM's `EagleLlamaForCausalLM`, without embedding and output matrix, which are the target's. A reduced draft
vocabulary has no place in that layout; it stands in the notes and engines draft from all tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from truedraft.errors import UnsupportedModelError
from truedraft.nets.attention import Attend
from truedraft.nets.head import NOTES, EmbeddingHead, check_architecture, draw_weights
from truedraft.nets.layers import Attention, FeedForward, LayerConfig, norm
from truedraft.nets.vocabulary import DraftVocabulary

__all__ = ["Eagle1Config", "Eagle1Net"]

_ARCHITECTURES = ("LlamaForCausalLM", "EagleLlamaForCausalLM")
_IDS = "draft_vocabulary"


@dataclass(frozen=True)
class Eagle1Config:
    """layer: sizes of the layer, as wide as the target."""

    layer: LayerConfig

    @classmethod
    def like(cls, config: Any, *, vocabulary: int | None = None) -> Eagle1Config:
        """A head for the target with this transformers configuration. vocabulary: V, if not the config's."""
        return cls(LayerConfig.like(config, vocabulary=vocabulary))

    @classmethod
    def of(cls, written: Mapping[str, Any], architectures: Sequence[str] = _ARCHITECTURES) -> Eagle1Config:
        """From a config.json that names one of the architectures."""
        check_architecture(written, architectures)
        return cls(LayerConfig.of(written))


class _Layer(nn.Module):
    """A decoder layer whose input is not normalised."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config.hidden_size, config)
        self.mlp = FeedForward(config)
        self.post_attention_layernorm = norm(config.hidden_size, config)

    def forward(self, state: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """States [..., H] -> [..., H]."""
        state = state + self.self_attn(state, rotation, attend)
        out: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out


class Eagle1Net(EmbeddingHead):
    """The head. A fresh one has random weights. It says nothing before `share` gave it the target's matrices."""

    kind = "eagle1"
    architectures: ClassVar[tuple[str, ...]] = _ARCHITECTURES

    def __init__(
        self,
        config: Eagle1Config,
        vocabulary: DraftVocabulary | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(config.layer, vocabulary)
        self.config = config
        self._head = torch.empty(0, config.layer.hidden_size)
        self._build(config.layer)
        draw_weights(self, generator)

    def _build(self, layer: LayerConfig) -> None:
        """Make the parts that have weights."""
        self.fc = nn.Linear(2 * layer.hidden_size, layer.hidden_size, bias=False)
        self.layers = nn.ModuleList([_Layer(layer)])

    def taps(self, layers: int) -> tuple[int, ...]:
        """The last layer's output after the final norm."""
        return (layers,)

    @property
    def target_size(self) -> int:
        """Ht, which is the head's own width."""
        return self.config.layer.hidden_size

    def share(self, embedding: Tensor, head: Tensor) -> None:
        """Use the target's embedding and the rows of its output matrix that the draft vocabulary names."""
        for name, matrix in (("embedding", embedding), ("output matrix", head)):
            if matrix.shape[1] != self.target_size:
                raise UnsupportedModelError(
                    f"the head is {self.target_size} wide: it cannot use the target's {name} of {matrix.shape[1]}"
                )
        self._embedding, head = embedding.detach(), head.detach()
        self._head = head if self.vocabulary.is_full else head[self.vocabulary.ids.to(head.device)]

    @property
    def output(self) -> Tensor:
        """The rows of the target's output matrix that it uses [Vd, H]."""
        return self._head

    def fuse(self, features: Tensor) -> Tensor:
        """Tapped states [..., 1, H] to what a slot of committed text reads [..., H]: the state itself."""
        return features.squeeze(-2)

    def forward(self, state: Tensor, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """States [..., H], next tokens [...] and positions [...] to the states that shall follow [..., H]."""
        out = self._joined(self.embedded(tokens, state.dtype), state)
        rotation = self._rotary(positions)
        for layer in self.layers:
            out = layer(out, rotation, attend)
        return out

    def _joined(self, embedded: Tensor, state: Tensor) -> Tensor:
        """Embeddings [..., H] and states [..., H] to what the layer reads [..., H]."""
        joined: Tensor = self.fc(torch.cat((embedded, state), dim=-1))
        return joined

    def logits(self, out: Tensor) -> Tensor:
        """States [..., H] to logits [..., Vd] of the draft vocabulary."""
        return nn.functional.linear(out, self._head.to(out.dtype))

    def to_json(self) -> dict[str, Any]:
        """As vLLM reads it."""
        return {"architectures": [self.architectures[0]], **self.config.layer.to_json()}

    def save(self, folder: Any, *, dtype: torch.dtype | None = None) -> None:
        """Write the folder; the draft vocabulary, if it is reduced, stands in the notes."""
        if not self.vocabulary.is_full:
            self.notes = {**self.notes, _IDS: self.vocabulary.ids.tolist()}
        super().save(folder, dtype=dtype)

    @classmethod
    def build(cls, written: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        """A fresh net for a configuration and the tensors of its file."""
        config, vocabulary = cls._noted(written)
        net = cls(config, vocabulary)
        net.expect_embedding(config.layer, tensors)
        return net

    @classmethod
    def _noted(cls, written: Mapping[str, Any]) -> tuple[Eagle1Config, DraftVocabulary | None]:
        """The configuration and the draft vocabulary that a file's configuration holds."""
        config = Eagle1Config.of(written, cls.architectures)
        ids = (written.get(NOTES) or {}).get(_IDS)
        return config, None if ids is None else DraftVocabulary(torch.tensor(ids), config.layer.vocab_size)
