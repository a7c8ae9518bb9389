"""From logits and a history to the distribution that a token is drawn from.

One function of (logits, history) serves the target and every drafter, so that both sample alike. The order is that of
transformers: logit bias, repetition penalty (and, which it has not, presence and frequency penalty), bad words, minimum
length, custom processors, temperature, top-k, top-p, min-p. This file refuses to know models, drafts' laws and rules.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from truedraft.core import Distributions, Tree
from truedraft.errors import ParameterError, UnsupportedModelError
from truedraft.rows import first_largest, one_hot, truncated

__all__ = ["NodeDistributions", "ParameterBranch", "ParameterSampler", "SamplingParameters", "check_ids"]

Processor = Callable[[Tensor, Tensor], Tensor]
"""A transformers `LogitsProcessor`: (input ids [1, L], logits [1, V]) to logits [1, V]. It may keep state."""

_LARGEST = 1e30
"""Of a logit's bias and penalties, so that it stays a number in float32."""
_LEAST = 1e-30
"""A lower temperature may be 0 in float32, and is taken for it."""


@dataclass(frozen=True)
class SamplingParameters:
    """What decides the distribution of every token. Raises `ParameterError` for a value out of range.

    temperature: 0 is greedy, a one-hot distribution, and so is less than 1e-30. top_k: 0 is off. top_p, min_p:
    probabilities in [0, 1]; the likeliest token is always kept. logit_bias is added. repetition_penalty divides
    positive and multiplies negative logits of tokens in prompt or output; presence_ and frequency_penalty are
    subtracted once, and once an occurrence, for tokens in the output. bad_words: token sequences that never appear.
    min_new_tokens: no end token before that many.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_new_tokens: int = 0
    processors: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "min_new_tokens"):
            _check(name, getattr(self, name), 0, math.inf)
        _check("top_p", self.top_p, 0, 1, low_open=True)
        _check("min_p", self.min_p, 0, 1)
        _check("repetition_penalty", self.repetition_penalty, 1 / _LARGEST, _LARGEST)
        _check("presence_penalty", self.presence_penalty, -_LARGEST, _LARGEST)
        _check("frequency_penalty", self.frequency_penalty, -_LARGEST, _LARGEST)
        for token, bias in self.logit_bias.items():
            if bias != -math.inf:
                _check(f"logit_bias of token {token}", bias, -_LARGEST, _LARGEST)
        if not all(self.bad_words):
            raise ParameterError("bad_words holds an empty sequence: expected at least one token in each")

    @property
    def greedy(self) -> bool:
        """Whether every distribution is one-hot."""
        return self.temperature < _LEAST


def _check(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    """Raise unless low <= value <= high (low < value if open) and the value is finite."""
    if not math.isfinite(value) or value > high or value < low or (low_open and value == low):
        lower = f"above {low}" if low_open else f"at least {low}"
        upper = f" and at most {high}" if math.isfinite(high) else ""
        raise ParameterError(f"{name} is {value}: expected {lower}{upper}")


@dataclass(frozen=True)
class ParameterSampler:
    """`core.Sampler` for one sequence.

    prompt_length: where the output begins in a history. vocabulary: ids from here on are padding of the logits and are
    never emitted. end_tokens: what min_new_tokens forbids. processors: the custom ones in their committed state.
    """

    parameters: SamplingParameters
    prompt_length: int
    vocabulary: int
    end_tokens: frozenset[int] = frozenset()
    processors: tuple[Processor, ...] = ()

    @classmethod
    def make(
        cls, parameters: SamplingParameters, *, prompt_length: int, vocabulary: int, end_tokens: Sequence[int] = ()
    ) -> ParameterSampler:
        """A sampler at the start of its sequence; checks the parameters' token ids and copies custom processors."""
        check_ids("logit_bias", parameters.logit_bias, vocabulary)
        check_ids("bad_words", [token for word in parameters.bad_words for token in word], vocabulary)
        return cls(parameters, prompt_length, vocabulary, frozenset(end_tokens), _copied(parameters.processors))

    @property
    def keeps_order(self) -> bool:
        """Whether tokens rank as their logits do, whatever the history, but for those that are forbidden."""
        p = self.parameters
        in_place = p.repetition_penalty == 1 and p.presence_penalty == p.frequency_penalty == 0
        return in_place and not p.logit_bias and not p.processors

    def branch(self, history: Sequence[int]) -> ParameterBranch:
        """The committed history as a branch."""
        return ParameterBranch(self, history, (), self.processors)

    def distributions(self, history: Sequence[int], tree: Tree, logits: Tensor) -> NodeDistributions:
        """The distribution after each node of a tree, computed when asked for."""
        return NodeDistributions(self.branch(history), tree, logits)

    def settle(self, p: Distributions, node: int) -> ParameterSampler:
        """The sampler whose custom processors have seen `node` and its ancestors and nothing else."""
        if not self.processors or not isinstance(p, NodeDistributions):
            return self
        return replace(self, processors=p.branch(node).settled)

    def distribution(self, logits: Tensor, history: Sequence[int], processors: Sequence[Processor]) -> Tensor:
        """Logits [V] to probabilities [V]; the processors are called and may change."""
        row, best = self.best(logits, history, processors)
        if self.parameters.greedy:
            return one_hot(best, row)
        p = self.parameters
        return truncated(
            torch.softmax((row - row[best]) / p.temperature, 0), top_k=p.top_k, top_p=p.top_p, min_p=p.min_p
        )

    def best(self, logits: Tensor, history: Sequence[int], processors: Sequence[Processor]) -> tuple[Tensor, int]:
        """The processed logits [V] and the first token that has the largest of them."""
        row = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        row = self._processed(row, history, processors)
        best = first_largest(row)
        if not math.isfinite(top := float(row[best])):
            raise _hopeless(top, float(logits.max()))
        return row, best

    def _processed(self, row: Tensor, history: Sequence[int], processors: Sequence[Processor]) -> Tensor:
        """Everything that works on logits. Returns a new tensor wherever it changes anything."""
        params, output = self.parameters, history[self.prompt_length :]
        if params.logit_bias:
            ids = torch.tensor(list(params.logit_bias), device=row.device)
            bias = torch.tensor(list(params.logit_bias.values()), dtype=row.dtype, device=row.device)
            row = row.index_add(0, ids, bias)
        if params.repetition_penalty != 1 and history:
            row = _penalise_repetition(row, history, params.repetition_penalty)
        if (params.presence_penalty or params.frequency_penalty) and output:
            row = _penalise_output(row, output, params)
        banned = _bad_words(params.bad_words, history)
        banned |= self.end_tokens if len(output) < params.min_new_tokens else set()
        if banned:
            row = row.index_fill(0, torch.tensor(sorted(banned), device=row.device), -math.inf)
        for processor in processors:  # each may write to what it is given, which must not be the target's own
            row = processor(torch.tensor([list(history)], device=row.device), row[None].clone())[0]
        if self.vocabulary < len(row):
            row = row.index_fill(0, torch.arange(self.vocabulary, len(row), device=row.device), -math.inf)
        return row


