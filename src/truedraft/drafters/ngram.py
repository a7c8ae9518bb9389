"""Prompt lookup: bet that the text goes on as it did where its last few tokens stood before.

Source: prompt lookup decoding (Saxena 2023) and LLMA (Yang et al. 2023); that the bet grows with the length of the
match is the idea of suffix decoding (Oliaro et al. 2024). Drafts are CHOSEN and come from the session's own tokens
alone, so this file needs no model and no tokenizer. When nothing matches a round costs one look into a dictionary.

How far to bet. A context of m tokens that has occurred before is followed by the same token as then with a chance of
about (m - 0.6) / (m + 0.6): 0.25, 0.54, 0.67, 0.74 for m = 1, 2, 3, 4 (measured on a small chat model, on prose and on
tasks that copy). Each bet that stands makes the context one longer, so the chance that a whole chain stands falls only
hyperbolically, and long matches earn long drafts. Where several places match, the longest match speaks first and, among
equals, the most recent one; a place that disagrees shares what chance the earlier ones left. The tree is grown from
the likeliest node to the least, down to `floor` and while another one pays.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from truedraft.core import Draft, Scores, Session, Shape, Tree, Verdict
from truedraft.drafters.bets import pays
from truedraft.drafters.pass_cost import FREE, USUAL, NodeCosts, PassCost, mean_length
from truedraft.errors import ParameterError

__all__ = ["Match", "NgramDrafter", "NgramIndex"]

_REACH = 32
"""Longer matches are not told apart."""


class Match(NamedTuple):
    """An earlier place where the text's last `length` tokens stand; `end` is the index of the token after them."""

    length: int
    end: int


class NgramIndex:
    """Where every n-gram of a growing text stands. Amortised constant time a token and n, for n from 1 to `longest`."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._clear()

    def _clear(self) -> None:
        self.tokens: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}
        # For every n, by the end of an n-gram, the end of the one before that is equal; 0 is none.
        self._earlier: list[list[int]] = [[0] * n for n in range(self._longest + 1)]

    def follow(self, tokens: Sequence[int]) -> None:
        """Catch up with the text. A text that shrank or was edited is indexed afresh."""
        known = len(self.tokens)
        self.tokens += tokens[known:]
        if self.tokens != tokens:
            self._clear()
            self.tokens, known = list(tokens), 0
        for n in range(1, self._longest + 1):
            self._enter(n, max(n, known))

    def _enter(self, n: int, first: int) -> None:
        """Record the n-grams that end from `first` on and have a token after them."""
        fresh = self.tokens[first - n : -1]
        grams = zip(*(fresh[shift:] for shift in range(n)), strict=False)
        latest, earlier = self._latest, self._earlier[n]
        for end, gram in enumerate(grams, first):
            earlier.append(latest.get(gram, 0))
            latest[gram] = end

    def matches(self, shortest: int, limit: int) -> list[Match]:
        """At most `limit` earlier places of the text's last tokens, the longest match first, then the most recent."""
        found: dict[int, None] = {}
        for n in range(self._matching(shortest), shortest - 1, -1):
            end = self._latest.get(self._suffix(n), 0)
            while end and len(found) < limit:
                found[end] = None
                end = self._earlier[n][end]
        return sorted((Match(self._length(end), end) for end in found), reverse=True)

    def _matching(self, shortest: int) -> int:
        """The largest n whose last n-gram stands somewhere before; less than `shortest` if there is none."""
        n = shortest
        while n <= self._longest and self._suffix(n) in self._latest:
            n += 1
        return n - 1

    def _suffix(self, n: int) -> tuple[int, ...]:
        return tuple(self.tokens[-n:])

    def _length(self, end: int) -> int:
        """How many tokens before `end` equal the text's last ones."""
        tokens, last = self.tokens, len(self.tokens)
        reach = min(_REACH, end)
        return next((n for n in range(reach) if tokens[end - 1 - n] != tokens[last - 1 - n]), reach)

    def after(self, match: Match, depth: int) -> int:
        """The token `depth` places on in the match's continuation. Where it meets the text's end it repeats itself."""
        return self.tokens[match.end + depth % (len(self.tokens) - match.end)]


