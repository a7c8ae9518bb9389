"""A whole small model as the learner: distillation for drafting (DistillSpec, Zhou et al. 2024).

It reads tokens and no hidden states. Aligned as heads are, slot t holds its state behind token t + 1, which says token
t + 2; there is one step, since a model drafts the next token as it would write it. Its embedding and output matrix stay
as they are, and of the latter only the rows of the draft vocabulary are learned with.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from truedraft.errors import ParameterError
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.training.teacher import OutputRows
from truedraft.training.writing import beside

__all__ = ["Student", "pruned", "usual_layers"]


def usual_layers(layers: int) -> tuple[int, ...]:
    """A fifth of a target's layers: its first ones and the last two, where its own norm and output matrix follow."""
    count = max(2, round(layers / 5))
    return (*range(count - 2), layers - 2, layers - 1) if layers > 2 else tuple(range(layers))


def pruned(model: Any, layers: Sequence[int]) -> Any:
    """A copy of a causal language model that has only some of its layers. Raises `ParameterError` for others."""
    config = copy.deepcopy(model.config)
    text = config.get_text_config(decoder=True)
    total = text.num_hidden_layers
    if not layers or list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] < total:
        raise ParameterError(f"layers are {tuple(layers)}: expected some of 0 .. {total - 1}, ascending")
    text.num_hidden_layers = len(layers)
    if getattr(text, "layer_types", None):
        text.layer_types = [text.layer_types[layer] for layer in layers]
    small = type(model)(config).to(model.device, model.dtype)
    places = {layer: place for place, layer in enumerate(layers)}
    weights = {}
    for name, value in model.state_dict().items():
        found = re.search(r"(?<=\.)(layers|h)\.(\d+)\.", name)
        if found is None:
            weights[name] = value
        elif int(found[2]) in places:
            weights[name.replace(found[0], f"{found[1]}.{places[int(found[2])]}.", 1)] = value
    small.load_state_dict(weights)
    return small.eval()


class Student(nn.Module):
    """A causal language model that learns. tokenizer: written beside it, so that it can be loaded by its folder."""

    kind = "model"

    def __init__(self, model: Any, vocabulary: DraftVocabulary | None = None, *, tokenizer: Any = None) -> None:
        super().__init__()
        self.model: Any = model.requires_grad_(True)
        for matrix in (model.get_input_embeddings(), model.get_output_embeddings()):
            matrix.requires_grad_(False)
        size = len(model.get_output_embeddings().weight)
        self.vocabulary = vocabulary or DraftVocabulary.full(size)
        self.tokenizer = tokenizer
        self.notes: Mapping[str, Any] = {}
        self._output = OutputRows(model, None if self.vocabulary.is_full else self.vocabulary.ids)

    def taps(self, layers: int) -> tuple[int, ...]:
        """None: it reads tokens."""
        return ()

    def share(self, embedding: Tensor, head: Tensor) -> None:
        """Nothing of the target's is used."""

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, T], padded on the right, to the states behind them [B, T, H]."""
        states: Tensor = self.model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        return states

    def logits(self, states: Tensor) -> Tensor:
        """States [..., H] to logits [..., Vd]."""
        return self._output(states)

    def save(self, folder: str | Path, *, dtype: torch.dtype | None = None) -> None:
        """Write a model folder; weights in their own type, or converted to another one.

        Files take the place of earlier ones when all of them are written.
        """
        folder = Path(folder)
        weights = {name: value.to(dtype) if dtype else value for name, value in self.model.state_dict().items()}
        part = beside(folder)
        shutil.rmtree(part, ignore_errors=True)
        self.model.save_pretrained(part, state_dict=weights)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(part)
        _move_all(part, folder)


def _move_all(part: Path, folder: Path) -> None:
    """Put the files of one folder into another; the configuration last, without which a folder is no model."""
    files = [path for path in part.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path.name == "config.json"):
        place = folder / path.relative_to(part)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    shutil.rmtree(part)
