"""Which layers to draft with: measured on texts that the target wrote greedily, with measured costs.

Layers are left out one at a time, always the one that is missed least among those that change their input least
(block influence, Men et al. 2024); Draft & Verify (Zhang et al. 2024) searches the same sets by Bayesian optimisation.
On greedy text every draft that was accepted so far is the text itself, so one pass of a stack over a text shows all
its drafts at once: where its likeliest token is the text's next one, the draft would have stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from truedraft.drafters.layer_skip import LayerSet
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.stack import stack

__all__ = ["Costs", "Greedy", "find_layers", "measure_costs", "rounds_of"]

_LONGEST = 8
_CANDIDATES = 6
"""How many layers are tried before one of them is left out."""


@dataclass(frozen=True)
class Greedy:
    """A text that the target wrote greedily: its tokens, the first `prompt` of which were given."""

    tokens: tuple[int, ...]
    prompt: int


@dataclass(frozen=True)
class Costs:
    """In target passes of one token. passes [k]: of 1 .. k tokens. draft: by number of layers, 1 .. L."""

    passes: tuple[float, ...]
    draft: tuple[float, ...]


def find_layers(
    model: PreTrainedModel,
    texts: Sequence[Greedy],
    costs: Costs,
    *,
    least: int = 1,
    told: Callable[[LayerSet], None] = lambda found: None,
) -> list[LayerSet]:
    """The best set of every size that was tried, from all layers but one down to `least`; the first is the fastest.

    told: sees each as it is found.
    """
    kept = list(range(len(costs.draft)))
    order = _influence(model, texts)
    found: list[LayerSet] = []
    while len(kept) > least:
        tries = sorted(kept, key=order.__getitem__)[:_CANDIDATES]
        matches = {layer: _matches(model, [each for each in kept if each != layer], texts) for layer in tries}
        missed = max(tries, key=lambda layer: _agreement(matches[layer]))
        kept.remove(missed)
        found.append(_rated(kept, matches[missed], costs))
        told(found[-1])
    for depth in _exits(len(costs.draft)):
        found.append(_rated(range(depth), _matches(model, range(depth), texts), costs))
        told(found[-1])
    return sorted(found, key=lambda each: -(each.speedup or 0.0))


def _exits(layers: int) -> Iterator[int]:
    """Depths at which to stop early."""
    yield from sorted({max(1, layers * eighth // 8) for eighth in range(1, 8)})


@torch.inference_mode()
def _influence(model: PreTrainedModel, texts: Sequence[Greedy]) -> list[float]:
    """By layer: how far its output turns from its input, 1 - cosine, on average."""
    turned: list[Tensor] = []
    for text in texts:
        states: Any = model(input_ids=torch.tensor([text.tokens], device=model.device), output_hidden_states=True)
        hidden = torch.stack(states.hidden_states)[:, 0].float()
        turned.append(1 - torch.cosine_similarity(hidden[:-1], hidden[1:], dim=-1).mean(-1))
    influence: list[float] = torch.stack(turned).mean(0).tolist()
    return influence


@torch.inference_mode()
def _matches(model: PreTrainedModel, layers: Sequence[int], texts: Sequence[Greedy]) -> list[list[bool]]:
    """Per text, whether the stack's likeliest token is the text's next one, for every token the target wrote."""
    smaller: Any = stack(model, layers)
    rows = []
    for text in texts:
        written = torch.tensor(text.tokens[text.prompt :], device=model.device)
        ids = torch.tensor([text.tokens[:-1]], device=model.device)
        logits = smaller(input_ids=ids, logits_to_keep=len(written), use_cache=False).logits[0]
        rows.append((logits.argmax(-1) == written).tolist())
    return rows


def _agreement(matches: Sequence[Sequence[bool]]) -> float:
    return fmean(match for row in matches for match in row)


def rounds_of(matches: Sequence[bool], k: int) -> int:
    """The rounds in which a text is written with chains of k drafts, given where a draft would stand."""
    rounds = place = 0
    while place < len(matches):
        run = 0
        while run < k and place + run < len(matches) and matches[place + run]:
            run += 1
        place += run + 1
        rounds += 1
    return rounds


def _rated(layers: Sequence[int], matches: Sequence[Sequence[bool]], costs: Costs) -> LayerSet:
    """The set with its best chain length."""
    written, cost = sum(map(len, matches)), costs.draft[len(layers) - 1]
    rated = []
    for k in range(1, len(costs.passes)):
        tokens = written / sum(rounds_of(row, k) for row in matches)
        rated.append((tokens / (costs.passes[k] + k * cost), k, tokens))
    speedup, k, tokens = max(rated)
    return LayerSet(tuple(layers), k, _agreement(matches), cost, tokens, speedup)


def measure_costs(
    model: CachedModel, *, context: int = 256, repeats: int = 5, clock: Callable[[], float] = perf_counter
) -> Costs:
    """Time passes of 1 .. 9 tokens of the model, and of one token of its first layer alone and of all.

    A stack's cost is taken to grow evenly with its layers, from the first one with embeddings and head to all of them.
    """
    passes = [_seconds(model, width, context, repeats, clock) for width in range(1, _LONGEST + 2)]
    one = _seconds(CachedModel(stack(model.model, (0,))), 1, context, repeats, clock)
    step = (passes[0] - one) / max(1, model.layers - 1)
    draft = (one + step * index for index in range(model.layers))
    return Costs(tuple(each / passes[0] for each in passes), tuple(each / passes[0] for each in draft))


def _seconds(model: CachedModel, width: int, context: int, repeats: int, clock: Callable[[], float]) -> float:
    """Median seconds of a pass of so many tokens behind a context."""
    key = object()
    longest = model.context_length or context + width
    tokens = [place % 97 % model.vocab_size for place in range(min(context + width, longest))]
    model.read(key, tokens[:-width])
    seconds = []
    for _ in range(repeats + 1):
        start = clock()
        model.extend([key], [Nodes.chain(tokens[-width:])])
        seconds.append(clock() - start)
        model.rewind(key, len(tokens) - width)
    model.release(key)
    return median(seconds[1:])
