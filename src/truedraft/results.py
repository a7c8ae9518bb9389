"""What comes back: the results of finished texts, and the chunks of texts that still grow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from truedraft.core import FinishReason, Round, Statistics, TokenLogprobs

__all__ = ["Chunk", "Result"]


@dataclass(frozen=True)
class Result:
    """One text.

    token_ids: the output, an end token included. text: the same decoded, end tokens and stop strings left out.
    logprobs: one entry a token if they were asked for. seconds: from the request to the last token.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    statistics: Statistics
    seconds: float
    lossless: bool = True
    logprobs: tuple[TokenLogprobs, ...] | None = None

    @property
    def tokens_per_second(self) -> float:
        """Output tokens over seconds, reading the prompt included."""
        return len(self.token_ids) / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the documents define each figure."""
        counts = self.statistics
        entry: dict[str, Any] = {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": str(self.finish_reason),
            "prompt_tokens": self.prompt_tokens,
            "rounds": counts.rounds,
            "target_passes": counts.rounds,
            "tokens_per_pass": counts.tokens_per_pass,
            "drafted": counts.drafted,
            "accepted": counts.accepted,
            "acceptance_rate": counts.acceptance_rate,
            "acceptance_by_position": list(counts.acceptance_by_position),
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "seconds_by_part": {
                "draft": counts.timings.draft,
                "target": counts.timings.target,
                "rule": counts.timings.rule,
                "rest": counts.timings.rest,
            },
            "lossless": self.lossless,
        }
        if self.logprobs is not None:
            entry["logprobs"] = [
                {"token": item.token, "logprob": item.logprob, "top": [list(pair) for pair in item.top]}
                for item in self.logprobs
            ]
        return entry


@dataclass(frozen=True)
class Chunk:
    """What one round added to one text.

    index: which prompt of the list. text: new text, never half a character and never what a stop string may yet take
    back. token_ids: the ids that the round added, also those whose text is held back: a stop string that begins in an
    earlier round takes back ids that its chunk had, and the result has fewer than all chunks together. round: the bets
    and the verdict behind them.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    round: Round = field(repr=False)
    finish_reason: FinishReason | None = None
