"""`truedraft train` as a person uses it: from answers to a head in a folder, and what it says to mistakes."""

import json
import os
import subprocess
import sys

import pytest

from tests.folders import folder
from tests.training.helpers import answers, write
from truedraft.cli import main
from truedraft.nets.eagle3 import Eagle3Net
from truedraft.nets.medusa import MedusaNet


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def data(tmp_path):
    rows = answers(60, prompt=6, answer=20)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "shard-00000.jsonl", rows[:40])
    write(tmp_path / "data" / "shard-00001.jsonl", rows[40:])
    return tmp_path / "data"


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def train(capsys, kind, model, data, *arguments, out="run"):
    usual = ["--model", model, "--data", data, "--out", data.parent / out, "--vocabulary", 32, "--batch", 100]
    taps = ["--tap", 0, "--tap", 1, "--tap", 2]
    return run(capsys, "train", kind, *usual, *taps, *arguments)


def test_from_answers_to_a_head(capsys, model, data):
    code, out, err = train(capsys, "eagle3", model, data, "--steps", 4, "--examine-every", 2)
    assert code == 0, err
    assert "32 of 260 tokens" in out and "step 4: loss" in out and "tokens per pass" in out
    net = Eagle3Net.load(data.parent / "run" / "last")
    assert len(net.vocabulary) == 32 and net.config.taps == (0, 1, 2)
    notes = json.loads((data.parent / "run" / "last" / "config.json").read_text())["truedraft"]
    assert notes["steps"] == 4 and notes["loss"] == "cross-entropy" and notes["training_tokens"] > 0
    code, out, _ = train(
        capsys, "eagle3", model, data, "--steps", 4, "--init-from", data.parent / "run/last", out="more"
    )
    assert code == 0


def test_a_run_is_not_overwritten_and_goes_on_when_told(capsys, model, data):
    assert train(capsys, "medusa", model, data, "--steps", 2, "--unroll", 2)[0] == 0
    code, _, err = train(capsys, "medusa", model, data, "--steps", 2, "--unroll", 2)
    assert code == 2 and "--resume" in err
    code, out, _ = train(capsys, "medusa", model, data, "--steps", 2, "--unroll", 2, "--resume")
    assert code == 0 and "resumed at step 2" in out
    assert MedusaNet.load(data.parent / "run" / "last").config.heads == 2
    code, _, err = train(capsys, "medusa", model, data, "--steps", 3, "--unroll", 2, "--resume")
    assert code == 2 and "resume with its settings" in err


def test_answers_of_another_model_are_not_learned(capsys, model, data, tmp_path):
    """Of another tokenizer as well as of other weights in the same sizes, before any features are computed."""
    path, answered = tmp_path / "prompts.jsonl", tmp_path / "answered"
    path.write_text("".join(json.dumps({"prompt": "ab" * (place % 9 + 1)}) + "\n" for place in range(40)))
    words = ["data", path, "--out", answered, "--model", model, "-n", 6]
    assert run(capsys, *words)[0] == 0
    usual = ["--steps", 1, "--unroll", 2, "--dry-run"]
    assert train(capsys, "medusa", model, answered, *usual)[0] == 0
    for name, other, message in (
        ("tuned", {"seed": 5}, "other weights"),
        ("swapped", {"swapped": True}, "and the model is"),
    ):
        code, _, err = train(capsys, "medusa", folder(tmp_path / name, **other), answered, *usual)
        assert code == 2 and message in err and "truedraft data" in err and err.count("\n") == 1


def test_answers_are_not_added_to_those_of_a_model_that_was_trained_on(capsys, data, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "ab"}\n')
    words = ["data", path, "--out", tmp_path / "answered", "--model", folder(tmp_path / "mine"), "-n", 6]
    assert run(capsys, *words)[0] == 0 and run(capsys, *words)[0] == 0
    folder(tmp_path / "mine", seed=5)
    code, _, err = run(capsys, *words)
    assert code == 2 and "with weights" in err and err.count("\n") == 1


def test_where_features_go_is_looked_at_before_the_model_is_loaded(capsys, model, data):
    (data / "features").write_text("a file")
    code, _, err = train(capsys, "medusa", data / "no-model", data, "--steps", 1, "--unroll", 2)
    assert code == 2 and "features is" in err and err.count("\n") == 1
    (data / "features").unlink()
    code, _, err = train(capsys, "medusa", model, data.parent / "mistyped", "--steps", 1)
    assert code == 2 and "has no answers" in err and not (data.parent / "mistyped").exists()


def test_a_head_that_does_not_fit_is_refused_in_a_dry_run(capsys, model, data):
    assert train(capsys, "medusa", model, data, "--steps", 1, "--unroll", 2)[0] == 0
    start = ["--init-from", data.parent / "run" / "last", "--dry-run"]
    code, _, err = train(capsys, "medusa", model, data, *start)
    assert code == 2 and "2 heads for 4 steps" in err and err.count("\n") == 1


def test_a_small_model_of_another_tokenizer_is_no_start(capsys, model, data, tmp_path):
    swapped = folder(tmp_path / "swapped", swapped=True)
    code, _, err = train(capsys, "model", model, data, "--init-from", swapped, "--dry-run")
    assert code == 2 and "token id" in err and err.count("\n") == 1


