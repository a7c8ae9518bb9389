"""From a name to a model, its tokenizer and what is known about both."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel

from truedraft.models import Progress, resolve
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.fast import Preparation, prepare
from truedraft.targets.load import load_model, load_tokenizer

if TYPE_CHECKING:
    from truedraft.build.options import Options

__all__ = ["Loaded", "facts_of", "load_named", "unwrapped"]


@dataclass(frozen=True)
class Loaded:
    """A model, its tokenizer, None without one, and what was done to make it fast."""

    cache: CachedModel
    tokenizer: Any
    preparation: Preparation


def load_named(name: str | Path, options: Options, progress: Progress | None) -> Loaded:
    """The model and tokenizer behind a name."""
    folder = resolve(str(name), progress=progress, offline=options.offline, allow_pickle=options.allow_pickle)
    cache = load_model(
        folder,
        dtype=options.dtype,
        device=options.device,
        attention=options.attention,
        trust_remote_code=options.trust_remote_code,
        allow_pickle=options.allow_pickle,
    )
    tokenizer = load_tokenizer(folder, trust_remote_code=options.trust_remote_code)
    if options.attention != "auto":
        return Loaded(cache, tokenizer, Preparation(False))
    preparation = prepare(cache.model, exact=options.exact, weights=options.weights)
    cache.ragged, cache.weights = preparation.ragged, preparation.weights
    return Loaded(cache, tokenizer, preparation)


def facts_of(cache: CachedModel, tokenizer: Any) -> Facts:
    """Vocabulary, context and end tokens of a loaded model. Ids past the tokenizer's own are padding."""
    size = cache.vocab_size
    known = size if tokenizer is None else min(_ids(tokenizer, size), size)
    return Facts(known, cache.context_length, frozenset(_end_tokens(cache.model, tokenizer)), tokenizer)


def _ids(tokenizer: Any, enough: int) -> int:
    """One more than the highest id, which may leave gaps. Where tokens number `enough`, that is not looked for."""
    count = len(tokenizer) if isinstance(tokenizer, Sized) else enough
    if count >= enough:
        return enough
    try:
        vocabulary: dict[str, int] = tokenizer.get_vocab()
    except (AttributeError, NotImplementedError):  # it shows no vocabulary
        return count
    return max(count, 1 + max(vocabulary.values(), default=-1))


def unwrapped(target: Any) -> Any:
    """The transformers model in one that PEFT made, if the adapter's weights are in its layers; else what is given."""
    wraps = getattr(target, "get_base_model", None)
    if isinstance(target, PreTrainedModel) or not isinstance(target, nn.Module) or not callable(wraps):
        return target
    inner = wraps()
    if not isinstance(inner, PreTrainedModel):
        return target
    held = {id(weight) for weight in inner.parameters()}
    return inner if all(id(weight) in held for weight in target.parameters()) else target


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """From the generation config, else the model's config, else the tokenizer."""
    sources = (getattr(model, "generation_config", None), model.config, tokenizer)
    for found in (getattr(source, "eos_token_id", None) for source in sources):
        if found is not None:
            return [found] if isinstance(found, int) else list(found)
    return []
