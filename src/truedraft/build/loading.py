"""From a name to a model, its tokenizer and what is known about both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer

from truedraft.errors import CorruptModelError, ParameterError
from truedraft.models import Progress, resolve
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.fast import Preparation, prepare
from truedraft.targets.load import load_model

if TYPE_CHECKING:
    from truedraft.build.options import Options

__all__ = ["Loaded", "facts_of", "load_named"]


@dataclass(frozen=True)
class Loaded:
    """A model, its tokenizer, and what was done to make it fast."""

    cache: CachedModel
    tokenizer: Any
    preparation: Preparation


def load_named(name: str | Path, options: Options, progress: Progress | None) -> Loaded:
    """The model and tokenizer behind a name."""
    folder = resolve(str(name), progress=progress, offline=options.offline, allow_pickle=options.allow_pickle)
    device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ParameterError(f"device is {options.device!r}, and PyTorch sees no CUDA device here; take cpu")
    cache = load_model(
        folder,
        dtype=_dtype(options.dtype, device),
        device=device,
        attention="sdpa" if options.attention == "auto" else options.attention,
        trust_remote_code=options.trust_remote_code,
        allow_pickle=options.allow_pickle,
    )
    tokenizer = _tokenizer(folder, options)
    if options.attention != "auto":
        return Loaded(cache, tokenizer, Preparation(False))
    preparation = prepare(cache.model, exact=options.exact, weights=options.weights)
    cache.ragged = preparation.ragged
    return Loaded(cache, tokenizer, preparation)


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def _dtype(asked: str | torch.dtype, device: str) -> torch.dtype:
    """A number type by its name; auto is exact on a CPU and fast on a GPU."""
    name = str(asked).removeprefix("torch.")
    if name == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name not in _DTYPES:
        raise ParameterError(f"dtype is {name!r}: expected auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _tokenizer(folder: Path, options: Options) -> Any:
    """The folder's tokenizer; None where there is none, and prompts are then token ids."""
    if not any(folder.glob("tokenizer*")):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=options.trust_remote_code)
    except Exception as error:  # the tokenizers library raises bare exceptions
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorruptModelError(f"the tokenizer in {folder} cannot be read: {reason}") from error


def facts_of(cache: CachedModel, tokenizer: Any) -> Facts:
    """Vocabulary, context and end tokens of a loaded model. Ids past the tokenizer's own are padding."""
    known = cache.vocab_size if tokenizer is None else min(len(tokenizer), cache.vocab_size)
    return Facts(known, cache.context_length, frozenset(_end_tokens(cache.model, tokenizer)), tokenizer)


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """From the generation config, else the model's config, else the tokenizer."""
    sources = (getattr(model, "generation_config", None), model.config, tokenizer)
    for found in (getattr(source, "eos_token_id", None) for source in sources):
        if found is not None:
            return [found] if isinstance(found, int) else list(found)
    return []
