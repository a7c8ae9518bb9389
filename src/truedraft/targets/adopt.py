"""Our attention, and a lean decoder, in the place of a model's own: only where a small pass shows that nothing changed.

Which models these are made for is known by conventions, and a model may keep to none. This file refuses to know names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truedraft.targets.attention import Layout, register
from truedraft.targets.forward import logits_of, run_model
from truedraft.targets.lean import make_lean, undo_lean
from truedraft.targets.passes import Pass
from truedraft.targets.trial import FAULTS, SurveyCache, span, tolerance_of

__all__ = ["Adoption", "adopt"]

_TREE = (-1, 0, 1, 1, 0, 4, 3)


@dataclass(frozen=True)
class Adoption:
    """What a model took over. fault: why it kept its own attention, or else its own decoder; None without one."""

    attention: bool = False
    can_be_lean: bool = False
    fault: str | None = None


def adopt(model: Any, layout: Layout) -> Adoption:
    """Give a model our attention if its logits stay what they were, and find out whether they would in a lean decoder.

    The decoder is left as it is: what it is to compute with may still be replaced. Nothing is freed.
    """
    expected, own = _logits(model), model.config._attn_implementation
    model.set_attn_implementation(register(layout))
    if (fault := _fault(model, expected)) is not None:
        model.set_attn_implementation(own)
        return Adoption(fault=f"attention stays transformers' own: with ours {fault}")
    try:
        if not make_lean(model, layout):
            return Adoption(attention=True)
    except AttributeError as error:
        return Adoption(attention=True, fault=f"the decoder stays transformers' own: {_line(error)}")
    fault = _fault(model, expected)
    undo_lean(model)
    if fault is not None:
        return Adoption(attention=True, fault=f"the decoder stays transformers' own: with ours {fault}")
    return Adoption(attention=True, can_be_lean=True)


@torch.inference_mode()
def _logits(model: Any) -> Tensor:
    """Logits [N, V] of a small tree."""
    ids = model.get_input_embeddings().num_embeddings
    what = Pass((span(0, 0, _TREE),), model.device)
    output = run_model(model, what, [[(7 * node + 5) % ids for node in range(len(_TREE))]], SurveyCache())
    return logits_of(output, what)[0]


def _fault(model: Any, expected: Tensor) -> str | None:
    """What is wrong with the model's logits now; None if they are what they were."""
    try:
        found = _logits(model)
    except torch.OutOfMemoryError:
        raise
    except FAULTS as error:
        return f"a pass fails ({_line(error)})"
    difference, largest = float((found - expected).abs().max()), float(expected.abs().max())
    if difference <= tolerance_of(model.dtype) * largest:
        return None
    return f"logits differ by {difference:.2g} of {largest:.2g}"


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
