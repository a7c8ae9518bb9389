"""Long waits on the terminal: a bar where there is one, a line a step on standard error where there is none."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["RichProgress"]


class RichProgress:
    """Shows the steps of `truedraft.models.Progress`; nothing of it is left on a terminal when they are over.

    What a program writes to standard output may be piped to a file, so no step is ever told there then.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None and console.is_terminal else Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._step: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._step is not None:
            self._bars.stop()

    def start(self, description: str, total: int | None) -> None:
        """Show a step."""
        if not self._console.is_terminal:
            self._console.print(f"{description} …", highlight=False)
            return
        self._bars.start()
        self._step = self._bars.add_task(description, total=total)

    def advance(self, amount: int) -> None:
        """Move its bar."""
        if self._step is not None:
            self._bars.advance(self._step, amount)

    def finish(self) -> None:
        """Take it away."""
        if self._step is not None:
            self._bars.remove_task(self._step)
            self._bars.stop()
            self._step = None
