"""Models by hub id, against a hub on the loopback interface: what is taken, what is kept, what a failure says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants, hf_hub_download
from safetensors.torch import save

from tests.models.ggufs import Steps, entry_of
from tests.models.hub_server import Hub, serve
from truedraft.errors import DownloadError, UnknownModelError, UnsupportedModelError
from truedraft.models import Library
from truedraft.models.hub import is_hub_id, wanted

ID = "someone/small-model"


def model_files(value: float = 1.0) -> dict[str, bytes]:
    """A sharded model with everything that repositories hold besides."""
    shards = {
        f"model-0000{part}-of-00002.safetensors": {name: torch.full((4000,), value)}
        for part, name in ((1, "a"), (2, "b"))
    }
    index = {"metadata": {}, "weight_map": {name: shard for shard, held in shards.items() for name in held}}
    return {
        "README.md": b"read me",
        "config.json": b'{"model_type": "llama"}',
        "generation_config.json": b"{}",
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"chat_template": "x"}',
        "chat_template.jinja": b"x",
        **{shard: save(held) for shard, held in shards.items()},
        "model.safetensors.index.json": json.dumps(index).encode(),
        "pytorch_model.bin": b"pickled",
        "modeling_small.py": b"print('code')",
        "consolidated.safetensors": b"the same weights again",
        "original/model.safetensors": b"and again",
        "onnx/model.onnx": b"and again",
    }


TAKEN = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the client talks to, with an empty cache."""
    hub = Hub()
    with serve(hub):
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "cache", ())


def test_a_model_is_fetched_once_without_code_and_pickles(hub: Hub, library: Library) -> None:
    files = model_files()
    revision = hub.publish(ID, files)
    steps = Steps()
    folder = library.resolve(ID, progress=steps)
    assert {path.name for path in folder.iterdir()} == TAKEN
    assert all((folder / name).read_bytes() == files[name] for name in TAKEN)
    assert folder.name == revision
    total = sum(len(files[name]) for name in TAKEN)
    assert steps.steps == [[f"downloading {ID}", total, total, True]]
    hub.asked.clear()
    assert library.resolve(ID) == folder == library.resolve(ID, offline=True)
    assert hub.asked == []


def test_an_id_keeps_its_revision_until_the_next_pull(hub: Hub, library: Library) -> None:
    hub.publish(ID, model_files(1.0))
    first = library.resolve(ID)
    newest = hub.publish(ID, model_files(2.0))
    assert library.resolve(ID) == first
    assert library.pull(ID).name == newest
    assert library.resolve(ID).name == newest


def test_a_download_cut_off_leaves_no_model_and_goes_on_later(hub: Hub, library: Library) -> None:
    hub.publish(ID, model_files())
    hub.cut = 9000
    with pytest.raises(DownloadError, match=ID) as caught:
        library.resolve(ID)
    assert "\n" not in str(caught.value)
    with pytest.raises(DownloadError, match=r"working offline"):
        library.resolve(ID, offline=True)
    hub.cut = None
    folder = library.resolve(ID)
    assert all((folder / name).read_bytes() == model_files()[name] for name in TAKEN)


@pytest.mark.parametrize("lost", sorted(TAKEN))
def test_a_model_that_lost_a_file_is_completed(hub: Hub, library: Library, lost: str) -> None:
    hub.publish(ID, model_files())
    (library.resolve(ID) / lost).unlink()
    with pytest.raises(DownloadError, match=r"working offline"):
        library.resolve(ID, offline=True)
    assert (library.resolve(ID) / lost).read_bytes() == model_files()[lost]


def test_a_file_that_lost_its_end_is_not_taken(hub: Hub, library: Library) -> None:
    hub.publish(ID, model_files())
    file = library.resolve(ID) / "tokenizer_config.json"
    file.resolve().write_bytes(b"{")
    with pytest.raises(DownloadError, match=r"working offline"):
        library.resolve(ID, offline=True)


def test_what_another_tool_has_fetched_serves_when_the_hub_cannot_be_reached(hub: Hub, library: Library) -> None:
    hub.publish(ID, model_files())
    [elsewhere] = {Path(hf_hub_download(ID, name)).parent for name in TAKEN}
    assert library.resolve(ID, offline=True) == elsewhere
    hub.status = 503
    assert library.resolve(ID) == elsewhere
    (elsewhere / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DownloadError):
        library.resolve(ID)


