"""The cache of converted models: one folder each, which is whole or not there.

A model is prepared in a staging folder beside its place, under a lock, and moved into place in one step after its
record was written. It refuses to know how models are fetched or converted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from truedraft.errors import DownloadError
from truedraft.models.progress import Progress

__all__ = ["RECORD", "Record", "Slot", "cache_folder", "check_space", "require_space", "sha256_of"]

RECORD = "truedraft.json"


@dataclass(frozen=True)
class Record:
    """What a converted folder was made from and with, kept in it as truedraft.json.

    source says where the GGUF file came from, gguf_sha256 which file it was; files maps each file to its checksum.
    """

    source: str
    gguf_sha256: str
    converter: Mapping[str, str]
    files: Mapping[str, Mapping[str, Any]]


def cache_folder() -> Path:
    """Where models are kept: $TRUEDRAFT_CACHE if set, else `truedraft` in the user's cache folder (XDG on Linux)."""
    chosen = os.environ.get("TRUEDRAFT_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("truedraft", appauthor=False)


def sha256_of(file: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Slot:
    """A place in the cache for one converted model; what is staged is cleared when a lock ends without an error."""

    folder: Path

    @property
    def staging(self) -> Path:
        """Where the model is prepared; what is in it survives an interruption."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    def record(self) -> Record | None:
        """The record of the model in place; None if there is none."""
        try:
            return Record(**json.loads((self.folder / RECORD).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def holds(self, gguf_sha256: str, *, thorough: bool = False) -> bool:
        """Whether the model made from this file is in place with all its files in full size; thorough: and checksum."""
        record = self.record()
        if record is None or record.gguf_sha256 != gguf_sha256:
            return False
        files = {self.folder / name: expected for name, expected in record.files.items()}
        if any(not file.is_file() or file.stat().st_size != expected["bytes"] for file, expected in files.items()):
            return False
        return not thorough or all(sha256_of(file) == expected["sha256"] for file, expected in files.items())

    @property
    def bytes(self) -> int:
        """The size of the model in place."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """One process at a time; others wait, and say so. Raises `DownloadError` where the cache is not writable."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder.with_name(f"{self.folder.name}.lock"))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                progress.start(f"waiting for another process that prepares {self.folder.name}", None)
                lock.acquire()
                progress.finish()
            self.staging.mkdir(exist_ok=True)
        except OSError as error:
            raise DownloadError(
                f"cannot write to the cache {self.folder.parent}: {error.strerror}. "
                "Set TRUEDRAFT_CACHE to another folder"
            ) from error
        try:
            yield
            shutil.rmtree(self.staging, ignore_errors=True)
        finally:
            with suppress(OSError):  # there is something in it for the next try
                self.staging.rmdir()
            lock.release()

    def publish(self, prepared: Path, *, source: str, gguf_sha256: str, converter: Mapping[str, str]) -> None:
        """Move a prepared folder into place, replacing what was there."""
        files = {}
        for file in sorted(prepared.iterdir()):
            file.chmod((prepared / "config.json").stat().st_mode)  # safetensors are written for their owner alone
            files[file.name] = {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
        record = Record(source, gguf_sha256, converter, files)
        (prepared / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        if self.folder.exists():
            shutil.rmtree(self.folder)
        prepared.rename(self.folder)


def require_space(slot: Slot, needed: int) -> None:
    """Raise `DownloadError` where the disk of a locked slot cannot take `needed` bytes of staging and model.

    What an earlier try has left in the staging folder counts as room.
    """
    staged = sum(file.stat().st_size for file in slot.staging.rglob("*") if file.is_file())
    check_space(slot.staging, needed - staged, slot.folder.name)


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise `DownloadError` where the disk of an existing folder has fewer free bytes than needed."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{what} needs {needed / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free: "
            "free some space, or choose a cache folder on another disk (TRUEDRAFT_CACHE, HF_HOME)"
        )
