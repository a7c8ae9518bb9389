"""What follows short contexts, counted in flat arrays of a fixed size.

A context is a key; a row holds how often it was seen and the likeliest next tokens with their mean probabilities. Rows
live in buckets of four; a new context takes an empty row of its bucket or that of one that was seen least, and every
refusal makes the bucket's rows a little older, so what is seen no more makes room in the end. This file refuses to know
where contexts and probabilities come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truedraft.errors import ParameterError

__all__ = ["ONE", "SEED", "WIDTH", "CountTable", "extend_key"]

WIDTH = 8
"""Tokens a row."""

ONE = 65535
"""Probability 1 as rows hold it."""

SEED = 0x2545F4914F6CDD1D
"""The key of no context at all; larger than any token, so that no token takes the mixing to zero."""

_WAYS = 4
_MOST = 60_000
"""Counts stop here."""

_MEMORY = 64
"""A row's means forget what was seen this many times ago and more: the newest counts at least this part."""

_MULTIPLIER, _MASK = 0x9E3779B97F4A7C15, (1 << 62) - 1


def extend_key(key: int, token: int) -> int:
    """The key of a context one token longer. Multiplicative mixing with the golden ratio (Knuth), 62 bits."""
    key = ((key ^ token) * _MULTIPLIER) & _MASK
    return key ^ (key >> 31)


class CountTable:
    """Rows by key.

    rows: how many there is room for, rounded up to a power of two. vocabulary: token ids are below it.
    """

    def __init__(self, rows: int, vocabulary: int) -> None:
        if rows < _WAYS:
            raise ParameterError(f"rows is {rows}: expected at least {_WAYS}")
        if vocabulary < 1:
            raise ParameterError(f"vocabulary is {vocabulary}: expected at least 1")
        self.rows = 1 << (rows - 1).bit_length()
        self.vocabulary = vocabulary
        self.sightings = 0
        """How often something was learned."""
        kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
        self.arrays: dict[str, NDArray[Any]] = {
            "checks": np.zeros(self.rows, np.uint32),
            "counts": np.zeros(self.rows, np.uint16),
            "tokens": np.zeros((self.rows, WIDTH), kind),
            "shares": np.zeros((self.rows, WIDTH), np.uint16),
        }
        """checks and counts [R], tokens and shares [R, WIDTH]; count 0 marks an empty row."""
        # Single elements are read through memory views: a tenth of what an array's own indexing costs.
        self._checks, self._counts, self._tokens, self._shares = (
            self.arrays[name].reshape(-1).data for name in ("checks", "counts", "tokens", "shares")
        )

    def __len__(self) -> int:
        return int(np.count_nonzero(self.arrays["counts"]))

    @property
    def nbytes(self) -> int:
        """Bytes held, full or not."""
        return sum(each.nbytes for each in self.arrays.values())

    def find(self, key: int) -> int:
        """The row of a context, or -1."""
        checks, check, first = self._checks, _check(key), self._bucket(key)
        for row in range(first, first + _WAYS):
            if checks[row] == check:
                return row
        return -1

    def count(self, row: int) -> int:
        """How often the context was seen."""
        return int(self._counts[row])

    def tokens(self, row: int) -> list[int]:
        """The likeliest next tokens [WIDTH], likeliest first; those of share 0 mean nothing."""
        return self._tokens[row * WIDTH : (row + 1) * WIDTH].tolist()

    def shares(self, row: int) -> list[int]:
        """Their mean probabilities [WIDTH], in units of 1 / ONE."""
        return self._shares[row * WIDTH : (row + 1) * WIDTH].tolist()

    def learn(self, key: int, tokens: Sequence[int], shares: Sequence[int]) -> None:
        """See a context once more, followed by these tokens with these probabilities, likeliest first."""
        self.sightings += 1
        row = self.find(key)
        if row >= 0:
            self._update(row, tokens, shares)
        elif (row := self._claim(key)) >= 0:
            self._checks[row], self._counts[row] = _check(key), 1
            self._write(row, zip(tokens, shares, strict=True))

    def _bucket(self, key: int) -> int:
        return (key >> 32) * _WAYS & (self.rows - 1)

    def _claim(self, key: int) -> int:
        """A row that a new context may take, or -1, and then all rows of its bucket are one sighting older."""
        counts, first = self._counts, self._bucket(key)
        bucket = range(first, first + _WAYS)
        row = min(bucket, key=counts.__getitem__)
        if counts[row] <= 1:
            return row
        for each in bucket:
            counts[each] -= 1
        return -1

    def _update(self, row: int, tokens: Sequence[int], shares: Sequence[int]) -> None:
        count = self._counts[row]
        if count < _MOST:
            self._counts[row] = count + 1
        kept = 1.0 - 1.0 / min(count + 1, _MEMORY)
        mean = {token: share * kept for token, share in zip(self.tokens(row), self.shares(row), strict=True) if share}
        for token, share in zip(tokens, shares, strict=True):
            mean[token] = mean.get(token, 0.0) + share * (1.0 - kept)
        self._write(row, sorted(mean.items(), key=_by_share))

    def _write(self, row: int, guesses: Iterable[tuple[int, float]]) -> None:
        place = row * WIDTH
        for token, share in list(guesses)[:WIDTH]:
            self._tokens[place], self._shares[place] = token, int(share)
            place += 1
        for rest in range(place, (row + 1) * WIDTH):
            self._shares[rest] = 0


def _check(key: int) -> int:
    """What a row keeps of its key; never 0, which marks an empty row."""
    return key & 0xFFFFFFFF or 1


def _by_share(guess: tuple[int, float]) -> float:
    return -guess[1]
