"""A bar for long measurements: what is being done, how far it is, and how long it will still take."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Bar"]


class Bar:
    """Shows a known number of steps while they are taken, on a terminal; nothing of it is left there."""

    def __init__(self, total: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._total = total

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task("", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, description: str) -> None:
        """Begin the next step, named so."""
        self._progress.update(self._task, description=description)

    def advance(self, steps: int = 1) -> None:
        """So many steps are done."""
        self._progress.advance(self._task, steps)