class NgramDrafter:
    """`core.Drafter` by prompt lookup.

    longest, shortest: n-grams to look for; from `longest` on, matches are told apart by their true length. matches:
    how many places have a say. floor: the least chance, by the estimate above, that a drafted token must have of being
    accepted, however little it costs; 0 is no limit but the shape. passes: what the target's cost; more is drafted
    while that pays.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self, *, longest: int = 4, shortest: int = 1, matches: int = 8, floor: float = 0.05, passes: PassCost = USUAL
    ) -> None:
        if not 1 <= shortest <= longest:
            raise ParameterError(f"n-grams from {shortest} to {longest}: expected 1 <= shortest <= longest")
        if matches < 1:
            raise ParameterError(f"matches is {matches}: expected at least 1")
        if not 0 <= floor < 1:
            raise ParameterError(f"floor is {floor}: expected a probability below 1")
        self._longest, self._shortest = longest, shortest
        self._matches, self._floor, self._passes = matches, floor, passes if floor else FREE
        self._indexes: dict[Session, NgramIndex] = {}

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """The likeliest continuations found in each session's own tokens, as a tree within its shape."""
        costs = self._passes.among(len(sessions), mean_length(sessions))
        return [self._draft(session, shape, costs) for session, shape in zip(sessions, shapes, strict=True)]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """What was accepted is found in the session's tokens next time."""

    def release(self, session: Session) -> None:
        """Forget a session's index."""
        self._indexes.pop(session, None)

    def _draft(self, session: Session, shape: Shape, costs: NodeCosts) -> Draft:
        if shape.depth == 0:
            return Draft.empty(session.root)
        if session not in self._indexes:
            self._indexes[session] = NgramIndex(self._longest)
        index = self._indexes[session]
        index.follow(session.tokens)
        found = index.matches(self._shortest, self._matches)
        return _grow(index, found, shape, self._floor, costs) if found else Draft.empty(session.root)


def _grow(index: NgramIndex, matches: list[Match], shape: Shape, floor: float, costs: NodeCosts) -> Draft:
    """The likeliest nodes, taken one by one from a heap, so parents before children and likelier siblings first."""
    tokens, parents, depths, expected = [index.tokens[-1]], [-1], [0], 1.0
    candidates: list[tuple[float, int, int, int, list[Match]]] = []  # -chance, order, parent, token, its matches
    order = count()

    def offer(node: int, chance: float, agreeing: list[Match]) -> None:
        depth = depths[node]
        if depth == shape.depth:
            return
        width = shape.branching[depth] if shape.branching else shape.width
        for token, share, followers in _shares(index, agreeing, depth)[:width]:
            if chance * share >= floor:
                heapq.heappush(candidates, (-chance * share, next(order), node, token, followers))

    offer(0, 1.0, matches)
    while candidates and len(tokens) <= shape.nodes:
        chance, _, parent, token, followers = heapq.heappop(candidates)
        if not pays(-chance, expected, len(tokens) - 1, costs):
            break
        expected -= chance
        tokens.append(token)
        parents.append(parent)
        depths.append(depths[parent] + 1)
        offer(len(tokens) - 1, -chance, followers)
    return Draft(Tree(tuple(tokens), tuple(parents)))


def _shares(index: NgramIndex, matches: list[Match], depth: int) -> list[tuple[int, float, list[Match]]]:
    """What follows `depth` drafted tokens: each token with its chance and the matches that say so, likeliest first."""
    left = 1.0
    found: dict[int, tuple[float, list[Match]]] = {}
    for match in matches:
        token = index.after(match, depth)
        if token not in found:
            length = match.length + depth
            share = left * (length - 0.6) / (length + 0.6)
            found[token] = (share, [])
            left -= share
        found[token][1].append(match)
    return sorted(((token, share, said) for token, (share, said) in found.items()), key=lambda entry: -entry[1])
