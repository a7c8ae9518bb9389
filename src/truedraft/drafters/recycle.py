"""Recycling: the target's own scores, kept as counts, guess what it will say next.

Every pass computes the target's full distribution after each accepted token and would then throw it away. Here the
likeliest tokens of each are kept under the last one, two, three and four tokens before them, and a tree is grown by
interpolated back-off: the longest known context speaks first, as far as its count earns trust, and leaves the rest to
the shorter ones. Related: token recycling (Luo et al. 2024), which keeps the last candidates of every single token;
interpolated smoothing of n-gram models (Jelinek and Mercer 1980). Drafts are CHOSEN.

Two memories have a say. A session's own, made of its prompt and its own scores, dies with it. The table is lent by
whoever makes the drafter, warm from a file or empty; it learns from sessions only if `share` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from truedraft.core import Draft, Scores, Session, Shape, Verdict
from truedraft.drafters.bets import Bet, best_first, drafts_of
from truedraft.drafters.count_table import ONE, SEED, WIDTH, CountTable, extend_key
from truedraft.drafters.pass_cost import USUAL, PassCost
from truedraft.errors import VocabularyError

__all__ = ["RecycleDrafter", "Shares", "Tail", "teach", "top_shares"]

_ORDERS = 4
"""Tokens of the longest context."""

_LONGEST = 8192
"""Of a longer prompt only so many last tokens are learned."""

_MANY = 24
"""A session's row with more tokens than these is cut to the likelier half."""

_SURE = 64
"""Counts beyond this earn no more trust."""

_NEWS = 0.6
"""A session's rows are running means in which the newest sighting counts at least this part: texts move on."""

_SAID = 3.0
"""How many times likelier a token of the table is where the session has it in its text already."""


def _trust(constant: float, slope: float) -> tuple[float, ...]:
    """By count, the share of the chance left by longer contexts that a row deserves: logistic in the count's log."""
    return (0.0, *(1 / (1 + math.exp(-constant - slope * math.log(count))) for count in range(1, _SURE + 1)))


# By order, from one token to four. Fitted to greedy answers of a small chat model that the table had not seen.
_OWN_TRUST = (_trust(-0.63, 0.67), _trust(0.21, 0.79), _trust(-0.31, 0.66), _trust(-0.07, 1.39))
_TABLE_TRUST = (_trust(-0.03, 0.21), _trust(-0.93, 0.16), _trust(-1.50, 0.19), _trust(-1.37, -0.44))

Tail = tuple[int, ...]
"""The last tokens of a text, at most as many as the longest context has, oldest first."""

Shares = tuple[list[int], list[float]]
"""The target's likeliest tokens somewhere in a text, and their probabilities."""


def _keys(tail: Tail) -> list[int]:
    """The key of every context that ends the text, shortest first."""
    key, keys = SEED, []
    for token in reversed(tail):
        key = extend_key(key, token)
        keys.append(key)
    return keys