def test_a_dry_run_shows_what_is_learned_and_trains_nothing(capsys, model, data):
    code, out, _ = train(capsys, "eagle3", model, data, "--dry-run", "--answers-only", "--unroll", 2)
    assert code == 0 and not (data.parent / "run").exists()
    assert "supervised guesses" in out and "~ is not supervised" in out and "slot" in out


def test_the_processes_of_torchrun_share_a_run(model, data):

    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "truedraft",
    ]
    options = ["--model", model, "--data", data, "--out", data.parent / "run", "--vocabulary", 32, "--batch", 100]
    words = [*command, "train", "medusa", *options, "--steps", 2, "--examine-every", 1]
    result = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.count("step 2: loss") == 1 and MedusaNet.load(data.parent / "run" / "last")


def test_heads_and_target_together(capsys, model, data):
    code, out, err = train(capsys, "medusa", model, data, "--unroll", 2, "--steps", 2, "--joint", 2)
    assert code == 0, err
    assert "step 4" in out and "another target" in out
    code, out, err = run(
        capsys, "generate", "abc", "--model", data.parent / "run" / "target", "--raw", "-n", 8, "--json"
    )
    assert code == 0 and len(json.loads(out)["token_ids"]) == 8, err
    assert train(capsys, "eagle3", model, data, "--joint", 2)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "resume does nothing"),
        (["--warmup", 3], "warmup does nothing"),
        (["--accumulate", 2], "accumulate does nothing"),
        (["--checkpoint-every", 7], "checkpoint_every does nothing"),
        (["--weight-decay", 0.1], "weight_decay does nothing"),
        (["--loss", "tv"], "loss does nothing"),
        (["--decay", 0.5], "decay does nothing"),
        (["--noise", 0.1], "noise does nothing"),
        (["--prompts"], "prompts does nothing"),
        (["--target-rate", 0], "target_rate 0"),
        (["--target-rate", "inf"], "target_rate inf"),
    ],
)
def test_what_joint_training_cannot_do_is_refused(capsys, model, data, arguments, message):
    code, _, err = train(capsys, "medusa", model, data, "--unroll", 2, "--steps", 2, "--joint", 2, *arguments)
    assert code == 2 and message in err and not list((data.parent / "run").iterdir())


def test_joint_training_can_be_tried_dry_and_is_not_written_over(capsys, model, data):
    joint = ["--unroll", 2, "--steps", 1, "--joint", 1]
    code, out, _ = train(capsys, "medusa", model, data, *joint, "--dry-run")
    assert code == 0 and "supervised guesses" in out and not (data.parent / "run").exists()
    assert train(capsys, "medusa", model, data, *joint, "--dry-run", "--answers-only")[1] == out, "as it is in any case"
    assert train(capsys, "medusa", model, data, *joint)[0] == 0
    before = (data.parent / "run" / "target" / "model.safetensors").stat().st_mtime_ns
    code, _, err = train(capsys, "medusa", model, data, *joint)
    assert code == 2 and "holds a run already" in err
    assert (data.parent / "run" / "target" / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_a_single_row_is_enough_to_try_it(capsys, model, data, kind):
    code, out, err = train(capsys, kind, model, data, "--limit", 1, "--steps", 2, "--unroll", 2)
    assert code == 0, err
    assert " 0 supervised guesses" not in out


def test_features_of_another_model_of_the_same_shapes_are_not_taken(capsys, model, data, tmp_path):
    assert train(capsys, "medusa", model, data, "--steps", 1, "--unroll", 2)[0] == 0
    other = folder(tmp_path / "other", seed=5)
    code, _, err = train(capsys, "medusa", other, data, "--steps", 1, "--unroll", 2, out="more")
    assert code == 2 and "another kind" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "kl"], "reverse-kl"),
        (["--unroll", 0], "at least 1"),
        (["--longest", 6], "longest"),
        (["--init-from", "nowhere"], "nowhere"),
        (["--accumulate", 0], "accumulate is 0"),
        (["--examine-every", 0], "examine_every is 0"),
        (["--checkpoint-every", 0], "checkpoint_every is 0"),
        (["--steps", 0], "steps is 0"),
        (["--rate", -1], "rate is -1"),
        (["--threads", 0], "threads is 0"),
        (["--held-out", -1], "held_out is -1"),
        (["--vocabulary", -1], "vocabulary is -1"),
        (["--decay", "nan"], "decay is nan"),
        (["--noise", "inf"], "noise is inf"),
        (["--final", 2], "final is 2"),
        (["--loss", "inf*tv"], "reverse-kl"),
        (["--layers", "0-2"], "kind model"),
        (["--device", "gpu"], "device is 'gpu'"),
        (["--joint", 2], "kind medusa"),
    ],
)
def test_mistakes_are_one_line(capsys, model, data, arguments, message):
    code, _, err = train(capsys, "eagle3", model, data, *arguments)
    assert code == 2 and message in err and err.count("\n") == 1


def test_an_unknown_kind_lists_the_known_ones(capsys, model, data):
    code, _, err = train(capsys, "eagle4", model, data)
    assert code == 2 and "eagle3" in err