class ParameterBranch:
    """`core.Branch`: a committed history, a drafted suffix, and custom processors in the state they had before it."""

    def __init__(
        self,
        sampler: ParameterSampler,
        history: Sequence[int],
        suffix: tuple[int, ...],
        processors: tuple[Processor, ...],
    ) -> None:
        self._sampler, self._history, self._suffix = sampler, history, suffix
        self.settled = processors
        """The custom processors after they saw this branch; before that, as its parent left them."""

    @property
    def _whole(self) -> Sequence[int]:
        return [*self._history, *self._suffix] if self._suffix else self._history

    @property
    def position(self) -> int:
        """Absolute index of the token that this branch draws."""
        return len(self._history) + len(self._suffix)

    def distribution(self, logits: Tensor) -> Tensor:
        """Logits [V] to probabilities [V] under this branch's history. Call it once: processors may count calls."""
        self.settled = _copied(self.settled)
        return self._sampler.distribution(logits, self._whole, self.settled)

    def only(self, logits: Tensor) -> int | None:
        """The token that has all the probability, without making a row; None where there may be others, or state."""
        if self.settled or not self._sampler.parameters.greedy:
            return None
        return self._sampler.best(logits, self._whole, ())[1]

    def child(self, token: int) -> ParameterBranch:
        """The branch one token longer."""
        return ParameterBranch(self._sampler, self._history, (*self._suffix, token), self.settled)


