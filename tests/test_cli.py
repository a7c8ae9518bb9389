"""The command line as a person uses it, on a tiny model in a folder: what it prints, and what it says to mistakes."""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
import torch

from tests.folders import folder
from truedraft.cli import app, main
from truedraft.drafters import DEFAULT
from truedraft.targets import cached


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("small"), seed=1, vocabulary=257, context=64)


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def generate(capsys, model, *arguments, prompt="abcabcabc"):
    code, out, err = run(capsys, "generate", prompt, "--model", model, "--json", "--max-new-tokens", 24, *arguments)
    assert code == 0, err
    return json.loads(out)


def test_version_and_help_are_there(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"truedraft {version('truedraft')}\n"
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("generate", "find-layers", "Find the layers", "Train a drafter"))
    assert main([]) == 2
    told = capsys.readouterr()
    assert "generate" in told.out + told.err and "truedraft: " not in told.err


@pytest.mark.parametrize("arguments", [("plan", "--alpha", "0.5", "--json"), ("plan", "--alpha", "0.5")])
def test_a_reader_that_leaves_is_no_mistake(arguments):
    """JSON that waits in a buffer, a table that rich writes: neither ends in an exit code or in words."""
    command = f"import sys; from truedraft.cli import main; sys.exit(main({[str(each) for each in arguments]!r}))"
    reader = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.close()"], stdin=subprocess.PIPE)
    reader.wait()
    done = subprocess.run([sys.executable, "-c", command], stdout=reader.stdin, stderr=subprocess.PIPE, text=True)
    reader.stdin.close()
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_one_line(capsys, monkeypatch):
    """Wherever it is noticed, also where nobody thought of it."""

    def full(*_, **__):
        raise OSError(28, "No space left on device", "/some/file")

    monkeypatch.setattr("truedraft.cli.plan._print", full)
    assert main(["plan", "--alpha", "0.5"]) == 2
    assert capsys.readouterr().err == "truedraft: No space left on device (/some/file)\n"


@pytest.mark.parametrize("command", app().registered_commands, ids=lambda command: command.name)
def test_what_a_command_offers_is_what_it_takes(command):
    """Options and help are read from the command's file without importing it; they must be those of what then runs."""
    offered = command.callback
    home = {"pull": "models"}.get(command.name, offered.__name__)
    runs = getattr(import_module(f"truedraft.cli.{home}"), offered.__name__)
    assert inspect.signature(offered) == inspect.signature(runs)
    assert inspect.getdoc(offered) == inspect.getdoc(runs)