@dataclass(eq=False, slots=True)
class _Row:
    """How often a context was seen in a session, and the probabilities of what came next, the latest most of all."""

    count: int = 0
    shares: dict[int, float] = field(default_factory=dict)

    def learn(self, tokens: Sequence[int], shares: Sequence[float]) -> None:
        self.count += 1
        news = max(1.0 / self.count, _NEWS)
        mean = {token: share * (1.0 - news) for token, share in self.shares.items()}
        for token, share in zip(tokens, shares, strict=True):
            mean[token] = mean.get(token, 0.0) + share * news
        if len(mean) > _MANY:
            mean = dict(sorted(mean.items(), key=lambda pair: -pair[1])[: _MANY // 2])
        self.shares = mean


class _Memory:
    """What a session has taught so far. A `bets.Source` whose states are tails."""

    def __init__(self, table: CountTable, share: bool) -> None:
        self._table, self._share = table, share
        self.clear()

    def clear(self) -> None:
        """Forget the text and what it taught."""
        self.text: list[int] = []
        self._said: set[int] = set()
        self._rows: dict[int, _Row] = {}

    @property
    def tail(self) -> Tail:
        return tuple(self.text[-_ORDERS:])

    def follow_text(self, tokens: Sequence[int]) -> None:
        """Catch up with a text of which no scores were seen; one that was edited is learned afresh."""
        known = len(self.text)
        if self.text != tokens[:known]:
            self.clear()
            known = 0
        start = max(known, len(tokens) - _LONGEST)
        self._say(tokens[known:start])
        for token in tokens[start:]:
            self._learn(_keys(self.tail), (token,), (1.0,))
            self._say((token,))

    def follow_scores(self, emitted: Sequence[int], rows: Sequence[Shares]) -> None:
        """Catch up with a round: emitted token i was drawn where the target's likeliest tokens were rows[i]."""
        if self._share:
            teach(self._table, self.tail, emitted, rows)
        for token, (tokens, shares) in zip(emitted, rows, strict=True):
            self._learn(_keys(self.tail), tokens, shares)
            self._say((token,))

    def _say(self, tokens: Sequence[int]) -> None:
        self.text += tokens
        self._said.update(tokens)

    def _learn(self, keys: Sequence[int], tokens: Sequence[int], shares: Sequence[float]) -> None:
        for key in keys:
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = _Row()
            row.learn(tokens, shares)

    def guesses(self, state: Tail, least: float) -> list[tuple[float, int]]:
        """What may follow a tail, by interpolated back-off from the longest context to the shortest."""
        left, found = 1.0, dict[int, float]()
        keys = _keys(state)
        for order in range(len(keys) - 1, -1, -1):
            own = self._rows.get(keys[order])
            if own is not None:
                trust = left * _OWN_TRUST[order][min(own.count, _SURE)]
                _mix(found, trust, own.shares.items())
                left -= trust
            row = self._table.find(keys[order])
            if row >= 0:
                trust = left * _TABLE_TRUST[order][min(self._table.count(row), _SURE)]
                _mix(found, trust, self._told(row))
                left -= trust
            if left < least:
                break
        likely = [(chance, token) for token, chance in found.items() if chance >= least]
        likely.sort(reverse=True)
        return likely

    def _told(self, row: int) -> list[tuple[int, float]]:
        """What the table says, in favour of tokens that the text has already."""
        tokens, shares, said = self._table.tokens(row), self._table.shares(row), self._said
        favoured = [share * _SAID if token in said else share for token, share in zip(tokens, shares, strict=True)]
        scale = sum(shares) / (sum(favoured) * ONE or 1.0)
        return [(token, share * scale) for token, share in zip(tokens, favoured, strict=True) if share]

    def follow(self, state: Tail, token: int) -> Tail:
        """The tail one token on."""
        return (*state[1 - _ORDERS :], token) if len(state) == _ORDERS else (*state, token)


def _mix(found: dict[int, float], trust: float, guesses: Iterable[tuple[int, float]]) -> None:
    """Add guesses, as far as they are trusted."""
    for token, share in guesses:
        found[token] = found.get(token, 0.0) + trust * share


def teach(
    table: CountTable,
    text: Sequence[int],
    emitted: Sequence[int],
    rows: Sequence[Shares],
    *,
    without: Collection[int] = (),
) -> None:
    """Let a table learn what came after a text: token i of `emitted`, drawn from rows[i].

    without: keys of contexts that are not learned.
    """
    tail = tuple(text[-_ORDERS:])
    for token, (tokens, shares) in zip(emitted, rows, strict=True):
        whole = [round(share * ONE) for share in shares]
        for key in _keys(tail):
            if key not in without:
                table.learn(key, tokens, whole)
        tail = (*tail, token)[-_ORDERS:]


def top_shares(scores: Scores, nodes: Sequence[int]) -> list[Shares]:
    """The likeliest tokens after each of these nodes, with their probabilities before any sampling processor."""
    logits = scores.logits[list(nodes)].float()
    top = logits.topk(min(WIDTH, logits.shape[-1]))
    shares = (top.values - logits.logsumexp(-1, keepdim=True)).exp()
    return list(zip(top.indices.tolist(), shares.tolist(), strict=True))


class RecycleDrafter:
    """`bets.Bettor` by recycling.

    table: what is known from before. share: teach the table what sessions teach; say so only if every request may see
    what others were told. keep: called whenever a session that may have taught the table has ended. passes: what the
    target's cost; a tree grows while another node pays.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        table: CountTable,
        *,
        passes: PassCost = USUAL,
        share: bool = False,
        keep: Callable[[], None] | None = None,
    ) -> None:
        self.table = table
        self._passes, self._share, self._keep = passes, share, keep
        self._memories: dict[Session, _Memory] = {}

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape], *, batch: int | None = None) -> list[Draft]:
        """The likeliest continuations by what the target said before, as a tree within each session's shape."""
        return drafts_of(self, sessions, shapes, batch)

    def bet(self, session: Session, shape: Shape, *, batch: int = 1) -> Bet:
        """The same for one session, with the chances of its nodes."""
        memory = self._memory(session)
        memory.follow_text(session.tokens)
        return best_first(
            session.root, memory.tail, memory, shape, costs=self._passes.among(batch, len(session.tokens))
        )

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Keep the target's likeliest tokens after every accepted node. Raises `VocabularyError` for another width."""
        for session, verdict, score in zip(sessions, verdicts, scores, strict=True):
            if score.logits.shape[-1] > self.table.vocabulary:
                raise VocabularyError(
                    f"the target scores {score.logits.shape[-1]} tokens and the table knows {self.table.vocabulary}: "
                    "expected a table made for this target"
                )
            memory = self._memory(session)
            if session.finish is None:
                memory.follow_text(session.tokens[: len(session.tokens) - len(verdict.tokens)])
            memory.follow_scores(verdict.tokens, top_shares(score, (0, *verdict.path)))

    def release(self, session: Session) -> None:
        """Forget what the session taught, but for what the table learned."""
        self._memories.pop(session, None)
        if self._share and self._keep is not None:
            self._keep()

    def _memory(self, session: Session) -> _Memory:
        if session not in self._memories:
            self._memories[session] = _Memory(self.table, self._share)
        return self._memories[session]
