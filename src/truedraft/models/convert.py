"""A GGUF file becomes a normal model folder: config, tokenizer, chat template, end tokens and safetensors weights.

The weights are stored as they come out of the file: float32, or bfloat16 where that holds every one of them exactly.
Nothing is guessed: a weight that the file lacks, or that the model has no place for, is an error. It refuses to know
where the file came from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.models.gguf_file import Header, check_gguf
from truedraft.models.progress import Progress

__all__ = ["convert"]


def convert(file: Path, folder: Path, *, progress: Progress, eos: Sequence[str] = ()) -> None:
    """Write a model folder with the weights of a GGUF file.

    eos names the tokens that end a text; where empty, the file's own end-of-text and end-of-turn tokens do. Raises
    `CorruptModelError` or `UnsupportedModelError`; whatever is then in `folder` is of no use.
    """
    header = check_gguf(file)
    folder.mkdir(parents=True)
    progress.start(f"converting {file.name}", sum(tensor.nbytes for tensor in header.tensors))
    with _alone(file, folder) as home, _told(progress):
        model = _load(home, file, header)
        tokenizer = _tokenizer(home, file)
        _check_weights(model, file, header)
        ends = [tokenizer.convert_tokens_to_ids(token) for token in eos] or _end_tokens(tokenizer, header)
        _save(model, folder, ends)
        tokenizer.save_pretrained(folder)
    progress.finish()


def _load(home: Path, file: Path, header: Header) -> Any:
    from transformers import AutoModelForCausalLM  # seconds to import, and only a conversion needs it

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            home, gguf_file=_LINK, dtype=torch.float32, output_loading_info=True
        )
    except (ValueError, RuntimeError, KeyError, TypeError, NotImplementedError, IndexError) as error:
        raise UnsupportedModelError(
            f"{file}: transformers cannot build a model of architecture {header.architecture!r} from it: {_line(error)}"
        ) from error
    model, report = loaded
    if report["missing_keys"]:
        names = ", ".join(sorted(report["missing_keys"])[:3])
        raise CorruptModelError(f"{file} lacks {len(report['missing_keys'])} weights of its model, such as {names}")
    return model


def _tokenizer(home: Path, file: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(home, gguf_file=_LINK)
    except Exception as error:  # the converters of many tokenizer kinds fail in as many ways
        raise UnsupportedModelError(f"{file}: transformers cannot rebuild its tokenizer: {_line(error)}") from error


def _check_weights(model: Any, file: Path, header: Header) -> None:
    """Every weight of the file has found its place, and none is infinite or not a number."""
    parameters = dict(model.named_parameters())  # tied weights are listed once, as they are stored once
    placed = sum(parameter.numel() for parameter in parameters.values())
    if placed != header.elements:
        raise UnsupportedModelError(
            f"{file} holds {header.elements:,} weights, but transformers has places for {placed:,} in a model of "
            f"architecture {header.architecture!r}: give the model's hub id or its original folder instead"
        )
    for name, parameter in parameters.items():
        if not torch.isfinite(parameter).all():
            raise CorruptModelError(f"{file}: {name} holds infinite values or values that are no numbers")


def _end_tokens(tokenizer: Any, header: Header) -> list[int]:
    ends = (tokenizer.eos_token_id, header.metadata.get("tokenizer.ggml.eot_token_id"))
    return sorted({int(end) for end in ends if end is not None})


def _save(model: Any, folder: Path, ends: Sequence[int]) -> None:
    """Save through a fresh model, because a GGUF-loaded one refuses; its weights are handed over, not copied."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    settings = model.config.to_dict()
    for trace in ("quantization_config", "_model_name_or_path"):
        settings.pop(trace, None)
    config = type(model.config)(**settings)
    config.eos_token_id = list(ends) if len(ends) > 1 else next(iter(ends), None)
    with torch.device("meta"):
        fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(model.state_dict(), assign=True)
    fresh.tie_weights()
    fresh.generation_config = GenerationConfig.from_model_config(config)
    if all(torch.equal(weight, weight.bfloat16().float()) for weight in fresh.parameters()):
        fresh = fresh.to(torch.bfloat16)
    fresh.save_pretrained(folder)


_LINK = "model.gguf"


@contextmanager
def _alone(file: Path, folder: Path) -> Iterator[Path]:
    """A folder that holds nothing but the file, as model.gguf: a config or tokenizer beside it would be read too."""
    home = folder.with_name(f"{folder.name}.source")
    home.mkdir(exist_ok=True)
    link = home / _LINK
    link.unlink(missing_ok=True)
    try:
        link.hardlink_to(file.resolve())
    except OSError:  # it lies on another disk
        link.symlink_to(file.resolve())
    try:
        yield home
    finally:
        link.unlink()
        home.rmdir()


@contextmanager
def _told(progress: Progress) -> Iterator[None]:
    """Progress goes to `progress` alone, without the warnings of packed weights that a dense model does not have."""
    from transformers.utils import logging as chatter

    loader: Any = import_module("transformers.modeling_gguf_pytorch_utils")

    def count(tensors: Iterable[Any], **_: Any) -> Iterator[Any]:
        for tensor in tensors:
            yield tensor
            progress.advance(int(tensor.n_bytes))

    level, bars, bar = chatter.get_verbosity(), chatter.is_progress_bar_enabled(), loader.tqdm
    chatter.set_verbosity(logging.ERROR)
    chatter.disable_progress_bar()
    loader.tqdm = count  # the loader's own bar heeds no switch
    try:
        yield
    finally:
        loader.tqdm = bar
        chatter.set_verbosity(level)
        if bars:
            chatter.enable_progress_bar()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
