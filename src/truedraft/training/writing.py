"""Files that are whole or not there: written beside their place, put there when complete; one line says where that is
not possible. This file refuses to know what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from truedraft.errors import ParameterError

__all__ = ["beside", "write_whole", "writing"]


def beside(path: Path) -> Path:
    """Where a file or folder is written before it is complete."""
    return path.with_name(f"{path.name}.part")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written, and put in its place when it is complete. Raises `ParameterError` where that fails."""
    part = beside(path)
    try:
        with writing(path):
            write(part)
            os.replace(part, path)
    except ParameterError:
        with suppress(OSError):
            part.unlink(missing_ok=True)  # half a file only takes the room that is missing
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What libraries raise where they cannot write becomes a `ParameterError` that names the file or folder."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or (str(error).strip() or type(error).__name__).splitlines()[0][:100]
        raise ParameterError(f"{path} cannot be written ({reason}): make room there, or take another folder") from error
