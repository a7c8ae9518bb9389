"""From a model folder to a `CachedModel` and a tokenizer: safetensors only unless told otherwise, and complete.

A tensor that is missing from the files would be left random; here that is an error. This file refuses to know
catalogue names and downloads.
"""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from truedraft.errors import CorruptModelError, ParameterError, UnknownModelError, UnsupportedModelError
from truedraft.targets.cached import CachedModel
from truedraft.targets.support import check_supported

__all__ = ["check_supported", "load_model", "load_tokenizer"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load_model(
    folder: Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    attention: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> CachedModel:
    """The causal language model in a folder (config.json and weights), ready to run.

    dtype: "auto" is float32, and so exact, on a CPU and bfloat16 elsewhere. device: "auto" is a GPU if there is one.
    attention: "auto" is "sdpa" where the model has it and else "eager"; or a name that is registered with transformers'
    `AttentionInterface`. Raises `UnknownModelError` without a configuration, `UnsupportedModelError` with the reason,
    and `CorruptModelError` for damaged, missing or misshapen tensors.
    """
    place = _device_named(device)
    precision, chosen = _dtype_named(dtype, place), _attention_named(attention)
    config = _read_config(folder, trust_remote_code)
    check_supported(config)
    options = {"config": config, "dtype": precision, "attn_implementation": chosen}
    model: Any = _read_weights(folder, allow_pickle, trust_remote_code=trust_remote_code, **options)
    return CachedModel(model.to(place).requires_grad_(False))


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer in a folder; None if it has none."""
    if not any(folder.glob("tokenizer*")) and not (folder / "vocab.json").is_file():
        return None
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare ones
        raise CorruptModelError(f"the tokenizer in {folder} cannot be read: {_first_line(error)}") from error


def _device_named(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ParameterError(f"device is {device!r}: expected auto, cpu or cuda") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ParameterError(f"device is {device!r}, and PyTorch sees no GPU here; use cpu")
    return place


def _dtype_named(dtype: str | torch.dtype, place: torch.device) -> torch.dtype:
    name = str(dtype).removeprefix("torch.")
    if name == "auto":
        return torch.float32 if place.type == "cpu" else torch.bfloat16
    if name not in _DTYPES:
        raise ParameterError(f"dtype is {name!r}: expected auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _attention_named(attention: str) -> str | None:
    """None lets transformers take what the model has."""
    known = ["eager", *AttentionInterface().valid_keys()]
    if attention != "auto" and attention not in known:
        raise ParameterError(f"attention is {attention!r}: expected auto, {', '.join(known)}")
    return None if attention == "auto" else attention


def _read_config(folder: Path, trust_remote_code: bool) -> PreTrainedConfig:
    if not (folder / "config.json").is_file():
        raise UnknownModelError(f"{folder} is not a model folder: it has no config.json")
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
    except (OSError, StrictDataclassError) as error:
        raise CorruptModelError(f"the configuration in {folder} cannot be read: {_first_line(error)}") from error
    except (ImportError, ValueError) as error:
        raise UnsupportedModelError(f"the model in {folder} is not supported: {_first_line(error)}") from error
    return config


def _read_weights(folder: Path, allow_pickle: bool, **options: Any) -> PreTrainedModel:
    if not allow_pickle and not any(folder.glob("*.safetensors")) and any(folder.glob("*.bin")):
        raise UnsupportedModelError(
            f"{folder} has only pickled weights, which can run code; convert them to safetensors or allow pickle"
        )
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            use_safetensors=None if allow_pickle else True,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    except (SafetensorError, UnpicklingError, EOFError, OSError, RuntimeError) as error:
        raise CorruptModelError(f"the weights in {folder} cannot be read: {_first_line(error)}") from error
    except (ImportError, ValueError) as error:
        named = options.get("attn_implementation")
        how, instead = ("", "") if named is None else (f" with {named} attention", "; leave attention out")
        raise UnsupportedModelError(
            f"the model in {folder} cannot be built{how}: {_first_line(error)}{instead}"
        ) from error
    model: PreTrainedModel
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        raise CorruptModelError(f"{len(missing)} tensors are missing from {folder}, the first is {missing[0]}")
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
