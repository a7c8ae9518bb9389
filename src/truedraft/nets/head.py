"""What all heads share: a configuration, a draft vocabulary, and a folder on disk that serving engines load as it is.

A folder holds `config.json` and `model.safetensors`. What is this project's own in the configuration stands under the
key "truedraft", where nobody else looks. Every tensor that a head needs must be there, in its shape, and nothing that
it does not know: a head that is half random drafts, but is never accepted.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from truedraft.errors import CorruptModelError, ModelError, UnknownModelError, UnsupportedModelError
from truedraft.nets.layers import LayerConfig, Rotary
from truedraft.nets.vocabulary import DraftVocabulary

__all__ = ["CONFIG", "NOTES", "WEIGHTS", "EmbeddingHead", "Head", "check_architecture", "draw_weights", "read_config"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
NOTES = "truedraft"
"""The key of config.json under which notes stand: of which target the head is, how it was trained, how well it does."""


class Head(nn.Module, ABC):
    """A net that drafts from the target's hidden states. notes: what stands under NOTES in its file."""

    kind: str
    vocabulary: DraftVocabulary
    notes: Mapping[str, Any]

    @abstractmethod
    def taps(self, layers: int) -> tuple[int, ...]:
        """Whose hidden states it reads in a target of L layers, T of them; features are [..., T, Ht].

        Numbered as `Target.score` does: tap i is the input of decoder layer i, which transformers calls
        hidden_states[i]; tap L is the last layer's output after the final norm.
        """

    @property
    @abstractmethod
    def target_size(self) -> int:
        """Ht, the width of the target's hidden states."""

    @abstractmethod
    def share(self, embedding: Tensor, head: Tensor) -> None:
        """Use the target's embedding [V, Ht] and output matrix [V, Ht] for whatever the head has none of its own of.

        They are kept as they are: not saved, not trained and not moved. Raises `UnsupportedModelError` where they do
        not fit.
        """

    @abstractmethod
    def logits(self, out: Tensor) -> Tensor:
        """What the net gave [..., H] to logits [..., Vd] of the draft vocabulary."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The configuration, as serving engines read it."""

    @classmethod
    @abstractmethod
    def build(cls, written: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        """A fresh net for a configuration and the tensors of its file, by the names that `state_dict` has.

        Tensors that are no parameter (the draft vocabulary) are taken out. Raises KeyError for what is missing.
        """

    def tensors(self) -> dict[str, Tensor]:
        """What the file holds."""
        return dict(self.state_dict())

    def save(self, folder: str | Path, *, dtype: torch.dtype | None = None) -> None:
        """Write the folder; weights in their own type, or converted to another one."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
            for name, tensor in self.tensors().items()
        }
        stored = next(tensor.dtype for tensor in weights.values() if tensor.is_floating_point())
        config = {**self.to_json(), "torch_dtype": str(stored).removeprefix("torch."), NOTES: dict(self.notes)}
        beside = folder / f"{WEIGHTS}.part"
        save_file(weights, beside, metadata={"format": "pt"})
        os.replace(beside, folder / WEIGHTS)
        beside = folder / f"{CONFIG}.part"
        beside.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
        os.replace(beside, folder / CONFIG)

    @classmethod
    def load(cls, folder: str | Path, *, dtype: torch.dtype = torch.float32) -> Self:
        """The head in a folder, its weights converted to a type.

        Raises `UnknownModelError` where there is none, `CorruptModelError` for one that is damaged or incomplete,
        `UnsupportedModelError` for one that is of another kind or needs what is not there.
        """
        folder = Path(folder)
        written, tensors = read_config(folder), _read_tensors(folder)
        try:
            net = cls.build(written, tensors)
        except KeyError as error:
            raise CorruptModelError(f"{folder} is no whole {cls.kind} head: it lacks {error.args[0]}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise CorruptModelError(f"{folder / CONFIG} is damaged: {str(error).splitlines()[0]}") from error
        except ModelError as error:
            raise type(error)(f"{folder}: {error}") from error
        _check(folder, net, tensors)
        net.load_state_dict(tensors)
        notes = written.get(NOTES)
        net.notes = notes if isinstance(notes, Mapping) else {}
        return net.to(dtype)


class EmbeddingHead(Head):
    """A head whose slots read a token each: by the target's embedding, or by its own where its file holds one."""

    def __init__(self, layer: LayerConfig, vocabulary: DraftVocabulary | None) -> None:
        super().__init__()
        self.notes = {}
        self.vocabulary = DraftVocabulary.of_target(vocabulary, layer.vocab_size)
        self.embed_tokens: nn.Embedding | None = None
        self._rotary = Rotary(layer)
        self._embedding = torch.empty(0, layer.hidden_size)

    def embedded(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """Token ids [...] to embeddings [..., H]."""
        table = self._embedding if self.embed_tokens is None else self.embed_tokens.weight
        return nn.functional.embedding(tokens, table).to(dtype)

    def expect_embedding(self, layer: LayerConfig, tensors: Mapping[str, Tensor]) -> None:
        """Make room for an embedding of its own if its file holds one."""
        if "embed_tokens.weight" in tensors:
            self.embed_tokens = nn.Embedding(layer.vocab_size, layer.hidden_size)


def check_architecture(written: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise `UnsupportedModelError` unless a configuration names one of these."""
    named = (written.get("architectures") or ["nothing"])[0]
    if named not in known:
        raise UnsupportedModelError(f"architecture is {named!r}: expected {known[0]}")


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration in a head's folder."""
    try:
        written = json.loads((folder / CONFIG).read_text("utf-8"))
    except FileNotFoundError as error:
        raise UnknownModelError(f"{folder} is not the folder of a head: it has no {CONFIG}") from error
    except (OSError, ValueError) as error:
        raise CorruptModelError(f"{folder / CONFIG} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(written, dict):
        raise CorruptModelError(f"{folder / CONFIG} is damaged: expected a JSON object")
    return written


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    if not (folder / WEIGHTS).is_file():
        if any(folder.glob("*.bin")):
            raise UnsupportedModelError(f"{folder} has pickled weights only, which can run code; save it as {WEIGHTS}")
        raise CorruptModelError(f"{folder} has no {WEIGHTS}: copy the whole folder again")
    try:
        return dict(load_file(folder / WEIGHTS))
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptModelError(f"{folder / WEIGHTS} cannot be read: {str(error).splitlines()[0]}") from error


def _check(folder: Path, net: Head, tensors: Mapping[str, Tensor]) -> None:
    """Exactly the tensors of the net, in their shapes, and all of them numbers."""
    wanted = net.state_dict()
    for name, tensor in wanted.items():
        if name not in tensors:
            raise CorruptModelError(f"{folder / WEIGHTS} lacks the tensor {name} {list(tensor.shape)}")
        if tensors[name].shape != tensor.shape:
            shapes = f"{list(tensors[name].shape)}, expected {list(tensor.shape)}"
            raise CorruptModelError(f"{folder / WEIGHTS} holds {name} as {shapes} by its {CONFIG}")
        if not bool(tensors[name].isfinite().all()):
            raise CorruptModelError(f"{folder / WEIGHTS} holds {name} with numbers that are not finite")
    if unknown := sorted(set(tensors) - set(wanted)):
        raise CorruptModelError(f"{folder / WEIGHTS} holds {unknown[0]}, which a {net.kind} head does not have")


def draw_weights(net: nn.Module, generator: torch.Generator | None) -> None:
    """Matrices from a normal law of deviation 0.02, as Llama's; what is a vector keeps its start."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.02, generator=generator)
