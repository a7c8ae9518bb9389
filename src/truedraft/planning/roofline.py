"""What no pass can beat: the time to read weights and cache, and the time of the arithmetic, from a few numbers.

The roofline model (Williams et al. 2009) for a dense decoder. A data sheet predicts with it, a profile measures.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Machine", "ModelSize", "break_even_batch", "pass_seconds"]


@dataclass(frozen=True)
class Machine:
    """bandwidth in bytes/s, peak in FLOP/s."""

    bandwidth: float
    peak: float


@dataclass(frozen=True)
class ModelSize:
    """parameters: those a pass reads. bytes_per_parameter: of a stored one.

    cache_bytes: keys and values of one token. attention_flops: of one new token for one token of context.
    """

    parameters: float
    bytes_per_parameter: float
    cache_bytes: float = 0.0
    attention_flops: float = 0.0


def pass_seconds(machine: Machine, model: ModelSize, *, batch: int, width: float, context: float = 0.0) -> float:
    """At least so many seconds: the longer of reading and computing.

    Weights are read once a pass, the cache of every text once; arithmetic is done for all batch * width tokens.
    """
    reading = model.parameters * model.bytes_per_parameter + batch * context * model.cache_bytes
    computing = batch * width * (2 * model.parameters + context * model.attention_flops)
    return max(reading / machine.bandwidth, computing / machine.peak)


def break_even_batch(
    machine: Machine, model: ModelSize, *, tokens: float, width: float, context: float = 0.0, most: int = 4096
) -> int | None:
    """The smallest batch at which rounds that emit `tokens` from passes of `width` gain nothing; None up to `most`."""
    for batch in range(1, most + 1):
        wide = pass_seconds(machine, model, batch=batch, width=width, context=context)
        plain = pass_seconds(machine, model, batch=batch, width=1, context=context)
        if tokens * plain <= wide:
            return batch
    return None
