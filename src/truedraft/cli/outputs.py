"""Where results go, looked at before anything is computed: minutes of work are not to end in an error."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

from truedraft.errors import ParameterError

__all__ = ["require_file", "require_folder"]


def require_folder(option: str, folder: Path) -> None:
    """A folder, made if it is not there, in which files can be written. Raises `ParameterError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _refused(option, folder, error) from error


def require_file(option: str, file: Path) -> None:
    """A file, there or not, that can be written. Raises `ParameterError`."""
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise _refused(option, file, error) from error


def _refused(option: str, path: Path, error: OSError) -> ParameterError:
    return ParameterError(f"{option} is {str(path)!r}: cannot write there ({error.strerror})")
