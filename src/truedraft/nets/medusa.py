"""Medusa's heads (Cai et al. 2024): K residual blocks, each of which guesses a token further ahead.

All read the target's last state f_t (after the final norm), from which the target itself says token t + 1; head j says
token t + 1 + j for j = 1 .. K. No head knows what another one says.

Layout: vLLM's `MedusaModel`. The output matrix is one for all heads (`original_lm_head`) or one a head; over a reduced
draft vocabulary, `token_map` names the target's ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from truedraft.errors import UnsupportedModelError
from truedraft.nets.head import Head, draw_weights
from truedraft.nets.vocabulary import DraftVocabulary

__all__ = ["MedusaConfig", "MedusaNet"]


@dataclass(frozen=True)
class MedusaConfig:
    """hidden_size: of the target. vocab_size: V. heads: K. blocks: layers a residual block.

    one_output: whether all heads use one output matrix. bias: whether the blocks' layers have one.
    """

    hidden_size: int
    vocab_size: int
    heads: int = 4
    blocks: int = 1
    one_output: bool = True
    bias: bool = False

    @classmethod
    def like(
        cls, config: Any, *, heads: int = 4, one_output: bool = True, vocabulary: int | None = None
    ) -> MedusaConfig:
        """Heads for the target with this transformers configuration. vocabulary: V, if not the config's."""
        text = config.get_text_config(decoder=True)
        return cls(text.hidden_size, vocabulary or text.vocab_size, heads=heads, one_output=one_output)

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> MedusaConfig:
        """From a config.json."""
        if written.get("model_type") != "medusa":
            raise UnsupportedModelError(f"model_type is {written.get('model_type')!r}: expected 'medusa'")
        return cls(
            written["hidden_size"],
            written["vocab_size"],
            written["num_heads"],
            written.get("num_hidden_layers", 1),
            bool(written.get("original_lm_head", False)),
            bool(written.get("medusa_fc_bias", False)),
        )


class _Block(nn.Module):
    """x + silu(W x), once or several times."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.layers = nn.ModuleList(nn.Linear(size, size, bias=config.bias) for _ in range(config.blocks))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., H] -> [..., H]."""
        for layer in self.layers:
            x = x + nn.functional.silu(layer(x))
        return x


class MedusaNet(Head):
    """The heads. Fresh ones leave the state as it is, so that with `copy_output` they say what the target says next."""

    kind = "medusa"

    def __init__(
        self,
        config: MedusaConfig,
        vocabulary: DraftVocabulary | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.notes = config, {}
        self.vocabulary = DraftVocabulary.of_target(vocabulary, config.vocab_size)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.heads))
        count = len(self.vocabulary)
        if config.one_output:
            self.lm_head = nn.Linear(config.hidden_size, count, bias=False)
        else:
            self.lm_heads = nn.ModuleList(nn.Linear(config.hidden_size, count, bias=False) for _ in range(config.heads))
        draw_weights(self, generator)
        for parameter in self.blocks.parameters():
            nn.init.zeros_(parameter)

    def taps(self, layers: int) -> tuple[int, ...]:
        """The last layer's output after the final norm."""
        return (layers,)

    @property
    def target_size(self) -> int:
        """Ht."""
        return self.config.hidden_size

    def share(self, embedding: Tensor, head: Tensor) -> None:
        """Nothing of the target's is used."""

    def copy_output(self, head: Tensor) -> None:
        """Start every output matrix from the target's [V, Ht]."""
        rows = head[self.vocabulary.ids.to(head.device)]
        with torch.no_grad():
            for name, matrix in self.named_parameters():
                if name.startswith("lm_head"):
                    matrix.copy_(rows)

    def forward(self, features: Tensor) -> Tensor:
        """Tapped states [..., 1, H] to the heads' states [..., K, H]."""
        state = features.squeeze(-2)
        return torch.stack([block(state) for block in self.blocks], dim=-2)

    def logits(self, out: Tensor) -> Tensor:
        """The heads' states [..., K, H] to logits [..., K, Vd] of the draft vocabulary."""
        if self.config.one_output:
            said: Tensor = self.lm_head(out)
            return said
        each = zip(self.lm_heads, out.unbind(-2), strict=True)
        return torch.stack([head(state) for head, state in each], dim=-2)

    def to_json(self) -> dict[str, Any]:
        """As vLLM 0.32 reads it."""
        config = self.config
        return {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
            "truncated_vocab_size": len(self.vocabulary),
            "num_heads": config.heads,
            "num_hidden_layers": config.blocks,
            "medusa_fc_bias": config.bias,
            "original_lm_head": config.one_output,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The weights and, of a reduced vocabulary, `token_map`."""
        if self.vocabulary.is_full:
            return super().tensors()
        return {**super().tensors(), "token_map": self.vocabulary.ids}

    @classmethod
    def build(cls, written: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        """A fresh net for a configuration and the tensors of its file."""
        config = MedusaConfig.of(written)
        ids = tensors.pop("token_map", None)
        if ids is None and (written.get("truncated_vocab_size") or config.vocab_size) != config.vocab_size:
            raise KeyError("the tensor token_map, which says what its draft tokens are")
        return cls(config, None if ids is None else DraftVocabulary(ids, config.vocab_size))