def test_ctrl_c_is_said_whenever_it_comes(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("truedraft.cli.models.models", interrupted)  # in the middle of a command
    assert main(["models"]) == 130 and capsys.readouterr().err == "truedraft: interrupted\n"
    monkeypatch.setattr("truedraft.cli.import_module", interrupted)  # while it is imported
    assert main(["models"]) == 130 and capsys.readouterr().err == "truedraft: interrupted\n"


def test_json_holds_every_figure_and_nothing_else_is_printed(capsys, model):
    report = generate(capsys, model, "--drafter", "ngram", "--compare")
    assert report["identical"] is True and report["speedup"] > 0 and report["plain_tokens_per_second"] > 0
    assert report["rounds"] == report["target_passes"] > 0
    assert report["tokens_per_pass"] == pytest.approx(len(report["token_ids"]) / report["rounds"])
    assert report["accepted"] <= report["drafted"] and report["finish_reason"] in ("eos", "length")
    assert isinstance(report["acceptance_by_position"], list) and report["seconds"] > 0


@pytest.mark.parametrize("drafter", [["none"], ["ngram"], ["ngram", "--tree", "8"], ["ngram", "--tree", "2x2x1"]])
def test_every_drafter_writes_the_same_greedy_text(capsys, model, drafter):
    plain = generate(capsys, model, "--drafter", "none")
    assert generate(capsys, model, "--drafter", *drafter)["token_ids"] == plain["token_ids"]


@pytest.mark.parametrize("drafter", ["suffix", "recycle", "merge", "cascade"])
def test_free_drafters_write_the_same_text_shared_or_not(capsys, model, drafter):
    plain = generate(capsys, model, "--drafter", "none")
    for arguments in ([], ["--share"]):
        assert generate(capsys, model, "--drafter", drafter, *arguments)["token_ids"] == plain["token_ids"]


def test_what_was_learned_is_kept_in_a_file(capsys, model, tmp_path):
    memory = tmp_path / "learned.npz"
    first, second = (generate(capsys, model, "--drafter", "recycle", "--memory", memory) for _ in range(2))
    assert memory.is_file() and first["token_ids"] == second["token_ids"]
    assert second["tokens_per_pass"] > first["tokens_per_pass"]


@pytest.mark.parametrize("layers", ["0-1", "0,2"])
def test_some_of_the_layers_draft(capsys, model, layers):
    plain = generate(capsys, model, "--drafter", "none")
    fast = generate(capsys, model, "--drafter", "layer-skip", "--layers", layers)
    assert fast["token_ids"] == plain["token_ids"] and fast["drafted"] > 0


def test_layers_are_found_and_used_from_a_file(capsys, model, tmp_path):
    found = tmp_path / "layers.json"
    arguments = ["--model", model, "--count", 2, "--tokens", 12, "--out", found, "--json"]
    code, out, err = run(capsys, "find-layers", *arguments)
    report = json.loads(out)
    assert code == (0 if report["sets"][0]["speedup"] > 1 else 1), err
    assert json.loads(found.read_text()) == {report["owner"]: report["sets"][0]}
    assert generate(capsys, model, "--drafter", "layer-skip", "--layers", found)["drafted"] > 0
    assert run(capsys, "find-layers", *arguments[:-1])[0] in (0, 1)


@pytest.mark.parametrize("shape", [["-k", "3"], ["--tree", "2x2"], ["--tree", "6"]])
def test_a_small_model_drafts(capsys, model, small, shape):
    plain = generate(capsys, model, "--drafter", "none")
    fast = generate(capsys, model, "--drafter", "model", "--draft-model", small, *shape)
    assert fast["token_ids"] == plain["token_ids"] and fast["drafted"] > 0
    itself = generate(capsys, model, "--drafter", "model", "--draft-model", model, "-k", "3")
    assert itself["token_ids"] == plain["token_ids"] and itself["tokens_per_pass"] > 3


def test_a_seed_repeats_a_sampled_text(capsys, model):
    options = ["--temperature", "1.2", "--top-p", "0.9", "--min-p", "0.01", "--top-k", "50"]
    first, again, other = (generate(capsys, model, *options, "--seed", seed) for seed in (5, 5, 6))
    assert first["token_ids"] == again["token_ids"] != other["token_ids"]


def test_a_trace_is_a_header_and_a_line_a_round(capsys, model, tmp_path):
    report = generate(capsys, model, "--trace", tmp_path / "rounds.jsonl", "--temperature", "1", "--seed", "1")
    header, *rounds = map(json.loads, (tmp_path / "rounds.jsonl").read_text().splitlines())
    assert header["trace"] == 1 and header["drafter"] == DEFAULT and header["prompt_tokens"]
    assert len(rounds) == report["rounds"]
    assert sum(record["emitted"] for record in rounds) == len(report["token_ids"])
    for record in rounds:
        assert len(record["tokens"]) == len(record["parents"]) == len(record["pieces"]) == len(record["p"])
        assert len(record["verdict"]) == len(record["path"]) + 1 and record["seconds"]["target"] > 0


def test_rounds_are_shown_in_colour_and_the_text_is_whole(capsys, model):
    report = generate(capsys, model)
    code, out, _ = run(capsys, "generate", "abcabcabc", "--model", model, "--max-new-tokens", 24, "--show-rounds")
    assert code == 0 and "accepted" in out and "tokens per pass" in out
    assert "".join(report["text"].split())[:10] in "".join(out.split())


def test_a_prompt_comes_from_standard_input(capsys, model, monkeypatch):
    monkeypatch.setattr("sys.stdin", type("Input", (), {"read": staticmethod(lambda: "abcabcabc")}))
    assert generate(capsys, model, prompt="-")["token_ids"] == generate(capsys, model)["token_ids"]


def test_raw_prompts_skip_the_template(capsys, model):
    assert generate(capsys, model, "--raw")["prompt_tokens"] == 9
    assert generate(capsys, model)["prompt_tokens"] == len("[user]abcabcabc[assistant]")
    assert generate(capsys, model, "--system", "xy")["prompt_tokens"] == len("[system]xy[user]abcabcabc[assistant]")


def test_chat_answers_resets_and_leaves(capsys, model, monkeypatch):
    lines = iter(["hello", "", "again", "/reset", "hello", "/exit"])
    monkeypatch.setattr("rich.console.Console.input", lambda self, prompt: next(lines))
    code, out, err = run(capsys, "chat", "--model", model, "--max-new-tokens", 5)
    assert code == 0, err
    assert out.count("tokens per pass") == 3


def test_chat_says_when_the_context_is_full_and_goes_on(capsys, model, monkeypatch):
    lines = iter(["x" * 200, "hello"])

    def read(self, prompt):
        for line in lines:
            return line
        raise EOFError

    monkeypatch.setattr("rich.console.Console.input", read)
    code, out, _ = run(capsys, "chat", "--model", model, "--max-new-tokens", 5)
    assert code == 0 and "/reset starts over" in out and out.count("tokens per pass") == 1


def test_an_interrupted_text_is_kept_with_its_figures(capsys, model, monkeypatch):
    calls = []
    extend = cached.CachedModel.extend

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return extend(self, *args, **kwargs)

    monkeypatch.setattr(cached.CachedModel, "extend", interrupted)
    code, out, _ = run(
        capsys, "generate", "abcabcabc", "--model", model, "--json", "--max-new-tokens", 50, "-d", "none"
    )
    report = json.loads(out)
    assert code == 130 and report["finish_reason"] == "interrupted" and len(report["token_ids"]) == 5


MISTAKES = {
    "unknown model": (["--model", "no-such-model"], "no-such-model"),
    "unknown drafter": (["--drafter", "oracle"], "oracle"),
    "unknown rule": (["--rule", "coin-toss"], "coin-toss"),
    "unknown option": (["--frobnicate"], "frobnicate"),
    "not a number": (["--temperature", "hot"], "--temperature"),
    "negative temperature": (["--temperature", "-1"], "temperature"),
    "top-p of zero": (["--top-p", "0"], "top_p"),
    "no tokens": (["--max-new-tokens", "0"], "max_new_tokens"),
    "tree budget of zero": (["--tree", "0"], "tree"),
    "tree without end": (["--tree", "999999"], "at most 1,024"),
    "tree too wide": (["--tree", "99x99"], "at most 1,024"),
    "memory where nothing can be": (["--memory", "/proc/x.npz"], "memory"),
    "memory in a folder's place": (["--memory", "/tmp"], "a folder"),
    "tree of words": (["--tree", "oak"], "oak"),
    "negative draft": (["--draft-tokens", "-2"], "draft_tokens"),
    "no threads": (["--threads", "0"], "threads"),
    "model drafter alone": (["--drafter", "model"], "draft_model"),
    "draft model unused": (["--drafter", "ngram", "--draft-model", "x"], "draft_model"),
    "memory of no drafter's": (["--drafter", "ngram", "--memory", "x.npz"], "memory"),
    "translating nothing": (["--translate", "text"], "draft_model"),
    "translating what": (["-d", "model", "--draft-model", "x", "--translate", "words"], "words"),
    "layers unknown": (["--drafter", "layer-skip"], "find-layers"),
    "layers of words": (["--drafter", "layer-skip", "--layers", "all"], "layers"),
    "too many layers": (["--drafter", "layer-skip", "--layers", "0-99"], "layers"),
    "unknown dtype": (["--dtype", "float12"], "float12"),
    "unknown weights": (["--weights", "int3"], "int3"),
    "weights in another attention": (["--weights", "int4", "--attention", "sdpa"], "int4"),
    "unknown device": (["--device", "abacus"], "abacus"),
    "unknown attention": (["--attention", "divided"], "divided"),
    "negative seed": (["--seed", "-1"], "seed"),
    "empty stop": (["--stop", ""], "stop"),
    "trace into nowhere": (["--trace", "/no/such/folder/x.jsonl"], "/no/such/folder"),
    "too long a prompt": (["--raw", "--system", "x" * 300], "context"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_line_and_exit_code_two(capsys, model, mistake):
    arguments, named = MISTAKES[mistake]
    base = [] if "--model" in arguments else ["--model", model]
    code, out, err = run(capsys, "generate", "abc", *base, *arguments)
    assert code == 2 and out == ""
    assert err.strip().count("\n") == 0 and named in err and "Traceback" not in err


def test_an_empty_prompt_is_refused(capsys, model):
    assert run(capsys, "generate", "", "--model", model)[0] == 2


def test_a_drafter_of_another_vocabulary_is_refused_by_its_first_differing_id(capsys, model, tmp_path):
    other = folder(tmp_path, swapped=True)
    code, _, err = run(capsys, "generate", "abc", "--model", model, "--drafter", "model", "--draft-model", other)
    assert code == 2 and "token id 40" in err


@pytest.mark.parametrize("what", ["tokens", "text"])
def test_a_drafter_of_another_vocabulary_drafts_if_its_ids_are_translated(capsys, model, tmp_path, what):
    other = folder(tmp_path, swapped=True)
    plain = generate(capsys, model, "--drafter", "none")
    fast = generate(capsys, model, "--drafter", "model", "--draft-model", other, "--translate", what)
    assert fast["token_ids"] == plain["token_ids"] and fast["drafted"] > 0


def test_a_damaged_model_is_refused(capsys, tmp_path):
    path = folder(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    code, _, err = run(capsys, "generate", "abc", "--model", path)
    assert code == 2 and err.strip().count("\n") == 0 and "model.safetensors" in err


def test_too_little_memory_is_said_before_anything_is_written(capsys, model, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000})())
    code, out, err = run(capsys, "generate", "abc", "--model", model)
    assert code == 2 and out == "" and "GiB" in err


def test_a_model_without_a_template_takes_raw_text_and_refuses_to_chat(capsys, tmp_path):
    path = folder(tmp_path, template=None)
    assert generate(capsys, path)["prompt_tokens"] == 9
    assert run(capsys, "chat", "--model", path)[0] == 2


def test_low_precision_runs(capsys, model):
    assert generate(capsys, model, "--dtype", "bfloat16")["token_ids"]
    assert torch.get_default_dtype() is torch.float32


OUTPUTS = {
    "experiment": ["copy-vs-free", "--out", "{}"],
    "experiment page": ["copy-vs-free", "--out", "{here}/fine", "--page", "{}/page.md"],
    "find-layers": ["--out", "{}"],
    "fill-memory": ["answers.jsonl", "--out", "{}"],
    "profile": ["{}"],
    "certify": ["--html", "{}"],
    "data": ["prompts.jsonl", "--out", "{}"],
    "train": ["medusa", "--data", "answers", "--out", "{}"],
    "bench": ["--out", "{}", "--tasks", "copy", "--prompts", "1"],
    "generate": ["hi", "--trace", "{}"],
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_place_where_nothing_can_be_written_is_refused_before_anything_is_computed(capsys, model, command, tmp_path):
    """A file stands where a folder would have to be."""
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "results"
    arguments = [part.replace("{here}", str(tmp_path)).replace("{}", str(place)) for part in OUTPUTS[command]]
    code, _, err = run(capsys, command.split(" ")[0], *arguments, "--model", model)
    assert code == 2 and err.strip().count("\n") == 0 and "cannot write there" in err and str(place) in err
