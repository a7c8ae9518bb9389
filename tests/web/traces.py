"""Traces for the tests of the round viewer, made by rounds of `truedraft.core`."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import torch

from truedraft.core import Draft, Law, Round, Shape, Timings, Tree, Verdict

__all__ = ["HEADER", "lines", "synthetic"]

WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"),
    *("and", "then", "sleeps", "in", "warm", "sun", "while", "birds", "sing"),
]
HEADER: dict[str, Any] = {
    "trace": 1,
    "model": "toy-target",
    "drafter": "toy-drafter",
    "rule": "token",
    "prompt": "Tell me a story <b>now</b>:",
    "prompt_tokens": [1, 2, 3],
    "parameters": {"temperature": 1.0, "seed": 7},
}


def synthetic(rounds: int, *, seed: int = 7, session: int = 0) -> list[Round]:
    """Rounds with empty drafts, chains and trees, some cut at the end of the text."""
    dice = random.Random(seed)
    return [_round(index, dice, last=index == rounds - 1) for index in range(rounds)]


def _round(index: int, dice: random.Random, *, last: bool) -> Round:
    tree = _tree(dice, nodes=dice.choice([0, 0, 3, 5, 9]))
    path: list[int] = []
    while (below := tree.children[path[-1] if path else 0]) and dice.random() < 0.6:
        path.append(dice.choice(below))
    tokens = (*(tree.tokens[node] for node in path), dice.randrange(len(WORDS)))
    shares = tuple(None if node == 0 else round(dice.random(), 3) for node in range(len(tree)))
    drawn = len(tree) > 1 and dice.random() < 0.5
    row = torch.full((len(WORDS),), 1 / len(WORDS))
    return Round(
        index=index,
        shape=Shape(depth=max(tree.depth), width=3, nodes=len(tree) - 1),
        draft=Draft(tree, Law.SAMPLED, tuple(row for _ in tree.tokens)) if drawn else Draft(tree),
        verdict=Verdict(tuple(path), tokens),
        emitted=max(0, len(tokens) - 1) if last else len(tokens),
        timings=Timings(*(round(dice.uniform(0.0001, 0.02), 5) for _ in range(4))),
        p=shares,
        q=shares[::-1] if drawn else None,
    )


def _tree(dice: random.Random, *, nodes: int) -> Tree:
    parents = [-1, *(dice.randrange(max(0, node - 3), node) for node in range(1, nodes + 1))]
    return Tree(tuple(dice.randrange(len(WORDS)) for _ in parents), tuple(parents))


def lines(rounds: Iterable[Round], *, header: dict[str, Any] | None = None, session: int = 0) -> list[str]:
    """The lines of a trace file."""
    out = [] if header is None else [json.dumps(header, ensure_ascii=False)]
    for record in rounds:
        entry = {"session": session, **record.to_json()}
        entry["pieces"] = [f" {WORDS[token]}" for token in record.draft.tree.tokens]
        entry["text"] = [f" {WORDS[token]}" for token in record.verdict.tokens[: max(0, record.emitted)]]
        entry["finish_reason"] = None
        out.append(json.dumps(entry, ensure_ascii=False))
    return out
