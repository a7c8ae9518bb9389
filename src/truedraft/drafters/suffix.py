"""Suffix decoding: bet that the text goes on as it, or an earlier text, did after the longest endings that occur there.

Source: suffix decoding (Oliaro et al. 2024): suffix structures of the request and of earlier outputs, trees grown by
how often each continuation followed, scored by expected accepted tokens. Where a guess of that paper is a mere share of
counts, this one is the share times the trust that matches of this length have earned, and what trust is left goes to
the next shorter ending. Drafts are CHOSEN and made of tokens alone: this file needs no model and no tokenizer.

Private unless told otherwise: what one request says is drafted for no other, see `share`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from truedraft.core import Draft, Scores, Session, Shape, Verdict
from truedraft.drafters.bets import Bet, best_first, drafts_of
from truedraft.drafters.pass_cost import USUAL, PassCost
from truedraft.drafters.suffix_index import NOWHERE, History, Place, SuffixAutomaton

__all__ = ["SuffixDrafter", "Trust"]

_BOUNDS = (2, 3, 4, 5, 6, 9, 15)
"""Where one class of match lengths ends and the next begins."""

_CLASS = tuple(sum(length >= bound for bound in _BOUNDS) for length in range(_BOUNDS[-1] + 1))

_PRIOR = tuple((length - 0.6) / (length + 0.6) for length in (1, 2, 3, 4, 5, 7, 11, 25))
"""How often the continuation of a match of each class is right, on chat answers of a small model."""

_CERTAINTY = 8.0
"""How many observations the prior is worth."""

_WAYS = 64
"""An ending that goes on in more ways than these says too little to be looked at."""

_ENDINGS = 3
"""How many endings of each automaton have a say about a node."""

_OVERLAP = 32
"""Tokens of a prompt's end that are remembered with its output, so that the output's first tokens can be found."""


class Trust:
    """How often matches of a length were right about the next token of one text, given a prior."""

    def __init__(self) -> None:
        self._hits = [_CERTAINTY * prior for prior in _PRIOR]
        self._tries = [_CERTAINTY] * len(_PRIOR)

    def __getitem__(self, length: int) -> float:
        """The chance that what followed a match of `length` tokens comes next."""
        which = _CLASS[min(length, _BOUNDS[-1])]
        return self._hits[which] / self._tries[which]

    def record(self, length: int, *, hit: bool) -> None:
        """A match of `length` tokens had, or had not, been followed by the next token before."""
        which = _CLASS[min(length, _BOUNDS[-1])]
        self._tries[which] += 1.0
        self._hits[which] += hit


Places = tuple[Place, ...]


class _Text:
    """A session's tokens, in an automaton of their own, and where their ending is in those of earlier texts.

    A `bets.Source`: a state is the places of one ending, that in the own automaton first.
    """

    def __init__(self, prompt_length: int) -> None:
        self._prompt_length = prompt_length
        self._tokens: list[int] = []
        self._own = SuffixAutomaton()
        self._trust, self._trust_in_others = Trust(), Trust()
        self._others: list[Place] = []

    def begins(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens begin with the text so far: nothing of it was edited or cut."""
        return tokens[: len(self._tokens)] == self._tokens

    def catch_up(self, tokens: Sequence[int], others: Sequence[SuffixAutomaton]) -> Places:
        """Read what is new of a text that this one begins. Returns the places of its ending."""
        known = {place.automaton: place for place in self._others}
        self._others = [known.get(each) or _locate(each, self._tokens) for each in others]
        for token in tokens[len(self._tokens) :]:
            self._read(token)
        return self._places

    @property
    def _places(self) -> Places:
        return (self._own.repeated, *(place.settle() for place in self._others))

    def _read(self, token: int) -> None:
        """One more token; in the output, matches earn or lose trust by it."""
        if len(self._tokens) >= self._prompt_length:
            for place in self._places:
                if place.length and place.automaton.ways(place.state, _WAYS):
                    hit = place.automaton.after(place.state, token) != NOWHERE
                    self._trust_of(place).record(place.length, hit=hit)
        self._tokens.append(token)
        self._own.feed((token,))
        self._others = [place.follow(token) for place in self._others]

    def _trust_of(self, place: Place) -> Trust:
        return self._trust if place.automaton is self._own else self._trust_in_others

    def guesses(self, state: Places, least: float) -> list[tuple[float, int]]:
        """What followed the endings, longest first: each leaves to the rest what it is not trusted for."""
        left, found = 1.0, dict[int, float]()
        for place in sorted(_endings(state), key=_by_length, reverse=True):
            count = place.automaton.count
            ways = [(token, count(target)) for token, target in place.automaton.ways(place.state, _WAYS)]
            if not ways:
                continue
            trusted = left * self._trust_of(place)[place.length]
            each = trusted / sum(times for _, times in ways)
            for token, times in ways:
                found[token] = found.get(token, 0.0) + each * times
            left -= trusted
            if left < least:
                break
        likely = [(chance, token) for token, chance in found.items() if chance >= least]
        return sorted(likely, key=lambda guess: -guess[0])

    def follow(self, state: Places, token: int) -> Places:
        """The places one token on."""
        return tuple(place.follow(token) for place in state)

    def remembered(self) -> list[int]:
        """What of the text is worth remembering: the output, and the end of the prompt to find it by."""
        if len(self._tokens) <= self._prompt_length:
            return []
        return self._tokens[max(0, self._prompt_length - _OVERLAP) :]


def _locate(automaton: SuffixAutomaton, text: Sequence[int]) -> Place:
    """The longest known ending of a text, up to the automaton's depth."""
    place = Place(automaton)
    for token in text[-automaton.depth :]:
        place = place.follow(token)
    return place


def _endings(places: Places) -> Iterator[Place]:
    for place in places:
        for _ in range(_ENDINGS):
            if not place.length:
                break
            yield place
            place = place.shorter()


_by_length = attrgetter("length")


class SuffixDrafter:
    """`bets.Bettor` by suffix decoding.

    passes: what the target's cost; a tree grows while another node pays. share: remember outputs and draft from them
    for every later request; say so only if all requests may see one another's texts. capacity: most tokens remembered.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, *, passes: PassCost = USUAL, share: bool = False, capacity: int = 1_000_000) -> None:
        self._passes, self._share = passes, share
        self._history = History(capacity)
        self._texts: dict[Session, _Text] = {}

    @property
    def history(self) -> History:
        """What is remembered of earlier requests; nothing unless `share` was asked for."""
        return self._history

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape], *, batch: int | None = None) -> list[Draft]:
        """The likeliest continuations that were seen before, as a tree within each session's shape."""
        return drafts_of(self, sessions, shapes, batch)

    def bet(self, session: Session, shape: Shape, *, batch: int = 1) -> Bet:
        """The same for one session, with the chances of its nodes."""
        text = self._text(session)
        places = text.catch_up(session.tokens, self._history.automata if self._share else ())
        return best_first(session.root, places, text, shape, costs=self._passes.among(batch, len(session.tokens)))

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """What was accepted is found in the session's tokens next time."""

    def release(self, session: Session) -> None:
        """Forget a session; its output is remembered if outputs are shared."""
        if session in self._texts and self._share:
            text = self._text(session)
            text.catch_up(session.tokens, ())
            self._history.add(text.remembered())
        self._texts.pop(session, None)

    def _text(self, session: Session) -> _Text:
        """What is known of a session's text; nothing if it is new or was edited."""
        text = self._texts.get(session)
        if text is None or not text.begins(session.tokens):
            text = self._texts[session] = _Text(session.prompt_length)
        return text
