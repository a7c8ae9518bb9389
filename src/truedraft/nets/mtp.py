"""The module of multi-token prediction (DeepSeek-V3, 2024, section 2.2): what EAGLE-1's head reads, normalised first.

Slot t of a row reads the target's last hidden state f_t (after the final norm) and token t + 1 and says what the state
at token t + 1 will be; the target's own output matrix turns that into token t + 2. One module serves every depth: where
a draft goes on, it reads its own output in place of the target's state.

    x = M [norm(embedding of x_{t+1}); norm(f_t)]          enorm, hnorm, eh_proj: the embedding stands first
    f_{t+1} = norm(layer(x))                               norm; the layer is a whole decoder layer

Such a module can be trained with its target from the start, as an auxiliary loss that is a drafter afterwards, or on a
target that is there already. Layout: the parts have the names that DeepSeek's checkpoints give them, the layer those of
Llama; embedding and output matrix are the target's. No engine loads such a module without its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from truedraft.nets.attention import Attend
from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.layers import Attention, FeedForward, LayerConfig, norm

__all__ = ["MtpNet"]


class _Layer(nn.Module):
    """A decoder layer of Llama's."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.input_layernorm = norm(config.hidden_size, config)
        self.self_attn = Attention(config.hidden_size, config)
        self.post_attention_layernorm = norm(config.hidden_size, config)
        self.mlp = FeedForward(config)

    def forward(self, state: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """States [..., H] -> [..., H]."""
        state = state + self.self_attn(self.input_layernorm(state), rotation, attend)
        out: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out


class MtpNet(Eagle1Net):
    """The module. A fresh one has random weights. It says nothing before `share` gave it the target's matrices."""

    kind = "mtp"
    architectures: ClassVar[tuple[str, ...]] = ("MtpModule",)

    def _build(self, layer: LayerConfig) -> None:
        size = layer.hidden_size
        self.enorm, self.hnorm, self.norm = (norm(size, layer) for _ in range(3))
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.layers = nn.ModuleList([_Layer(layer)])

    def follow(self, embedding: Tensor, head: Tensor) -> None:
        """Share the target's matrices so that gradients reach them: for one step of training both together.

        The whole draft vocabulary is needed for that.
        """
        self._embedding, self._head = embedding.view_as(embedding), head.view_as(head)

    @torch.no_grad()
    def start_from(self, layer: nn.Module, final_norm: nn.Module) -> bool:
        """Take over the weights of the target's last layer and final norm, and at first read its states alone.

        Returns False, and changes nothing, if that layer is not of this kind.
        """
        mine, theirs = self.layers[0].state_dict(), layer.state_dict()
        if {name: each.shape for name, each in mine.items()} != {name: each.shape for name, each in theirs.items()}:
            return False
        self.layers[0].load_state_dict(theirs)
        self.norm.load_state_dict(final_norm.state_dict())
        size = self.target_size
        self.eh_proj.weight[:, size:] += torch.eye(size)
        return True

    def forward(self, state: Tensor, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """States [..., H], next tokens [...] and positions [...] to the states that shall follow [..., H]."""
        normalised: Tensor = self.norm(super().forward(state, tokens, positions, attend))
        return normalised

    def _joined(self, embedded: Tensor, state: Tensor) -> Tensor:
        joined: Tensor = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(state)), dim=-1))
        return joined

    @classmethod
    def build(cls, written: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        """A fresh net for a configuration and the tensors of its file."""
        return cls(*cls._noted(written))
