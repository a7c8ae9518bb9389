"""The target as a teacher: hidden states of whole rows, and the logits that follow from the last of them.

    tokens [B, T]  ──model──▶  features [B, T, taps, H]  ──head, last tap──▶  logits [B, T, V], or some columns of it

Everything that training wants of a target follows from the features, so they are computed once and kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from truedraft.errors import ParameterError

__all__ = ["OutputRows", "Teacher"]

_LOOKED_AT = 64  # numbers of a parameter that tell it from another


class OutputRows:
    """The output layer of a target, or the rows of it that belong to some tokens: last hidden state to logits.

    weight [n, H]; ids [n] are the tokens; all without. What families do to logits (scaling, soft caps) is done.
    """

    def __init__(self, model: Any, ids: Tensor | None = None) -> None:
        layer, config = model.get_output_embeddings(), model.config.get_text_config(decoder=True)
        every = slice(None) if ids is None else ids
        self.weight: Tensor = layer.weight.detach()[every].clone()
        self.bias: Tensor | None = None if layer.bias is None else layer.bias.detach()[every].clone()
        self._cap = getattr(config, "final_logit_softcapping", None)
        self._scale = (getattr(config, "logit_scale", None) or 1) / (getattr(config, "logits_scaling", None) or 1)

    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden [..., H] to logits [..., n], in the type of hidden."""
        bias = None if self.bias is None else self.bias.to(hidden.dtype)
        logits = nn.functional.linear(hidden, self.weight.to(hidden.dtype), bias) * self._scale
        return logits if self._cap is None else torch.tanh(logits / self._cap) * self._cap


class Teacher:
    """A frozen causal language model and the taps that are wanted of it.

    Tap i is the input of layer i (transformers' `hidden_states[i]`); tap L, the number of layers, the normalised output
    of the last one.
    """

    def __init__(self, model: Any, taps: Sequence[int], *, tokenizer: Any = None) -> None:
        config = model.config.get_text_config(decoder=True)
        self.layers: int = config.num_hidden_layers
        if any(not 0 <= tap <= self.layers for tap in taps) or len(set(taps)) < len(taps):
            raise ParameterError(f"taps are {tuple(taps)}: expected different layers in 0 .. {self.layers}")
        self.model, self.taps, self.tokenizer = model, tuple(taps), tokenizer
        self.hidden_size: int = config.hidden_size
        self.embedding_matrix: Tensor = model.get_input_embeddings().weight.detach()
        self.output_matrix: Tensor = model.get_output_embeddings().weight.detach()

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.embedding_matrix.device

    @property
    def vocabulary(self) -> int:
        """How many token ids it can read and say."""
        return min(len(self.embedding_matrix), len(self.output_matrix))

    @property
    def output_size(self) -> int:
        """V, the number of logits."""
        return len(self.output_matrix)

    @property
    def fingerprint(self) -> int:
        """Tells weights from others of the same shapes: a checksum of some numbers of every parameter."""
        found = 0
        for parameter in self.model.parameters():
            numbers = parameter.detach().flatten()
            some = numbers[:: max(1, len(numbers) // _LOOKED_AT)].to(torch.bfloat16)
            found = zlib.crc32(some.view(torch.int16).numpy(force=True).tobytes(), found)
        return found

    @property
    def last_layer(self) -> tuple[nn.Module, nn.Module] | None:
        """The last decoder layer and the norm behind it; None where the model does not call them so."""
        decoder: Any = self.model.get_decoder()
        layers, final = getattr(decoder, "layers", None), getattr(decoder, "norm", None)
        return None if layers is None or final is None else (layers[-1], final)

    @torch.no_grad()
    def features(self, tokens: Tensor) -> Tensor:
        """tokens [B, T], padded on the right or not at all, to features [B, T, taps, H], on the model's device."""
        output = self.model.get_decoder()(input_ids=tokens.to(self.device), use_cache=False, output_hidden_states=True)
        return torch.stack([output.hidden_states[tap] for tap in self.taps], dim=2)

    def output(self, ids: Tensor | None = None) -> OutputRows:
        """The output layer for some tokens [n]; for all without."""
        return OutputRows(self.model, ids)