class NodeDistributions:
    """`core.Distributions` over one tree, each row computed on first use after those of its ancestors."""

    def __init__(self, root: ParameterBranch, tree: Tree, logits: Tensor) -> None:
        self._tree, self._logits, self._branches = tree, logits, {0: root}
        self._rows: dict[int, Tensor] = {}
        self.position = root.position

    def __getitem__(self, node: int) -> Tensor:
        """p [V] after `node`."""
        if node not in self._rows:
            self._rows[node] = self.branch(node).distribution(self._logits[node])
        return self._rows[node]

    def only(self, node: int) -> int | None:
        """The one token that can follow `node`; None where others may."""
        return self.branch(node).only(self._logits[node])

    def branch(self, node: int) -> ParameterBranch:
        """The history at `node`. A parent's row comes first where processors have state: they see a text in order."""
        if node not in self._branches:
            parent = self._tree.parents[node]
            if self.branch(parent).settled:
                _ = self[parent]
            self._branches[node] = self._branches[parent].child(self._tree.tokens[node])
        return self._branches[node]


def _penalise_repetition(row: Tensor, history: Sequence[int], penalty: float) -> Tensor:
    """Divide positive logits of seen tokens by the penalty and multiply negative ones (CTRL, section 4.1)."""
    ids = torch.tensor(sorted(set(history)), device=row.device)
    seen = row[ids]
    return row.index_copy(0, ids, torch.where(seen < 0, seen * penalty, seen / penalty))


def _penalise_output(row: Tensor, output: Sequence[int], params: SamplingParameters) -> Tensor:
    """Subtract the presence penalty once and the frequency penalty once an occurrence."""
    counts = Counter(output)
    ids = torch.tensor(list(counts), device=row.device)
    times = torch.tensor(list(counts.values()), dtype=row.dtype, device=row.device)
    return row.index_add(0, ids, -(params.presence_penalty + params.frequency_penalty * times))


def _bad_words(words: Sequence[tuple[int, ...]], history: Sequence[int]) -> set[int]:
    """Tokens that would complete a forbidden sequence."""
    return {
        word[-1]
        for word in words
        if len(word) <= len(history) + 1 and tuple(history[len(history) - len(word) + 1 :]) == word[:-1]
    }


def _copied(processors: tuple[Processor, ...]) -> tuple[Processor, ...]:
    """Deep copies, so that what a rejected token did to a processor's state dies with the copy."""
    try:
        return copy.deepcopy(processors) if processors else ()
    except Exception as error:
        names = ", ".join(type(processor).__name__ for processor in processors)
        raise ParameterError(
            f"processors {names} cannot be copied ({error}), so their state cannot follow a draft; "
            "give them a __deepcopy__"
        ) from error


def check_ids(name: str, ids: Any, vocabulary: int) -> None:
    """Raise for a token id outside the vocabulary."""
    for token in ids:
        if not 0 <= token < vocabulary:
            raise ParameterError(f"{name} names token {token}: expected an id from 0 to {vocabulary - 1}")


def _hopeless(top: float, own: float) -> Exception:
    """What is wrong with logits from which no token can be drawn. top: the largest; own: the largest of the model's."""
    if not math.isfinite(own):
        return UnsupportedModelError(f"the model's largest logit is {own}: expected a finite number; try dtype float32")
    if top == -math.inf:
        return ParameterError("the sampling parameters forbid every token; relax logit_bias, bad_words or processors")
    return ParameterError(f"the sampling parameters make {top} of a logit; relax logit_bias, penalties or processors")
