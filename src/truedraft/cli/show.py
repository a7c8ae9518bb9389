"""How a terminal shows texts, bets and figures. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truedraft.core import Round
from truedraft.results import Chunk, Result
from truedraft.text import Decode, TextStream

__all__ = ["LEGEND", "Painter", "comparison", "origins", "summary"]

_STYLES = {"accepted": "green", "corrected": "red", "bonus": "cyan", "plain": ""}

LEGEND = Text.assemble(
    "tokens: ", ("accepted", "green"), " drafts, ", ("corrected", "red"), ", ", ("bonus", "cyan"), ", plain"
)


def origins(record: Round) -> Iterator[str]:
    """Where each token of a verdict comes from: accepted, then corrected, bonus, or plain if nothing was drafted."""
    verdict, tree = record.verdict, record.draft.tree
    yield from ("accepted" for _ in verdict.path)
    if len(tree) == 1:
        yield "plain"
    else:
        yield "corrected" if tree.children[verdict.last] else "bonus"


class Painter:
    """Prints a growing text, each token in the colour of its origin."""

    def __init__(self, console: Console, decode: Decode, *, colour: bool) -> None:
        self._console = console
        self._colour = colour
        self._stream = TextStream(decode)
        self._styles: list[str] = []
        self._shown = 0
        self._ready = 0

    def show(self, chunk: Chunk) -> None:
        """Print what a chunk has made certain."""
        if not self._colour:
            self._console.print(Text(chunk.text), end="", soft_wrap=True)
            return
        for token, origin in zip(chunk.token_ids, origins(chunk.round), strict=False):
            self._stream.push(token)
            self._styles.append(_STYLES[origin])
        self._ready += len(chunk.text)
        self._console.print(self._painted(), end="", soft_wrap=True)

    def _painted(self) -> Text:
        """The text from what was shown to what is ready, in its tokens' colours."""
        painted = Text()
        starts = [*self._stream.starts, len(self._stream.text)]
        for style, (start, stop) in zip(self._styles, pairwise(starts), strict=True):
            start, stop = max(start, self._shown), min(stop, self._ready)
            if start < stop:
                painted.append(self._stream.text[start:stop], style)
        self._shown = max(self._shown, min(self._ready, len(self._stream.text)))
        return painted


def summary(result: Result) -> str:
    """One line of figures."""
    counts = result.statistics
    parts = [
        f"{len(result.token_ids)} tokens in {result.seconds:.2f} s ({result.tokens_per_second:.1f}/s)",
        f"{counts.tokens_per_pass:.2f} tokens per pass",
    ]
    if counts.drafted:
        parts.append(f"{counts.accepted} of {counts.drafted} drafted tokens accepted")
        parts.append(f"by position {_rates(counts.acceptance_by_position)}")
    parts.append(f"finished: {result.finish_reason}")
    return " · ".join(parts)


def _rates(rates: Sequence[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def comparison(fast: Result, plain: Result, *, identical: bool | None, note: str = "") -> Table:
    """Speculative and plain decoding side by side."""
    table = Table(caption=note or None)
    for heading in ("", "tokens", "passes", "tokens/pass", "seconds", "tokens/s", "speed"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, result in (("plain", plain), ("speculative", fast)):
        table.add_row(
            name,
            str(len(result.token_ids)),
            str(result.statistics.rounds),
            f"{result.statistics.tokens_per_pass:.2f}",
            f"{result.seconds:.2f}",
            f"{result.tokens_per_second:.1f}",
            f"{result.tokens_per_second / plain.tokens_per_second:.2f}x" if plain.tokens_per_second else "",
        )
    if identical is not None:
        table.title = "the same text, token by token" if identical else "the texts differ"
    return table
