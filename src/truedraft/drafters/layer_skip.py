"""Layer skip: the target drafts for itself with some of its layers left out.

Sources: self-speculative decoding, or Draft & Verify (Zhang et al. 2024), which skips layers in the middle; LayerSkip
(Elhoushi et al. 2024), which stops after the first ones. The weights are the target's own, and an early exit reads the
target's own cache as well. No training is needed, and no model with few layers gains by it: `layer_search` finds out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from truedraft.core import Law
from truedraft.drafters.model import DraftModel, ModelDrafter
from truedraft.errors import CorruptModelError, ParameterError
from truedraft.targets.cached import CachedModel
from truedraft.targets.stack import EarlyExit, stack

__all__ = ["LayerSet", "format_layers", "layer_skip", "parse_layers", "shipped_layers"]


@dataclass(frozen=True)
class LayerSet:
    """Layers to draft with, and what a search found out about them, if one did.

    draft_tokens: the length of a chain. agreement: how often the stack's likeliest token was the target's. cost: of a
    draft step, in target passes of one token. tokens_per_pass and speedup: of greedy texts; a speedup below 1 says that
    drafting so is slower than not drafting.
    """

    layers: tuple[int, ...]
    draft_tokens: int
    agreement: float | None = None
    cost: float | None = None
    tokens_per_pass: float | None = None
    speedup: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `of` reads."""
        measured = {name: getattr(self, name) for name in _MEASURED}
        rounded = {name: round(value, 4) for name, value in measured.items() if value is not None}
        return {"layers": format_layers(self.layers), "draft_tokens": self.draft_tokens, **rounded}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> LayerSet:
        """From such an object. Raises `KeyError`, `TypeError` or `ParameterError` for another one."""
        measured = {name: float(fields[name]) for name in _MEASURED if name in fields}
        return cls(parse_layers(fields["layers"]), int(fields["draft_tokens"]), **measured)


_MEASURED = ("agreement", "cost", "tokens_per_pass", "speedup")


def layer_skip(target: CachedModel, layers: Sequence[int], *, vocabulary: int, law: Law | None = None) -> ModelDrafter:
    """The drafter that runs these layers of the target. The first ones alone share its cache, others have their own.

    law: of its drafts, as for `ModelDrafter`.
    """
    is_exit = list(layers) == list(range(len(layers)))
    model: DraftModel = EarlyExit(target, len(layers)) if is_exit else CachedModel(stack(target.model, layers))
    return ModelDrafter(model, vocabulary=vocabulary, law=law)


def parse_layers(text: str) -> tuple[int, ...]:
    """Layers from "0-3,28,29". Raises `ParameterError` for anything else."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise ParameterError(f"layers is {text!r}: expected numbers and rising ranges such as 0-3,28,29")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def format_layers(layers: Sequence[int]) -> str:
    """The text that `parse_layers` reads."""
    ranges: list[list[int]] = []
    for layer in layers:
        if ranges and layer == ranges[-1][1] + 1:
            ranges[-1][1] = layer
        else:
            ranges.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def shipped_layers(owner: str, path: Path | None = None) -> LayerSet | None:
    """The set that was found for a model, in a file at `path` or the one that ships; None where there is none.

    The file is a JSON object of sets by owner, see `warm.owner_of`. Raises `CorruptModelError` if it is damaged.
    """
    source = path or Path(str(resources.files("truedraft.drafters") / "tables" / "layers.json"))
    try:
        entry = json.loads(source.read_text("utf-8")).get(owner)
        return None if entry is None else LayerSet.of(entry)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise CorruptModelError(
            f"{source} is no file of layer sets ({error}): expected what find-layers wrote"
        ) from None
