"""transformers' own generation as arms: plain, with prompt lookup, and assisted by a small model.

It shows no rounds, so its samples have times and ids only. Batches are padded on the left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from truedraft.bench.arms import AtOnce, Order, Sample
from truedraft.errors import ParameterError

__all__ = ["TransformersArm", "transformers_arms"]


@dataclass(frozen=True)
class TransformersArm(AtOnce):
    """`generate` of a transformers model. options: what makes it speculate; it then takes one text at a time."""

    name: str
    model: Any
    options: dict[str, Any] = field(default_factory=dict)
    comparable: bool = False
    """Other kernels round differently, so a near tie may go the other way; equality is reported, not required."""
    clock: Callable[[], float] = field(default=perf_counter, repr=False)

    def write(self, order: Order) -> Sample:
        """All texts at once, or one after another if it speculates."""
        if self.options and len(order.prompts) > 1:
            raise ParameterError(f"{self.name} takes one text at a time: leave it out of batches")
        torch.manual_seed(order.seeds[0])
        watch = _FirstToken(self.clock)
        start = self.clock()
        try:
            with torch.inference_mode():
                ids = self._generate(order, watch)
        except ValueError as error:  # such as an assistant with another tokenizer
            reason = " ".join(str(error).split())
            raise ParameterError(
                f"{self.name} cannot write this ({reason}): take another draft_model, or leave against out"
            ) from error
        seconds = self.clock() - start
        first = (watch.at or start + seconds) - start
        tokens = sum(map(len, ids))
        return Sample(tuple(ids), tokens, seconds, first, max(0, tokens - len(ids)), seconds - first)

    def _generate(self, order: Order, watch: _FirstToken) -> list[tuple[int, ...]]:
        longest = max(map(len, order.prompts))
        rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in order.prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in order.prompts]
        sampling: dict[str, Any] = {"do_sample": False}
        if order.temperature:
            sampling = {"do_sample": True, "temperature": order.temperature, "top_k": 0, "top_p": 1.0}
        device = self.model.device
        output = self.model.generate(
            torch.tensor(rows, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=order.tokens,
            min_new_tokens=order.tokens if order.fixed_length else None,
            pad_token_id=0,
            repetition_penalty=1.0,  # whatever the model's own settings are: the other arms know none
            stopping_criteria=[watch],
            **sampling,
            **self.options,
        )
        ends = self.model.generation_config.eos_token_id
        stops = {ends} if isinstance(ends, int) else set(ends or ())
        return [_cut(row[longest:].tolist(), set() if order.fixed_length else stops) for row in output]


class _FirstToken:
    """A stopping criterion that stops nothing and notes when it was first asked: after the first token."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.at: float | None = None
        self._clock = clock

    def __call__(self, ids: Any, scores: Any, **_: Any) -> Any:
        if self.at is None:
            self.at = self._clock()
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)


def _cut(ids: list[int], stops: set[int]) -> tuple[int, ...]:
    """Up to the end token, padding behind it left out."""
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids) - 1)
    return tuple(ids[: end + 1])


def transformers_arms(
    model: Any, *, assistant: Any = None, lookup: int = 10, clock: Callable[[], float] = perf_counter
) -> list[TransformersArm]:
    """Plain, prompt lookup, and assisted generation if there is an assistant. clock: one that waits for the device."""
    options: dict[str, dict[str, Any]] = {
        "transformers": {},
        "transformers prompt lookup": {"prompt_lookup_num_tokens": lookup},
    }
    if assistant is not None:
        options["transformers assisted"] = {"assistant_model": assistant}
    return [TransformersArm(name, model, each, clock=clock) for name, each in options.items()]
