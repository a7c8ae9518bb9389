"""Every substring of some texts, how often it occurs and what follows it: suffix automata in flat arrays.

Source: the online suffix automaton (Blumer et al. 1985); to count what follows the longest known endings of a text is
the idea of suffix decoding (Oliaro et al. 2024). This file knows tokens as integers, and neither drafts nor sessions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truedraft.errors import ParameterError

__all__ = ["NOWHERE", "ROOT", "History", "Place", "SuffixAutomaton"]

ROOT = 0
"""The state of the empty string."""

NOWHERE = -1
"""What stands for no state."""

_FEW = 12
"""A state with more ways on than these finds them in a dictionary, not by walking its list."""


class SuffixAutomaton:
    """All substrings of the texts fed to it, in amortised constant time a token.

    A state stands for substrings that end at the same places: its longest one and that one's endings down to, and
    without, the longest one of its link. Counts are exact for substrings of up to `depth` tokens, which bounds the time
    of a token in texts that repeat themselves. No substring spans two texts.
    """

    def __init__(self, depth: int = 64) -> None:
        if depth < 1:
            raise ParameterError(f"depth is {depth}: expected at least 1")
        self.depth = depth
        self.size = 0
        """Tokens fed so far."""
        # Of every state; `_first` is the newest of its edges.
        self._lengths, self._links = array("i", [0]), array("i", [NOWHERE])
        self._counts, self._first = array("i", [0]), array("i", [NOWHERE])
        self._degrees = array("B", [0])  # edges, while they are few
        # Of every edge: its token, the state it leads to, the next edge of the same state.
        self._tokens, self._targets, self._next = array("i"), array("i"), array("i")
        self._wide: dict[int, dict[int, int]] = {}  # state -> token -> edge
        self.begin()

    def begin(self) -> None:
        """The next token starts another text."""
        self._last = ROOT
        self._counted = ROOT  # the state of the text's last `depth` tokens

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def repeated(self) -> Place:
        """The longest ending of the current text that occurs elsewhere too."""
        return Place(self, self._last, self._lengths[self._last]).shorter() if self._last != ROOT else Place(self)

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        of_states = (self._lengths, self._links, self._counts, self._first, self._degrees)
        of_edges = (self._tokens, self._targets, self._next)
        flat = sum(len(each) * each.itemsize for each in (*of_states, *of_edges))
        return flat + sum(map(_size, self._wide.values()))

    def count(self, state: int) -> int:
        """How often the substrings of a state occur; 1 if they are longer than `depth`."""
        return self._counts[state] or 1

    def length(self, state: int) -> int:
        """Tokens of a state's longest substring."""
        return self._lengths[state]

    def link(self, state: int) -> int:
        """The state of the longest ending that is not one of the state's own substrings; `NOWHERE` for the root."""
        return self._links[state]

    def after(self, state: int, token: int) -> int:
        """The state one token on, or `NOWHERE`."""
        edge = self._edge(state, token)
        return NOWHERE if edge == NOWHERE else self._targets[edge]

    def ways(self, state: int, most: int) -> list[tuple[int, int]]:
        """(token, state) of every way on; none if there are more than `most`."""
        wide = self._wide.get(state)
        if wide is not None and len(wide) > most:
            return []
        tokens, targets = self._tokens, self._targets
        return [(tokens[edge], targets[edge]) for edge in self._edges(state)]

    def _edges(self, state: int) -> Iterator[int]:
        edge, following = self._first[state], self._next
        while edge != NOWHERE:
            yield edge
            edge = following[edge]

    def _edge(self, state: int, token: int) -> int:
        wide = self._wide.get(state)
        if wide is not None:
            return wide.get(token, NOWHERE)
        edge, tokens, following = self._first[state], self._tokens, self._next
        while edge != NOWHERE and tokens[edge] != token:
            edge = following[edge]
        return edge

    # ── growth ────────────────────────────────────────────────────────────────────────────────────────────────────

    def feed(self, tokens: Sequence[int]) -> None:
        """Append tokens to the current text."""
        for token in tokens:
            self._last = self._append(token)
            self._tally(token)
        self.size += len(tokens)

    def _append(self, token: int) -> int:
        """The state of the current text and one more token."""
        here = self._last
        if (edge := self._edge(here, token)) != NOWHERE:  # another text began alike
            return self._exactly(here, token, self._targets[edge])
        fresh = self._new(self._lengths[here] + 1)
        while here != NOWHERE and (edge := self._edge(here, token)) == NOWHERE:
            self._connect(here, token, fresh)
            here = self._links[here]
        self._links[fresh] = ROOT if here == NOWHERE else self._exactly(here, token, self._targets[edge])
        return fresh

    def _exactly(self, here: int, token: int, there: int) -> int:
        """The state of `here`'s longest substring and a token: `there`, or split off it if it holds longer ones."""
        if self._lengths[there] == self._lengths[here] + 1:
            return there
        clone = self._new(self._lengths[here] + 1)
        self._counts[clone], self._links[clone] = self._counts[there], self._links[there]
        for edge in self._edges(there):
            self._connect(clone, self._tokens[edge], self._targets[edge])
        while here != NOWHERE and (edge := self._edge(here, token)) != NOWHERE and self._targets[edge] == there:
            self._targets[edge] = clone
            here = self._links[here]
        self._links[there] = clone
        return clone

    def _new(self, length: int) -> int:
        self._lengths.append(length)
        self._links.append(NOWHERE)
        self._counts.append(0)
        self._first.append(NOWHERE)
        self._degrees.append(0)
        return len(self._lengths) - 1

    def _connect(self, state: int, token: int, target: int) -> None:
        edge = len(self._tokens)
        self._tokens.append(token)
        self._targets.append(target)
        self._next.append(self._first[state])
        self._first[state] = edge
        if self._degrees[state] < _FEW:
            self._degrees[state] += 1
        elif state in self._wide:
            self._wide[state][token] = edge
        else:
            self._wide[state] = {self._tokens[edge]: edge for edge in self._edges(state)}

    def _tally(self, token: int) -> None:
        """Count one more occurrence of every ending, of at most `depth` tokens, of the current text."""
        state = self.after(self._counted, token)
        while self._lengths[self._links[state]] >= self.depth:
            state = self._links[state]
        self._counted = state
        counts, links = self._counts, self._links
        while state != ROOT:
            counts[state] += 1
            state = links[state]


