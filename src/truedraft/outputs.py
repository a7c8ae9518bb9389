"""Where results go, looked at before anything is computed: minutes of work are not to end in an error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from truedraft.errors import ParameterError

__all__ = ["require_file", "require_folder"]


def require_folder(option: str, folder: Path) -> None:
    """A folder, made if it is not there, in which files can be written. Raises `ParameterError`."""
    _try_to_write(option, folder, folder)


def require_file(option: str, file: Path) -> None:
    """A file, there or not, that can be written. Raises `ParameterError`."""
    _try_to_write(option, file, file.parent)
    if file.is_dir():
        raise ParameterError(f"{option} is {str(file)!r}: cannot write there (it is a folder)")


def _try_to_write(option: str, said: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ParameterError(f"{option} is {str(said)!r}: cannot write there ({error.strerror})") from error
