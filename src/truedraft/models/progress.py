"""How a long wait is told to whoever waits. It refuses to know what is being done, and it never prints."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Meter", "Progress", "Silent"]


class Progress(Protocol):
    """One step at a time: start, advance any number of times, finish. A step cut off by an error is not finished."""

    def start(self, description: str, total: int | None) -> None:
        """A step begins; total in bytes, None where nobody can tell."""
        ...

    def advance(self, amount: int) -> None:
        """`amount` more bytes of the step are done."""
        ...

    def finish(self) -> None:
        """The step is done."""
        ...


class Silent:
    """Tells nobody."""

    def start(self, description: str, total: int | None) -> None:
        """Do nothing."""

    def advance(self, amount: int) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class Meter:
    """Advances a step by what is new, for those who know only how many bytes are done by now."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.done = 0

    def reach(self, done: int) -> None:
        """So many bytes are done; fewer than before count as nothing new."""
        if done > self.done:
            self._progress.advance(done - self.done)
            self.done = done
