"""Where a text ends: end tokens, stop strings and length limits, and the text itself as it grows.

Token ids and text agree at every moment: the ids kept are those that the kept text needs. This file refuses to know
how tokens are drawn and how many arrive at once; each is taken alone, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from truedraft.core import Finish, FinishReason
from truedraft.errors import ParameterError

__all__ = ["Decode", "EndRules", "TextEnding", "TextStream"]

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, special tokens skipped."""

_HALF_CHARACTER = "\ufffd"
"""What a decoder puts where bytes of a character are still missing."""
_SILENT = 32
"""Tokens without text that are kept as context: a run of end tokens must not make each one dearer than the last."""


@dataclass(frozen=True)
class EndRules:
    """When to end. Raises `ParameterError` for a value out of range.

    max_new_tokens: most output tokens. end_tokens: ids that end a text (reason eos); they stay in the ids and are not
    part of the text. stop_tokens: the same, with reason stop. stops: strings before which the text is cut.
    """

    max_new_tokens: int
    end_tokens: frozenset[int] = frozenset()
    stop_tokens: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ParameterError(f"max_new_tokens is {self.max_new_tokens}: expected at least 1")
        if not all(self.stops):
            raise ParameterError("a stop string is empty: expected at least one character")


class TextStream:
    """Token ids to text, one at a time, never showing half a character."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        # The last piece of text, for tokenizers that look back, and what was silent since.
        self._context: list[int] = []
        self._open: list[int] = []  # tokens whose last character is not complete
        self._ahead = 0  # complete characters that the open tokens have
        self.text = ""
        """Every complete character so far, but for those before one that is not."""
        self.starts: list[int] = []
        """Where in the text each token begins; one that completes a character begins with it."""

    def push(self, token: int) -> None:
        """Add a token."""
        self.starts.append(len(self.text) + self._ahead)
        self._open.append(token)
        window = self._decode([*self._context, *self._open])
        if window.endswith(_HALF_CHARACTER):
            self._ahead = max(0, len(window.rstrip(_HALF_CHARACTER)) - self._known)
        else:
            self._resolve(window)

    def close(self) -> None:
        """Add what is left of a character that was never completed."""
        if self._open:
            self._resolve(self._decode([*self._context, *self._open]))

    def cut(self, length: int) -> int:
        """Keep `length` characters; returns how many tokens they need."""
        self.text = self.text[:length]
        return sum(start < length for start in self.starts)

    @property
    def _known(self) -> int:
        """Characters of a window that are in the text."""
        return len(self._decode(self._context))

    def _resolve(self, window: str) -> None:
        fresh = window[self._known :]
        self.text += fresh
        if fresh:
            self._context = self._open
        elif len(self._context) < _SILENT:  # without a piece of text before it, the next one would lose its space
            self._context = [*self._context, *self._open]
        self._open, self._ahead = [], 0


class TextEnding:
    """`core.Ending` for one sequence; also holds its text.

    limit: most output tokens that the model's context allows. Without `decode` there is no text and no stop string.
    """

    def __init__(self, rules: EndRules, *, limit: int | None = None, decode: Decode | None = None) -> None:
        if rules.stops and decode is None:
            raise ParameterError(f"stop strings {list(rules.stops)} need a tokenizer, and this model has none")
        self._rules = rules
        self._limit = rules.max_new_tokens if limit is None else min(limit, rules.max_new_tokens)
        self._count = 0
        self._over = False
        self._longest = max(map(len, rules.stops), default=0)
        self._stream = None if decode is None else TextStream(decode)

    @property
    def room(self) -> int:
        """How many more tokens the limits allow."""
        return self._limit - self._count

    @property
    def text(self) -> str:
        """The text so far, cut at its end."""
        return self._stream.text if self._stream else ""

    @property
    def ready(self) -> str:
        """The text that no later token can take back: what may begin a stop string is held back."""
        text = self.text
        if self._over:
            return text
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._rules.stops):
                return text[:-length]
        return text

    def push(self, token: int) -> Finish | None:
        """Take the next output token. A stop within the length limit is a stop, not a length."""
        self._count += 1
        finish = self._finish(token)
        if finish is None and self._count >= self._limit:
            finish = self._closed() or Finish(self._count, FinishReason.LENGTH)
        self._over = finish is not None
        return finish

    def close(self) -> None:
        """No more tokens will come: show what was held back."""
        self._over = True
        if self._stream:
            self._stream.close()

    def _finish(self, token: int) -> Finish | None:
        if token in self._rules.end_tokens:
            return self._closed() or Finish(self._count, FinishReason.EOS)
        if token in self._rules.stop_tokens:
            return self._closed() or Finish(self._count, FinishReason.STOP)
        if self._stream is None:
            return None
        before = len(self._stream.text)
        self._stream.push(token)
        return self._stopped(before)

    def _closed(self) -> Finish | None:
        """Close the text; its last, incomplete character may still complete a stop string."""
        if self._stream is None:
            return None
        before = len(self._stream.text)
        self._stream.close()
        return self._stopped(before)

    def _stopped(self, before: int) -> Finish | None:
        """Cut at the first stop string that ends in the text from `before` on."""
        if self._stream is None or not self._rules.stops or len(self._stream.text) == before:
            return None
        begin = max(0, before - self._longest + 1)
        found = [at for stop in self._rules.stops if (at := self._stream.text.find(stop, begin)) >= 0]
        return Finish(self._stream.cut(min(found)), FinishReason.STOP) if found else None
