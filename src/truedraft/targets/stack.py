"""Some of a model's layers as a model of its own: the weights are the same tensors, packed or not.

A stack is made of shallow copies, so the model it was taken from stays as it is. This file refuses to know model names:
it looks for the one list of layers whose length the configuration tells.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from truedraft.core import Scores
from truedraft.errors import ParameterError, UnsupportedModelError
from truedraft.targets.cached import CachedModel, Nodes

__all__ = ["EarlyExit", "stack"]


def stack(model: PreTrainedModel, kept: Sequence[int]) -> PreTrainedModel:
    """The model with no layers but these, in ascending order; embeddings, final norm and head are its own.

    Raises `ParameterError` for layers that the model does not have or that are not in order, `UnsupportedModelError`
    for a model whose layers cannot be told.
    """
    text: Any = model.config.get_text_config(decoder=True)
    depth = text.num_hidden_layers
    if not kept or list(kept) != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < depth:
        raise ParameterError(f"layers are {list(kept)}: expected some of 0 .. {depth - 1}, in ascending order")
    layers = _layers(model, depth)
    chosen = nn.ModuleList([_renumbered(layers[index], place) for place, index in enumerate(kept)])
    config = copy.deepcopy(model.config)
    _shorten(config.get_text_config(decoder=True), kept)
    smaller: PreTrainedModel = _replaced(model, layers, chosen, config)
    return smaller


def _layers(model: PreTrainedModel, depth: int) -> nn.ModuleList:
    """The list of decoder layers."""
    decoder: Any = model.get_decoder()
    found = [each for each in decoder.modules() if isinstance(each, nn.ModuleList) and len(each) == depth]
    if not found:
        raise UnsupportedModelError(f"{model.config.model_type} does not show its {depth} layers as one list")
    return found[0]


def _shorten(config: Any, kept: Sequence[int]) -> None:
    """Make a configuration tell of these layers only."""
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[index] for index in kept]
    config.num_hidden_layers = len(kept)


def _twin(module: Any) -> Any:
    """A copy that holds the same parameters and children, and lists them on its own."""
    twin = copy.copy(module)
    for name in ("_parameters", "_buffers", "_modules"):
        setattr(twin, name, dict(getattr(module, name)))
    return twin


def _renumbered(layer: nn.Module, place: int) -> nn.Module:
    """A layer whose parts cache at another place."""
    twin = _twin(layer)
    if hasattr(twin, "layer_idx"):
        twin.layer_idx = place
    for name, child in layer.named_children():
        if any(hasattr(part, "layer_idx") for part in child.modules()):
            twin._modules[name] = _renumbered(child, place)
    return twin  # type: ignore[no-any-return]


def _replaced(module: Any, old: nn.Module, new: nn.Module, config: Any) -> Any:
    """Copies of a module and of all between it and its part `old`, with `new` in its place."""
    if module is old:
        return new
    twin = _twin(module)
    if "config" in twin.__dict__:
        twin.config = config if module.config.get_text_config(decoder=True) is module.config else _part(config, module)
    for name, child in module.named_children():
        if any(part is old for part in child.modules()):
            twin._modules[name] = _replaced(child, old, new, config)
    return twin


def _part(config: Any, module: Any) -> Any:
    """The part of a copied configuration that stands for the module's own."""
    text = config.get_text_config(decoder=True)
    return text if type(text) is type(module.config) else config


class EarlyExit:
    """A model's first layers and its head, on the model's own rows: what these layers cached is theirs as well.

    Behaves as `CachedModel` does for drafters. Its nodes sit behind the committed tokens until the model itself next
    looks at the row, and nothing of them is ever kept.
    """

    def __init__(self, model: CachedModel, depth: int) -> None:
        self._whole = model
        self._first = copy.copy(model)  # the same rows and the same cache
        self._first.model = stack(model.model, range(depth))
        self.context_length, self.vocab_size, self.device = model.context_length, model.vocab_size, model.device

    def known(self, key: Hashable, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first one on, the row holds already."""
        return self._whole.known(key, tokens)

    def reserve(self, key: Hashable, length: int) -> None:
        """Make sure that the row can hold `length` slots."""
        self._whole.reserve(key, length)

    def catch_up(self, key: Hashable, tokens: Sequence[int]) -> Tensor | None:
        """Make the row's committed tokens exactly these; the whole model reads what is missing."""
        return self._whole.catch_up(key, tokens)

    def extend(self, keys: Sequence[Hashable], nodes: Sequence[Nodes]) -> list[Scores]:
        """One pass of the first layers over new nodes."""
        return self._first.extend(keys, nodes)

    def keep(self, key: Hashable, path: Sequence[int]) -> None:
        """Nothing is kept: the model itself has run the accepted nodes by then."""

    def release(self, key: Hashable) -> None:
        """The row is the model's to release."""
