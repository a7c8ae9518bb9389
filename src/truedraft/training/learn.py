"""One batch learned, or examined: from a head's states to gradients, or to what would have been accepted.

Logits over a vocabulary are by far the largest tensors, so they exist for one row at a time: a row's loss is taken back
to the head's states at once, and the states of all rows go back through the net together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from truedraft.nets.medusa import MedusaNet
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.training.acceptance import RANKS, Tally
from truedraft.training.batches import Batch, Span
from truedraft.training.losses import Guesses, Objective
from truedraft.training.unroll import Net, unroll

__all__ = ["Lesson", "draft_ids", "examine", "learn"]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is taught. output: the target's last hidden states [.., H] to its logits of the draft vocabulary [.., Vd].

    decay: step j weighs decay^j. noise: width of the uniform noise on the states that are read.
    """

    objective: Objective
    output: Callable[[Tensor], Tensor]
    decay: float = 0.8
    noise: float = 0.0


def draft_ids(vocabulary: DraftVocabulary, tokens: Tensor) -> Tensor:
    """The draft ids of tokens, -1 for one that cannot be said; where the tokens are, while the map stays on the CPU."""
    return vocabulary.places[tokens.cpu()].to(tokens.device)


def learn(net: Net, batch: Batch, lesson: Lesson, *, scale: float, generator: torch.Generator) -> float:
    """Add the gradients of a batch's loss, the weighted sum over its guesses times `scale`; returns that loss."""
    noise = None
    if lesson.noise:
        noise = (torch.rand(batch.inputs.shape, generator=generator) - 0.5).to(batch.inputs.device) * lesson.noise
    states = unroll(net, batch, noise=noise)
    leaf = states.detach().requires_grad_()
    total = 0.0
    for row in range(len(batch.tokens)):
        if any(map(len, batch.spans[row])):
            loss = _loss(net, batch, leaf, row, lesson) * scale
            loss.backward()
            total += float(loss.detach())
    if leaf.grad is not None:
        states.backward(leaf.grad)
    return total


def _loss(net: Net, batch: Batch, states: Tensor, row: int, lesson: Lesson) -> Tensor:
    """The weighted sum over the guesses of a row. A token that cannot be said teaches nothing."""
    spans = batch.spans[row]
    places = draft_ids(net.vocabulary, batch.tokens[row])
    with torch.no_grad():
        true = batch.last[row].to(states.dtype)
        taught = lesson.output(true).float()
        p = taught.softmax(-1)
    losses = []
    for span, said in zip(spans, _said(net, states[row], spans), strict=True):
        token = places[span.tokens]
        state = states[row, span.slots, span.step]
        guesses = Guesses(said, taught[span.teachers], p[span.teachers], token.clamp(0), state, true[span.teachers])
        losses.append((lesson.objective(guesses) * (token >= 0)).sum() * lesson.decay**span.step)
    return torch.stack(losses).sum()


def _said(net: Net, states: Tensor, spans: tuple[Span, ...]) -> list[Tensor]:
    """The logits [n, Vd] of every span, from a row's states [T, J, H]."""
    wanted = [states[span.slots, span.step] for span in spans]
    if isinstance(net, MedusaNet) and not net.config.one_output:
        return [head(each).float() for head, each in zip(net.lm_heads, wanted, strict=False)]
    together = torch.cat(wanted)
    said = net.lm_head(together) if isinstance(net, MedusaNet) else net.logits(together)
    return list(said.float().split([len(each) for each in wanted]))


@torch.no_grad()
def examine(net: Net, batch: Batch) -> Tally:
    """What greedy decoding would have accepted: a batch of greedy texts with their answers as spans."""
    states = unroll(net, batch)
    tally = Tally.empty(batch.steps)
    for row in range(len(batch.tokens)):
        spans = batch.spans[row]
        if not any(map(len, spans)):
            continue
        hits = torch.zeros(len(batch.tokens[row]), batch.steps, dtype=torch.bool)
        ranks = []
        for span, said in zip(spans, _said(net, states[row], spans), strict=True):
            places = draft_ids(net.vocabulary, batch.tokens[row, span.tokens])
            best = said.topk(min(RANKS, said.shape[-1]), dim=-1).indices == places[:, None]
            hits[span.slots, span.step] = best[:, 0].cpu()
            counts = best.sum(0).tolist()
            ranks.append(counts + [0] * (RANKS - len(counts)))
        tally += Tally.of(hits[spans[0].slots], ranks=ranks, guesses=list(map(len, spans)))
    return tally
