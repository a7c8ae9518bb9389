"""Fill a recycling table from texts that the target has written: it reads them again and says what else it might have.

Reading is many times faster than writing, because all tokens of an answer go through one pass. Long contexts that occur
once in all the texts are left out if asked: they are most of a table, and few of them come again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from truedraft.drafters.count_table import SEED, CountTable, extend_key
from truedraft.drafters.recycle import Shares, teach, top_shares
from truedraft.targets.cached import CachedModel, Nodes

__all__ = ["Exchange", "ask_after_tokens", "rare_contexts", "replay"]

Exchange = tuple[Sequence[int], Sequence[int]]
"""A prompt and what the target wrote after it, as token ids; neither is empty."""

_PIECE = 256
"""Tokens whose logits are held at once."""

_KEY = "replay"
"""Of the row that reads."""


def replay(
    model: CachedModel,
    exchanges: Sequence[Exchange],
    table: CountTable,
    *,
    without: Collection[int] = (),
    told: Callable[[int], None] = lambda tokens: None,
) -> None:
    """Teach a table what the model says at every token of the answers. Answers beyond the model's context are cut.

    without: keys of contexts that are not learned. told: learns after each answer how many tokens have been replayed.
    """
    tokens = 0
    for prompt, answer in exchanges:
        room = len(answer) if model.context_length is None else model.context_length - len(prompt) + 1
        for start in range(0, min(len(answer), room), _PIECE):
            before = (*prompt, *answer[:start])
            piece = answer[start : min(start + _PIECE, room)]
            teach(table, before, piece, _said(model, before, piece), without=without)
            tokens += len(piece)
        model.release(_KEY)
        told(tokens)


def ask_after_tokens(model: CachedModel, before: Sequence[int], table: CountTable) -> None:
    """Teach a table what the model says after each token that it knows nothing after, as if a text began with it.

    before: a prompt, not empty, behind which every token is tried.
    """
    model.catch_up(_KEY, before)
    tokens = [token for token in range(table.vocabulary) if table.find(extend_key(SEED, token)) < 0]
    for start in range(0, len(tokens), _PIECE):
        piece = tokens[start : start + _PIECE]
        scores = model.extend([_KEY], [Nodes(tuple(piece), (-1,) * len(piece))])[0]
        model.rewind(_KEY, len(before))
        for token, row in zip(piece, top_shares(scores, range(len(piece))), strict=True):
            teach(table, (token,), (token,), [row])
    model.release(_KEY)


def _said(model: CachedModel, before: Sequence[int], piece: Sequence[int]) -> list[Shares]:
    """The model's likeliest tokens where each token of a piece stands."""
    model.catch_up(_KEY, before[:-1])
    scores = model.extend([_KEY], [Nodes.chain([before[-1], *piece[:-1]])])[0]
    model.keep(_KEY, range(len(piece)))
    return top_shares(scores, range(len(piece)))


def rare_contexts(exchanges: Sequence[Exchange], *, shortest: int = 3, longest: int = 4) -> set[int]:
    """Keys of the contexts of `shortest` to `longest` tokens that occur once only where an answer goes on."""
    seen: Counter[int] = Counter()
    for prompt, answer in exchanges:
        text = [*prompt, *answer]
        for place in range(len(prompt), len(text)):
            key = SEED
            for length, token in enumerate(reversed(text[max(0, place - longest) : place]), start=1):
                key = extend_key(key, token)
                if length >= shortest:
                    seen[key] += 1
    return {key for key, count in seen.items() if count == 1}
