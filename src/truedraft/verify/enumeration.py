"""The exact joint law of the text that a rule emits, by walking every outcome of draft and verdict.

A lossless rule must give the target's own law to rounding error: a test without chance, flakes or power problems.
Meant for vocabularies of 2-4 tokens and texts of a few tokens; the number of outcomes grows exponentially with both.
This page refuses to know which rules are lossless.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import torch
from torch import Tensor

from truedraft import drawing
from truedraft.core import Dice, Draft, Law, Rule, Tree, Verdict
from truedraft.errors import ParameterError

__all__ = [
    "Drafting",
    "ExhaustiveDice",
    "JointLaw",
    "Rows",
    "Table",
    "emitted_law",
    "expected_accepted",
    "grow",
    "outcomes",
    "random_table",
    "target_law",
    "total_variation",
]

Result = TypeVar("Result")
Text = tuple[int, ...]
Table = Callable[[Text], Tensor]
"""A language model as a table: the committed text to a float64 distribution [V]."""
Drafting = Callable[[Table, Text, Dice], Draft]
"""The table of q, the committed text and the dice to a draft rooted at the text's last token."""
JointLaw = Mapping[Text, float]
"""Probability of every text of one length."""


class ExhaustiveDice:
    """Dice that follow a script of outcomes, take the first one after its end, and note what else was possible."""

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        self.probability = 1.0
        self.taken: list[int] = []
        self.possible: list[int] = []
        self._script = script

    def coin(self, probability: float) -> bool:
        """True or false, each if its probability is positive."""
        sure = min(max(probability, 0.0), 1.0)
        return self._pick([1.0 - sure, sure]) == 1

    def categorical(self, weights: Tensor) -> int:
        """Each index of positive weight [V] in turn. Raises `ParameterError` where no draw is possible."""
        return self._pick(weights.tolist())

    def _pick(self, chances: list[float]) -> int:
        if not all(0.0 <= chance < float("inf") for chance in chances) or not any(chances):
            raise ParameterError(f"weights must be finite, not negative and not all zero, got {chances}")
        options = [index for index, chance in enumerate(chances) if chance > 0.0]
        if len(options) == 1:
            return options[0]
        step = len(self.taken)
        choice = self._script[step] if step < len(self._script) else 0
        self.taken.append(choice)
        self.possible.append(len(options))
        self.probability *= chances[options[choice]] / sum(chances)
        return options[choice]


def outcomes(run: Callable[[Dice], Result]) -> Iterator[tuple[float, Result]]:
    """Every outcome of `run`, which must take all its randomness from the dice, with its probability."""
    script: tuple[int, ...] = ()
    while True:
        dice = ExhaustiveDice(script)
        result = run(dice)
        yield dice.probability, result
        taken, possible = dice.taken, dice.possible
        while taken and taken[-1] + 1 == possible[-1]:
            taken.pop(), possible.pop()
        if not taken:
            return
        script = (*taken[:-1], taken[-1] + 1)


@dataclass(frozen=True)
class Rows:
    """The target's distributions after every node of a tree, read off a table; implements `core.Distributions`."""

    table: Table
    text: Text
    tree: Tree

    @property
    def position(self) -> int:
        """The text's length: the index of the token that follows node 0."""
        return len(self.text)

    def __getitem__(self, node: int) -> Tensor:
        """p [V] after `node`."""
        return self.table(self.text + tuple(self.tree.tokens[step] for step in self.tree.path(node)))

    def only(self, node: int) -> None:
        """A table is to be looked at."""


def random_table(vocabulary: int, seed: int) -> Table:
    """A language with another distribution after every text, drawn uniformly from the simplex."""

    @cache
    def table(text: Text) -> Tensor:
        key = seed
        for token in text:
            key = (key * 1_000_003 + token + 1) % 2**31
        generator = torch.Generator().manual_seed(key)
        row = -torch.rand(vocabulary, generator=generator, dtype=torch.float64).log()
        return row / row.sum()

    return table


def grow(law: Law, branching: tuple[int, ...]) -> Drafting:
    """A drafting that gives branching[d] children to every node at depth d, drawn under `law`."""

    def draft(q: Table, text: Text, dice: Dice) -> Draft:
        tokens, parents, texts = [text[-1]], [-1], [text]
        rows: list[Tensor | None] = []
        level = range(1)
        for k in branching:
            for node in level:
                rows.append(q(texts[node]))
                for token in _children(law, q(texts[node]), k, dice):
                    tokens.append(token)
                    parents.append(node)
                    texts.append((*texts[node], token))
            level = range(level.stop, len(tokens))
        rows += [None] * (len(tokens) - len(rows))
        return Draft(Tree(tuple(tokens), tuple(parents)), law, None if law is Law.CHOSEN else tuple(rows))

    return draft


def _children(law: Law, q: Tensor, k: int, dice: Dice) -> list[int]:
    if law is Law.CHOSEN:
        return drawing.chosen(q, k)
    draws = {
        Law.SAMPLED: drawing.sampled,
        Law.SAMPLED_WITHOUT_REPLACEMENT: drawing.without_replacement,
        Law.GREEDY_DRAFT: drawing.greedy_draft,
    }
    return draws[law](q, k, dice)


def emitted_law(rule: Rule, drafting: Drafting, p: Table, q: Table, *, length: int, rounds: int = 1) -> JointLaw:
    """The law of the first `length` tokens that follow the text (0,): drafted and verified in `rounds`, then from p."""

    law: dict[Text, float] = {(0,): 1.0}
    for _ in range(rounds):
        after: dict[Text, float] = defaultdict(float)
        for text, chance in law.items():
            if len(text) > length:
                after[text] += chance
                continue
            for part, (_, verdict) in outcomes(partial(_round, rule, drafting, p, q, text)):
                after[(text + verdict.tokens)[: length + 1]] += chance * part
        law = after
    return _complete(law, p, length)


def target_law(p: Table, length: int) -> JointLaw:
    """The law of the `length` tokens that follow the text (0,) when the target writes alone."""
    return _complete({(0,): 1.0}, p, length)


def _complete(law: Mapping[Text, float], p: Table, length: int) -> JointLaw:
    full: dict[Text, float] = defaultdict(float)
    for text, chance in law.items():
        if len(text) > length:
            full[text[1:]] += chance
            continue
        longer = {(*text, token): chance * float(row) for token, row in enumerate(p(text)) if row > 0}
        for rest, part in _complete(longer, p, length).items():
            full[rest] += part
    return full


def expected_accepted(rule: Rule, drafting: Drafting, p: Table, q: Table) -> float:
    """Drafted tokens accepted in one round after the text (0,), on average."""

    rounds = outcomes(partial(_round, rule, drafting, p, q, (0,)))
    return sum(chance * len(verdict.path) for chance, (_, verdict) in rounds)


def _round(rule: Rule, drafting: Drafting, p: Table, q: Table, text: Text, dice: Dice) -> tuple[Draft, Verdict]:
    draft = drafting(q, text, dice)
    return draft, rule.verify(draft, Rows(p, text, draft.tree), dice)


def total_variation(one: JointLaw, other: JointLaw) -> float:
    """Half the sum of absolute differences: the largest difference in probability of any event."""
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in {*one, *other}) / 2
