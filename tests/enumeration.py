"""Languages and tree shapes for exact enumeration; the machinery itself is `truedraft.verify.enumeration`."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from truedraft.core import Rule
from truedraft.verify.enumeration import (
    Drafting,
    ExhaustiveDice,
    Table,
    Text,
    emitted_law,
    expected_accepted,
    grow,
    outcomes,
    random_table,
    target_law,
    total_variation,
)

__all__ = [
    "DEEP",
    "EXACT",
    "PAIRS",
    "SHAPES",
    "SINGLE",
    "THIN",
    "ExhaustiveDice",
    "emitted_law",
    "expected_accepted",
    "gap",
    "grow",
    "one_hot",
    "outcomes",
    "random_table",
    "sparse",
    "target_law",
    "total_variation",
]

EXACT = 1e-12
"""The largest total variation that float64 rounding may cause."""

SHAPES = [(1,), (1, 1), (1, 1, 1), (2,), (3,), (2, 2), (3, 1), (1, 2)]
"""Children a node, level by level."""

DEEP = [(2, 1, 1), (1, 2, 1), (1, 1, 2)]
"""Three levels that branch, for vocabularies of two: the outcomes grow fast."""

SINGLE = 1e-6
"""The same for distributions in float32, whose own sums are that far from 1."""


def sparse(vocabulary: int, seed: int) -> Table:
    """`random_table` with one token of probability 0, another one after every text."""
    full = random_table(vocabulary, seed)

    @cache
    def table(text: Text) -> Tensor:
        row = full(text).clone()
        row[_random_token(vocabulary, seed + 1, text)] = 0.0
        return row / row.sum()

    return table


def one_hot(vocabulary: int, seed: int) -> Table:
    """A language that is certain of its next token, another one after every text."""
    return cache(lambda text: torch.eye(vocabulary, dtype=torch.float64)[_random_token(vocabulary, seed, text)])


def even_or_odd(vocabulary: int, seed: int, parity: int) -> Table:
    """`random_table` on the tokens of one parity only."""
    full, kept = random_table(vocabulary, seed), torch.arange(vocabulary) % 2 == parity
    return cache(lambda text: torch.where(kept, full(text), 0.0) / full(text)[kept].sum())


def thin(vocabulary: int, seed: int, gap: float, dtype: torch.dtype = torch.float32) -> Table:
    """A language at a low temperature: each next best token is less likely by the factor `gap`, their order changes.

    What is left of it without its best token is next to nothing, but a distribution like any other.
    """
    shares = torch.tensor([gap**rank for rank in range(vocabulary)], dtype=torch.float64).to(dtype)
    return cache(lambda text: shares[torch.randperm(vocabulary, generator=_generator(seed, text))])


def rounded(table: Table) -> Table:
    """The same language in float32."""
    return cache(lambda text: table(text).float())


def _random_token(vocabulary: int, seed: int, text: Text) -> int:
    return int(torch.randint(vocabulary, (1,), generator=_generator(seed, text)))


def _generator(seed: int, text: Text) -> torch.Generator:
    key = seed
    for token in text:
        key = (key * 1_000_003 + token + 1) % 2**31
    return torch.Generator().manual_seed(key)


PAIRS: dict[str, tuple[Table, Table]] = {
    "V=2": (random_table(2, 1), random_table(2, 2)),
    "V=3": (random_table(3, 3), random_table(3, 4)),
    "V=4": (random_table(4, 5), random_table(4, 6)),
    "zeros": (sparse(4, 7), sparse(4, 8)),
    "zeros in p": (sparse(3, 9), random_table(3, 10)),
    "zeros in q": (random_table(3, 11), sparse(3, 12)),
    "one-hot p": (one_hot(3, 13), random_table(3, 14)),
    "one-hot q": (random_table(3, 15), one_hot(3, 16)),
    "one-hot both": (one_hot(3, 17), one_hot(3, 18)),
    "equal": (random_table(3, 19), random_table(3, 19)),
    "disjoint": (even_or_odd(4, 20, 0), even_or_odd(4, 21, 1)),
}
"""Name to (p, q)."""

THIN: dict[str, tuple[Table, Table]] = {
    f"{kind} over {gap:g}": (p, thin(3, 24, gap))
    for gap in (1e-20, 1e-32, 1e-40)
    for kind, p in {
        "full": rounded(random_table(3, 22)),
        "zeros": rounded(sparse(3, 22)),
        "thin": thin(3, 23, gap),
    }.items()
} | {"full over 1e-310": (random_table(3, 22), thin(3, 24, 1e-310, torch.float64))}
"""The same with a q of which next to nothing is left without its best token, in float32 and beyond float32's reach."""


def gap(rule: Rule, drafting: Drafting, pair: tuple[Table, Table], *, length: int, rounds: int = 1) -> float:
    """Total variation between the emitted text and the target's own."""
    p, q = pair
    return total_variation(emitted_law(rule, drafting, p, q, length=length, rounds=rounds), target_law(p, length))
