"""`truedraft pull` and `truedraft models`: what they print, and where."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from truedraft.cli import main
from truedraft.cli.generate import prompt_of
from truedraft.cli.progress import RichProgress
from truedraft.errors import PromptError, UnknownModelError
from truedraft.models import CATALOGUE, DEFAULT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRUEDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_pull_says_where_the_model_is(tiny_gguf: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", str(tiny_gguf)]) == 0
    out, err = capsys.readouterr()
    [folder] = [path for path in (cache / "models").iterdir() if path.is_dir()]
    assert out == f"{tiny_gguf} is ready in {folder} (0 MB)\n"
    assert err == "converting tiny.gguf …\n"


def test_pull_prints_one_json_object(tiny_gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", str(tiny_gguf), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    folder = Path(told["path"])
    assert told == {
        "name": str(tiny_gguf),
        "path": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def test_a_mistake_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "smolm2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("truedraft: unknown model 'smolm2': did you mean smollm2-135m?")
    assert err.count("\n") == 1


def test_models_lists_every_name_with_its_licence(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    for entry in CATALOGUE:
        assert entry.name in out
        assert f"original: {entry.hub_id}, {entry.licence}" in out
        assert f"`truedraft pull {entry.name}` downloads" in out
    assert str(cache) in out


def test_models_as_json(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cache"] == str(cache)
    assert [model["name"] for model in told["models"]] == [entry.name for entry in CATALOGUE]
    assert [model["name"] for model in told["models"] if model["default"]] == [DEFAULT]
    assert all(model["path"] is None and model["bytes"] == 0 for model in told["models"])


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────


def run_a_step(progress: RichProgress) -> None:
    progress.start("downloading it", 2_000_000)
    progress.advance(1_000_000)
    progress.finish()


def test_progress_never_goes_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    pipe = io.StringIO()
    with RichProgress(Console(file=pipe)) as progress:
        run_a_step(progress)
    assert pipe.getvalue() == ""
    assert capsys.readouterr() == ("", "downloading it …\n")


def test_progress_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO()
    with RichProgress(Console(file=terminal, force_terminal=True, width=100)) as progress:
        run_a_step(progress)
        run_a_step(progress)
    assert "downloading it" in terminal.getvalue()
    assert "2.0 MB" in terminal.getvalue()
    assert capsys.readouterr() == ("", "")


def test_an_unfinished_step_gives_the_terminal_back() -> None:
    terminal = io.StringIO()
    with pytest.raises(KeyboardInterrupt), RichProgress(Console(file=terminal, force_terminal=True)) as progress:
        progress.start("downloading it", None)
        raise KeyboardInterrupt
    hidden, shown = (terminal.getvalue().rindex(f"\x1b[?25{switch}") for switch in "lh")
    assert hidden < shown  # the cursor


def test_chat_hands_on_how_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, Any] = {}

    def load(model: str, **options: Any) -> None:
        said.update(options)
        raise UnknownModelError("enough is known")

    monkeypatch.setattr("truedraft.cli.chat.load", load)
    assert main(["chat", "--attention", "eager", "--trust-remote-code", "--allow-pickle"]) == 2
    assert (said["attention"], said["trust_remote_code"], said["allow_pickle"]) == ("eager", True, True)
    assert main(["chat"]) == 2
    assert (said["attention"], said["trust_remote_code"], said["allow_pickle"]) == ("auto", False, False)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_prompt_that_is_not_utf_8_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch, errors: str) -> None:
    source = io.TextIOWrapper(io.BytesIO("Gr\u00fc\u00dfe".encode("latin-1")), encoding="utf-8", errors=errors)
    monkeypatch.setattr("sys.stdin", source)
    model: Any = None
    with pytest.raises(PromptError, match="the prompt is not UTF-8 text") as caught:
        prompt_of("-", model, system=None, raw=True)
    assert "\n" not in str(caught.value)
