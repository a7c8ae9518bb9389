"""What rounds did, counted: how much they drafted and accepted, by position and by rank among siblings.

Counts are observed round by round and add up; nothing is rebuilt from settings. The bonus or correction that ends every
round is in none of them. This file refuses to know clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from truedraft.core import Round

__all__ = ["Counts"]

Row = tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """Counts of rounds; they add up with +.

    drafted[n], accepted[n]: rounds that drafted, or accepted, n tokens. tried[j], hits[j]: rounds in which position
    j + 1 was put to the test with all before it accepted, and in which it was accepted. ranked[b], chosen[b]: accepted
    nodes (the root is one) that had a child b + 1, and of those the ones whose child b + 1 was accepted. deep[d]:
    rounds whose draft had d levels; counts that were kept before these were counted have none.
    """

    drafted: Row = ()
    accepted: Row = ()
    tried: Row = ()
    hits: Row = ()
    ranked: Row = ()
    chosen: Row = ()
    deep: Row = ()

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> Counts:
        """The counts of these rounds."""
        total = cls()
        for record in rounds:
            ranked, chosen = _ranks(record)
            total += cls(
                _one_at(len(record.draft)),
                _one_at(record.accepted),
                (1,) * record.tried,
                (1,) * record.accepted,
                ranked,
                chosen,
                _one_at(max(record.draft.tree.depth)),
            )
        return total

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(_sum(mine, theirs) for mine, theirs in zip(self._rows, other._rows, strict=True)))

    @property
    def rounds(self) -> int:
        """How many rounds."""
        return sum(self.drafted)

    @property
    def acceptance_length(self) -> float:
        """Tokens a round on average, the bonus or correction included: 1 + accepted / rounds."""
        return 1.0 + _mean(self.accepted)

    @property
    def drafted_per_round(self) -> float:
        """Drafted tokens a round on average, rounds without a draft included."""
        return _mean(self.drafted)

    @property
    def levels_per_round(self) -> float:
        """Levels of a draft on average, rounds without one included; where unknown, at most as deep as was tried."""
        return _mean(self.deep) if self.deep else min(self.drafted_per_round, len(self.tried))

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0 if nothing was drafted."""
        drafted = sum(n * rounds for n, rounds in enumerate(self.drafted))
        return sum(n * rounds for n, rounds in enumerate(self.accepted)) / drafted if drafted else 0.0

    @property
    def by_position(self) -> tuple[float, ...]:
        """Acceptance rate at every position, each given that all positions before were accepted."""
        return _rates(self.hits, self.tried)

    @property
    def by_rank(self) -> tuple[float, ...]:
        """Share of accepted nodes whose b-th child was the one accepted next, unconditional on its siblings."""
        return _rates(self.chosen, self.ranked)

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of all rounds, with or without a draft, that accepted at least j tokens, for j = 1, 2, ..."""
        return _at_least(self.accepted)

    @property
    def reach(self) -> tuple[float, ...]:
        """Share of all rounds that drafted at least j tokens, for j = 1, 2, ..."""
        return _at_least(self.drafted)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {name: list(getattr(self, name)) for name in _NAMES}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Counts:
        """From `to_json`. Raises `KeyError` for an object that is none."""
        known = {"deep": (), **entry}
        return cls(*(tuple(known[name]) for name in _NAMES))

    @property
    def _rows(self) -> tuple[Row, ...]:
        return tuple(getattr(self, name) for name in _NAMES)


_NAMES = ("drafted", "accepted", "tried", "hits", "ranked", "chosen", "deep")


def _ranks(record: Round) -> tuple[Row, Row]:
    """ranked and chosen of one round, over the nodes whose children were put to the test."""
    children = record.draft.tree.children
    ranked: Row = ()
    chosen: Row = ()
    path = record.verdict.path[: record.accepted]
    for node, accepted in zip((0, *path), (*path, None), strict=True):
        if accepted is None and record.emitted <= record.accepted:
            break  # the text was over before these children came to the test
        ranked = _sum(ranked, (1,) * len(children[node]))
        if accepted is not None:
            chosen = _sum(chosen, _one_at(children[node].index(accepted)))
    return ranked, chosen


def _one_at(place: int) -> Row:
    return (0,) * place + (1,)


def _sum(one: Row, other: Row) -> Row:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


def _mean(histogram: Row) -> float:
    rounds = sum(histogram)
    return sum(n * count for n, count in enumerate(histogram)) / rounds if rounds else 0.0


def _at_least(histogram: Row) -> tuple[float, ...]:
    rounds = sum(histogram)
    return tuple(sum(histogram[level:]) / rounds for level in range(1, len(histogram)))


def _rates(hits: Row, tried: Row) -> tuple[float, ...]:
    padded = hits + (0,) * (len(tried) - len(hits))
    return tuple(hit / of if of else 0.0 for hit, of in zip(padded, tried, strict=False))
