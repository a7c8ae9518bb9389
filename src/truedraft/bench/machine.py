"""What the machine can do, and how large a model is: the numbers of the roofline, measured.

Nothing here knows drafts; clocks are arguments.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch

from truedraft.planning.roofline import ModelSize

__all__ = ["clock_of", "describe", "model_size", "name_of"]

Clock = Callable[[], float]


def clock_of(device: torch.device) -> Clock:
    """Seconds, read after everything that a GPU was given is done."""
    if device.type != "cuda":
        return time.perf_counter

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def describe(device: torch.device, dtype: torch.dtype, *, numbers: int = 1 << 25, size: int = 1536) -> dict[str, Any]:
    """bandwidth in bytes/s and peak in FLOP/s, the best of a few runs, and what the machine is."""
    clock = clock_of(device)
    vector = torch.ones(numbers, device=device)
    matrix = torch.ones(size, size, device=device, dtype=dtype)
    reading = min(_seconds(lambda: vector.sum(), clock) for _ in range(4))
    product = min(_seconds(lambda: matrix @ matrix, clock) for _ in range(4))
    return {
        "bandwidth": numbers * vector.itemsize / reading,
        "peak": 2 * size**3 / product,
        "device": name_of(device),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def name_of(device: torch.device) -> str:
    """Of the GPU, or the kind of processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def _seconds(run: Callable[[], object], clock: Clock) -> float:
    start = clock()
    run()
    return clock() - start


def model_size(model: Any) -> ModelSize:
    """The size of a transformers model by its configuration: parameters that a pass reads, and its cache.

    Weights that were packed or freed count as they were, rounded ones with the bytes that they have left. A tied
    embedding is read as the head; of an untied one a pass reads a few rows only.
    """
    config = model.config
    with torch.device("meta"):
        blank = type(model)(config)
    parameters = sum(parameter.numel() for parameter in blank.parameters())
    embedding, head = blank.get_input_embeddings().weight, blank.get_output_embeddings().weight
    if embedding is not head and not getattr(config, "tie_word_embeddings", False):
        parameters -= embedding.numel()
    text = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    itemsize = torch.empty(0, dtype=model.dtype).itemsize
    return ModelSize(
        parameters=parameters,
        bytes_per_parameter=itemsize - _saved(model, itemsize) / parameters,
        cache_bytes=2 * text.num_hidden_layers * key_heads * head_size * itemsize,
        attention_flops=4 * text.num_hidden_layers * heads * head_size,
    )


def _saved(model: Any, itemsize: int) -> int:
    """The bytes that a pass need not read because weights were rounded; layers that were packed know their product."""
    products = {module.product for module in model.modules() if hasattr(module, "product")}
    return sum(product.outputs * product.inputs * itemsize - product.bytes for product in products)