def test_a_hub_that_cannot_be_reached_is_said_so(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens on the discard port
    entry = replace(entry_of(b"x", parts=1), hub_id=ID)
    with pytest.raises(DownloadError, match=r"the model hub cannot be reached: .*tiny is a quantised copy") as caught:
        Library(tmp_path, (entry,)).resolve(ID)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("RepoNotFound", UnknownModelError, "no such public model on the hub"),
        ("GatedRepo", DownloadError, "accept its terms on the model hub"),
    ],
)
def test_a_refusal_tells_what_to_do(hub: Hub, library: Library, code: str, error: type[Exception], said: str) -> None:
    hub.status, hub.headers = 403 if code == "GatedRepo" else 404, {"X-Error-Code": code}
    with pytest.raises(error, match=said):
        library.resolve(ID)


def test_pickled_weights_need_a_flag(hub: Hub, library: Library) -> None:
    hub.publish(ID, {name: content for name, content in model_files().items() if "safetensors" not in name})
    with pytest.raises(UnsupportedModelError, match=r"--allow-pickle"):
        library.resolve(ID)
    folder = library.resolve(ID, allow_pickle=True)
    assert (folder / "pytorch_model.bin").read_bytes() == b"pickled"
    with pytest.raises(UnsupportedModelError, match=r"--allow-pickle"):
        library.resolve(ID)


@pytest.mark.parametrize("config", [{"model_type": "small_own"}, {}])
def test_a_model_of_its_own_code_is_refused_before_its_weights(
    hub: Hub, library: Library, config: dict[str, str]
) -> None:
    said = json.dumps({"auto_map": {"AutoModelForCausalLM": "modeling_small.Small"}, **config}).encode()
    hub.publish(ID, model_files() | {"config.json": said})
    with pytest.raises(UnsupportedModelError, match=r"download the repository, .* --trust-remote-code") as caught:
        library.resolve(ID)
    assert "\n" not in str(caught.value)
    assert any("config.json" in question for question in hub.asked)
    assert not any("safetensors" in question for question in hub.asked if question.startswith("GET"))


def test_code_beside_a_model_that_transformers_knows_is_not_needed(hub: Hub, library: Library) -> None:
    said = json.dumps({"auto_map": {"AutoConfig": "configuration_small.Config"}, "model_type": "llama"}).encode()
    hub.publish(ID, model_files() | {"config.json": said})
    assert {path.name for path in library.resolve(ID).iterdir()} == TAKEN


def test_another_process_may_write_the_same_note(hub: Hub, library: Library) -> None:
    hub.publish(ID, model_files())
    (library.cache / "hub" / f"{ID.replace('/', '--')}.tmp").mkdir(parents=True)  # the other's
    library.resolve(ID)
    notes = {path.name for path in (library.cache / "hub").iterdir() if path.is_file()}
    assert notes == {f"{ID.replace('/', '--')}.json"}


def test_a_cache_that_cannot_be_written_is_said_so_before_anything_is_fetched(hub: Hub, library: Library) -> None:
    hub.publish(ID, model_files())
    library.cache.mkdir()
    (library.cache / "hub").write_text("a file in its place")
    with pytest.raises(DownloadError, match=r"cannot write to the cache .*TRUEDRAFT_CACHE") as caught:
        library.resolve(ID)
    assert "\n" not in str(caught.value) and hub.asked == []


def test_a_hubs_cache_that_cannot_be_written_is_said_so(
    hub: Hub, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.publish(ID, model_files())
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=r"cannot write to the hub's cache .*HF_HOME"):
        library.resolve(ID)


def test_a_repository_of_gguf_files_points_at_one(hub: Hub, library: Library) -> None:
    hub.publish(ID, {"README.md": b"", "small-q4.gguf": b"", "small-q8.gguf": b""})
    with pytest.raises(UnsupportedModelError, match=r"download a GGUF file of it, such as small-q4\.gguf"):
        library.resolve(ID)


def test_a_repository_without_a_model_is_said_to_be_one() -> None:
    with pytest.raises(UnsupportedModelError, match=r"holds no config\.json with safetensors weights"):
        wanted({"data.parquet": 1}, ID, allow_pickle=True)


def test_weights_come_last_so_that_they_vouch_for_the_rest() -> None:
    order = list(wanted({"model.safetensors": 9, "tokenizer.model": 1, "config.json": 1}, ID, allow_pickle=False))
    assert order[-1] == "model.safetensors"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("a/b", True),
        ("Qwen/Qwen2.5-0.5B", True),
        ("a", False),
        ("a/b/c", False),
        ("a/", False),
        ("/a", False),
        ("a/../b", False),
        ("org/foo--bar", False),
        ("org/foo..bar", False),
        ("org/foo.git", False),
        ("org/foo-", False),
    ],
)
def test_what_a_hub_id_looks_like(name: str, answer: bool) -> None:
    assert is_hub_id(name) is answer
