"""One call of a transformers model on a pass.

This file knows how transformers is called and what it answers, nothing of rows and sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from truedraft.errors import UnsupportedModelError
from truedraft.targets.passes import Pass, running

__all__ = ["features_of", "logits_of", "run_model"]


def run_model(
    model: Any,
    what: Pass,
    tokens: Sequence[Sequence[int]],
    cache: Cache,
    *,
    taps: Sequence[int] = (),
    scored: bool = True,
    last: bool = False,
) -> Any:
    """Run the model on tokens [n] of every span, in evaluation mode; its output.

    Unless scored, the head is left out; last: it needs to score nothing but the last column.
    """
    if model.training:
        with _evaluating(model):
            return run_model(model, what, tokens, cache, taps=taps, scored=scored, last=last)
    options: dict[str, Any] = {"logits_to_keep": 1} if last else {}
    if what.is_ragged:
        ids, positions = [[token for row in tokens for token in row]], what.positions[what.places][None]
    else:
        ids, positions = [[*row, *[row[-1]] * (what.width - len(row))] for row in tokens], what.positions
        if scored and what.is_padded:  # padding needs no logits
            real = torch.zeros(positions.shape, dtype=torch.bool, device=what.device)
            options["logits_to_keep"] = real.index_put_(what.places, torch.tensor(True))
    with running(what):
        return (model if scored else model.get_decoder())(
            input_ids=torch.tensor(ids, device=what.device),
            position_ids=positions,
            cache=cache,
            use_cache=True,
            output_hidden_states=list(taps) if taps else None,
            **options,
        )


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode for a model that its owner trains: each part has its own mode back afterwards."""
    parts = [part for part in model.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True


def logits_of(output: Any, what: Pass) -> list[Tensor]:
    """The logits [n, V] of every span's new nodes."""
    if what.is_padded:  # of the real nodes, one span's behind the other's
        return list(output.logits.flatten(0, -2).split([span.fresh for span in what.spans]))
    return list(output.logits.unbind())


def features_of(output: Any, what: Pass, taps: Sequence[int]) -> list[Tensor]:
    """The tapped hidden states [n, T, H] of every span's new nodes; there is at least one tap."""
    if output.hidden_states is None:
        raise UnsupportedModelError("the model does not show its hidden states; use a drafter that needs none")
    # Layers may carry more rows than there are nodes (see `lean`).
    stacked = torch.stack([output.hidden_states[tap][:, : what.columns] for tap in taps], dim=2)
    if what.is_ragged:
        return list(stacked[0].split([span.fresh for span in what.spans]))
    return [row[: span.fresh] for row, span in zip(stacked, what.spans, strict=True)]