def _size(each: dict[int, int]) -> int:
    """Bytes of a dictionary of integers, as CPython holds them."""
    return each.__sizeof__() + 64 * len(each)


class Place(NamedTuple):
    """An ending of a text, known to an automaton: the state it belongs to, and how many tokens it has."""

    automaton: SuffixAutomaton
    state: int = ROOT
    length: int = 0

    def follow(self, token: int) -> Place:
        """The longest known ending of the text one token longer. Amortised constant time."""
        automaton, state, length = self.settle()
        while (after := automaton.after(state, token)) == NOWHERE and state != ROOT:
            state = automaton.link(state)
            length = automaton.length(state)
        return Place(automaton) if after == NOWHERE else Place(automaton, after, length + 1)

    def settle(self) -> Place:
        """The same ending where an automaton that grew meanwhile keeps it."""
        automaton, state, length = self
        while state != ROOT and automaton.length(automaton.link(state)) >= length:
            state = automaton.link(state)
        return Place(automaton, state, length)

    def shorter(self) -> Place:
        """The longest ending of this one that also occurs elsewhere; of length 0 at last."""
        state = self.automaton.link(self.state)
        return Place(self.automaton, state, self.automaton.length(state))


class History:
    """Substrings of the texts of late: two automata, of which the older is dropped when the younger is full.

    capacity: most tokens remembered; at least the last half of it are, and the last text in full if it is shorter.
    """

    def __init__(self, capacity: int, depth: int = 64) -> None:
        if capacity < 2:
            raise ParameterError(f"capacity is {capacity} tokens: expected at least 2")
        self._capacity, self._depth = capacity, depth
        self.automata: tuple[SuffixAutomaton, ...] = (SuffixAutomaton(depth),)
        """The younger one first."""

    def add(self, text: Sequence[int]) -> None:
        """Remember a text; of one that is too long, the end."""
        half = self._capacity // 2
        text = text[-half:]
        if self.automata[0].size + len(text) > half:
            self.automata = (SuffixAutomaton(self._depth), self.automata[0])
        self.automata[0].begin()
        self.automata[0].feed(text)

    def clear(self) -> None:
        """Forget everything."""
        self.automata = (SuffixAutomaton(self._depth),)

    @property
    def size(self) -> int:
        """Tokens remembered."""
        return sum(each.size for each in self.automata)

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return sum(each.nbytes for each in self.automata)
