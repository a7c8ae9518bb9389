"""Medusa-2: heads and target trained together, in two stages (Cai et al. 2024, section 2.2.2).

    stage 1    the heads alone, on the states of a target that stays as it is
    stage 2    both, the target at a rate of its own; its loss keeps it near what it was:

    KL(the target as it was || the target) + weight * sum_j 0.8^j next-token loss of head j

each loss a mean over the tokens of answers. Stage 1 learns the same sum, divided by the number of heads.

What comes out is another target. Texts are exactly its own, and no longer exactly those of the model that it was made
from, which its configuration says. Embedding and output matrix stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from truedraft.errors import ParameterError
from truedraft.nets.medusa import MedusaNet
from truedraft.training.batches import Batch, Order, Span, collate
from truedraft.training.course import Course
from truedraft.training.features import Row
from truedraft.training.learn import draft_ids
from truedraft.training.loop import require_finite
from truedraft.training.losses import LOSSES, Guesses
from truedraft.training.prepare import Plan
from truedraft.training.teacher import OutputRows
from truedraft.training.writing import writing

__all__ = ["Stages", "Standing", "check_together", "save_pair", "train_together"]

_DECAY = 0.8


@dataclass(frozen=True)
class Stages:
    """A run. alone: steps of stage 1; together: steps of stage 2. rate: of the heads; target_rate: of the target.

    weight: of the heads' losses in stage 2. tokens: of a batch. bfloat16: products in that type.
    """

    alone: int
    together: int
    rate: float = 1e-3
    target_rate: float = 2e-5
    weight: float = 0.2
    tokens: int = 2048
    bfloat16: bool = False
    seed: int = 0


_UNUSED = {
    "warmup": "warmup",
    "final": "final",
    "accumulate": "accumulate",
    "clip": "clip",
    "decay": "weight_decay",
    "patience": "patience",
    "checkpoint_every": "checkpoint_every",
}
"""Settings of a course that nothing here heeds, by the names that a user knows."""


def check_together(plan: Plan, joint: int, target_rate: float, *, resume: bool) -> None:
    """What joint training cannot do is refused, not ignored: raises `ParameterError`."""
    if plan.kind != "medusa" or distributed.is_initialized():
        raise ParameterError("joint training is for kind medusa in one process: leave joint out")
    if joint < 1 or not 0 < target_rate < math.inf:
        raise ParameterError(f"joint is {joint} and target_rate {target_rate}: expected numbers above 0")
    usual = Course(1)
    said = [name for field, name in _UNUSED.items() if getattr(plan.course, field) != getattr(usual, field)]
    said += [name for name in ("loss", "decay", "noise") if getattr(plan, name) is not None]
    said += ["prompts"] * plan.prompts + ["resume"] * resume
    if said:
        raise ParameterError(f"{said[0]} does nothing in joint training: leave it out, or joint")


@dataclass(frozen=True)
class Standing:
    """After a step: how far the target has moved (KL, nats a token), and the heads' loss."""

    step: int
    moved: float
    heads: float


def train_together(
    model: Any, net: MedusaNet, rows: Sequence[Row], stages: Stages, *, told: Callable[[Standing], None]
) -> None:
    """Train heads and target; both are changed. rows: with the features of the target as it was.

    Raises `ParameterError` where a loss or gradient is no number any more.
    """
    frozen = {id(matrix.weight) for matrix in (model.get_input_embeddings(), model.get_output_embeddings())}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in frozen]
    model.requires_grad_(False)
    groups = [{"params": [*net.parameters()], "lr": stages.rate}, {"params": weights, "lr": stages.target_rate}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
    for step, batch in enumerate(_batches(rows, stages, net.config.heads)):
        if step == stages.alone:
            for parameter in weights:
                parameter.requires_grad_(True)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=stages.bfloat16):
            moved, heads = _learn(model, net, batch.to(model.device), stages, together=step >= stages.alone)
        lengths = [nn.utils.clip_grad_norm_(group["params"], 1.0) for group in optimizer.param_groups]
        require_finite(step + 1, moved + heads, sum(map(float, lengths)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        told(Standing(step + 1, moved, heads))
    model.requires_grad_(False)


def save_pair(model: Any, net: MedusaNet, folder: Path, *, tokenizer: Any = None) -> None:
    """Write the changed target and its heads, each of which says what it is.

    Raises `ParameterError` where they cannot be written.
    """
    said = "trained together with Medusa heads: its texts are its own, not those of the model that it was made from"
    model.config.truedraft = {"changed": said}
    with writing(folder / "target"):
        model.save_pretrained(folder / "target")
        if tokenizer is not None:
            tokenizer.save_pretrained(folder / "target")
    net.notes = {**net.notes, "changed_target": said}
    with writing(folder / "heads"):
        net.save(folder / "heads", dtype=torch.bfloat16)


def _batches(rows: Sequence[Row], stages: Stages, heads: int) -> Iterator[Batch]:
    """As many batches as there are steps."""
    order, epoch, left = Order(tuple(map(len, rows)), stages.tokens, stages.seed), 0, stages.alone + stages.together
    while left > 0:
        for places in order.epoch(epoch)[:left]:
            yield collate([rows[place] for place in places], (), heads)
            left -= 1
        epoch += 1


def _learn(model: Any, net: MedusaNet, batch: Batch, stages: Stages, *, together: bool) -> tuple[float, float]:
    """Add the gradients of a batch; logits exist for one row at a time, as in `learn`."""
    with torch.set_grad_enabled(together):
        states: Tensor = model.get_decoder()(input_ids=batch.tokens, use_cache=False).last_hidden_state
    leaf = states.detach().float().requires_grad_(together)
    output = OutputRows(model)
    count = max(1, batch.guesses)
    told = [0.0, 0.0]
    for row, spans in enumerate(batch.spans):
        if not spans or not len(spans[0]):
            continue
        moved = _moved(output, leaf[row], batch.last[row], spans[0]) * (net.config.heads / count)
        heads = _heads_loss(net, leaf[row], batch.tokens[row], spans) / count
        # `heads` is a mean over the guesses of all heads, as many of each: the sum of the heads' means is K times that
        loss = moved + stages.weight * net.config.heads * heads if together else heads
        loss.backward()
        told = [told[0] + float(moved.detach()), told[1] + float(heads.detach())]
    if together and leaf.grad is not None:
        states.backward(leaf.grad.to(states.dtype))
    return told[0], told[1]


def _moved(output: OutputRows, states: Tensor, before: Tensor, span: Span) -> Tensor:
    """Forward KL from the target as it was to the target as it is, summed over a row's answer."""
    taught = output(before[span.teachers].to(states.dtype)).float()
    said = output(states[span.teachers]).float()
    token = torch.zeros(len(said), dtype=torch.int64, device=said.device)
    guesses = Guesses(said, taught, taught.softmax(-1), token, said, said)
    return LOSSES["forward-kl"](guesses).sum()


def _heads_loss(net: MedusaNet, states: Tensor, tokens: Tensor, spans: Sequence[Span]) -> Tensor:
    """The heads' next-token losses over a row, head j weighed by 0.8^j."""
    said = net.logits(net(states[:, None]))
    losses = []
    for span in spans:
        places = draft_ids(net.vocabulary, tokens[span.tokens])
        loss = nn.functional.cross_entropy(said[span.slots, span.step].float(), places.clamp(0), reduction="none")
        losses.append(_DECAY**span.step * (loss * (places >= 0)).sum())
    return torch.stack(losses).sum()
