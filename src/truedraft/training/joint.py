"""Multi-token prediction from the start: a small target and its module trained together (DeepSeek-V3, section 2.2).

The two identities of such a module: in training it is an auxiliary loss, which makes the target's states foresee more
than the next token; at inference it is a drafter that costs no training of its own. Both read and say with the target's
embedding and output matrix, and gradients of both reach them.

    main    f_t says x_{t+1}                                     cross-entropy, mean over a batch
    ahead   module, step j, slot t says x_{t+2+j}                the same, times the weight, step j by 0.8^j
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truedraft.nets.attention import Unrolled
from truedraft.nets.mtp import MtpNet

__all__ = ["Ahead", "Lessons", "Stand", "foresight", "train_from_scratch"]

_DECAY = 0.8


@dataclass(frozen=True)
class Lessons:
    """A run. rows of `length` tokens, `batch` a step. weight: of the module's loss. ahead: its steps.

    together: train the target; else it is frozen and the module learns post hoc.
    """

    steps: int
    rate: float = 2e-3
    warmup: int = 50
    length: int = 256
    batch: int = 16
    weight: float = 0.3
    ahead: int = 1
    together: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Stand:
    """After a step: the two losses in nats a token."""

    step: int
    main: float
    ahead: float


@dataclass(frozen=True)
class Ahead:
    """What a module foresees on held-out text, by step. overlap: mean of sum_x min(p, q), the chance that a draft drawn
    from q stands. agreement: how often its likeliest token is the target's.
    """

    overlap: tuple[float, ...]
    agreement: tuple[float, ...]


def train_from_scratch(
    model: Any,
    net: MtpNet | None,
    text: Tensor,
    lessons: Lessons,
    *,
    told: Callable[[Stand], None] = lambda stand: None,
) -> None:
    """Train a causal language model and its module on a text of token ids [N], or one of the two.

    net None trains the model alone; `lessons.together` False trains the module alone.
    """
    trained: list[nn.Parameter] = [*model.parameters()] if lessons.together else []
    trained += [] if net is None else [*net.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=lessons.rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, lessons))
    for step, rows in enumerate(_batches(text, lessons)):
        states = _states(model, rows, together=lessons.together)
        main = _main_loss(model, states, rows) if lessons.together else torch.zeros(())
        ahead = torch.zeros(()) if net is None else _ahead_loss(model, net, states, rows, lessons)
        (main + (lessons.weight if lessons.together else 1.0) * ahead).backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        told(Stand(step, float(main.detach()), float(ahead.detach())))


def _share(step: int, lessons: Lessons) -> float:
    """Of the peak rate: up in a line, down in a line to a tenth."""
    if step < lessons.warmup:
        return (step + 1) / lessons.warmup
    return 1.0 - 0.9 * (step - lessons.warmup) / max(1, lessons.steps - lessons.warmup)


def _batches(text: Tensor, lessons: Lessons) -> Iterator[Tensor]:
    """Rows [B, T] from random places; the same for the same seed."""
    generator = torch.Generator().manual_seed(lessons.seed)
    for _ in range(lessons.steps):
        starts = torch.randint(len(text) - lessons.length, (lessons.batch, 1), generator=generator)
        yield text[starts + torch.arange(lessons.length)]


def _states(model: Any, rows: Tensor, *, together: bool) -> Tensor:
    """The model's last hidden states [B, T, H], after the final norm."""
    with torch.set_grad_enabled(together):
        states: Tensor = model.get_decoder()(input_ids=rows, use_cache=False).last_hidden_state
    return states


def _main_loss(model: Any, states: Tensor, rows: Tensor) -> Tensor:
    logits: Tensor = model.get_output_embeddings()(states[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def _ahead_loss(model: Any, net: MtpNet, states: Tensor, rows: Tensor, lessons: Lessons) -> Tensor:
    """The module's loss: what its steps say, against what the text says."""
    matrices = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    net.follow(*(matrix if lessons.together else matrix.detach() for matrix in matrices))
    losses = []
    for step, out in enumerate(_unrolled(net, states, rows, lessons.ahead)):
        said = net.logits(out)
        losses.append(
            _DECAY**step
            * nn.functional.cross_entropy(said.flatten(0, 1), rows[:, step + 2 :][:, : out.shape[1]].flatten())
        )
    return torch.stack(losses).sum() / sum(_DECAY**step for step in range(lessons.ahead))


def _unrolled(net: MtpNet, states: Tensor, rows: Tensor, steps: int) -> Iterator[Tensor]:
    """The module's states [B, T - 1 - steps, H] of every step, for slots that have a token to foretell in all."""
    slots = rows.shape[1] - 1 - steps
    positions = torch.arange(slots).expand(len(rows), -1)
    attend, read = Unrolled(), states[:, :slots]
    for step in range(steps):
        read = net(read, rows[:, step + 1 : step + 1 + slots], positions + step, attend)
        yield read


@torch.no_grad()
def foresight(model: Any, net: MtpNet, rows: Tensor, steps: int) -> Ahead:
    """How far a module agrees with its target along texts [B, T], by step of its draft."""
    states = _states(model, rows, together=False)
    net.follow(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    p = model.get_output_embeddings()(states).softmax(-1)
    overlap, agreement = [], []
    for step, out in enumerate(_unrolled(net, states, rows, steps)):
        q = net.logits(out).softmax(-1)
        true = p[:, step + 1 : step + 1 + out.shape[1]]
        overlap.append(float(torch.minimum(true, q).sum(-1).mean()))
        agreement.append(float((true.argmax(-1) == q.argmax(-1)).float().mean()))
    return Ahead(tuple(overlap), tuple(agreement))
