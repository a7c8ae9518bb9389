"""`truedraft bench` as a person uses it, on a tiny model: grids, files, resuming, transformers beside it, mistakes."""

import json
import sys

import pytest

from tests.bench.test_endpoint import engine  # noqa: F401
from tests.folders import folder
from truedraft.bench.against import TransformersArm
from truedraft.bench.arms import Order, write
from truedraft.bench.grid import PLAIN, Setting
from truedraft.bench.runs import _together
from truedraft.build import load
from truedraft.cli import main
from truedraft.cli.measuring import Fleet, extras_of
from truedraft.drafters.ngram import NgramDrafter
from truedraft.errors import OutOfMemoryError, ParameterError
from truedraft.planning.profile import PassTime, Profile


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"), context=256)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    file = tmp_path_factory.mktemp("task") / "mine.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"abc{n}abc{n}abc"}) + "\n" for n in range(4)))
    return str(file)


def bench(capsys, path, task, out, *arguments):
    base = ["--model", path, "--tasks", task, "--out", str(out), "--tokens", "12", "--repeats", "1", "--prompts", "2"]
    code = main(["bench", *base, "--json", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else captured.err


def test_a_grid_is_measured_and_written(capsys, path, task, tmp_path):
    Profile((PassTime(16, 1, 1, 1.0), PassTime(16, 1, 5, 1.1))).save(tmp_path / "p.json")
    grid = ["-d", "ngram,recycle", "-k", "2,4", "--batches", "1,2", "--temperatures", "0,0.6"]
    code, report = bench(capsys, path, task, tmp_path / "out", *grid, "--profile", tmp_path / "p.json")
    assert code == 0 and len(report["cells"]) == 5 * 4 and len(report["forecasts"]) == 4 * 4
    greedy = [cell for cell in report["cells"] if cell["temperature"] == 0]
    assert all(cell["identical"] is True for cell in greedy) and report["mismatches"] == []
    for cell in report["cells"]:
        assert cell["tokens_per_second"]["median"] > 0 and sum(cell["parts"].values()) == pytest.approx(1)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "journal.jsonl",
        "report.json",
        "report.csv",
        "report.html",
    }
    before = (tmp_path / "out" / "journal.jsonl").read_text()
    again = bench(capsys, path, task, tmp_path / "out", *grid, "--profile", tmp_path / "p.json")
    assert again[0] == 0 and (tmp_path / "out" / "journal.jsonl").read_text() == before, "nothing is run twice"


def test_results_of_something_else_are_not_taken_for_these(capsys, path, task, tmp_path):
    """Under the same names: prompts that were edited, weights of another kind."""
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"prompt": "abcabc"}\n{"prompt": "abab"}\n')
    assert bench(capsys, path, str(mine), tmp_path / "out", "-d", "ngram")[0] == 0
    code, said = bench(capsys, path, str(mine), tmp_path / "out", "-d", "ngram", "--dtype", "bfloat16")
    assert code == 2 and "other settings" in said
    mine.write_text('{"prompt": "abcabc"}\n{"prompt": "abba"}\n')
    code, said = bench(capsys, path, str(mine), tmp_path / "out", "-d", "ngram")
    assert code == 2 and "other settings" in said


def test_mistakes_are_told_before_anything_is_run(capsys, path, task, tmp_path, monkeypatch):
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"prompt": "abc" * 200}) + "\n")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for arguments, word in (
        ([str(long)], "--prompt-tokens"),
        ([task, "--temperatures", "0,-1"], "temperatures has -1"),
        ([task, "--plots"], "truedraft[plots]"),
    ):
        code, said = bench(capsys, path, arguments[0], tmp_path / "out", "-d", "ngram", *arguments[1:])
        assert code == 2 and word in said and said.count("\n") == 1
    assert not list((tmp_path / "out").iterdir())


def test_a_plan_heeds_what_drafts_cannot_shorten(capsys):
    assert main(["plan", "--alpha", "0.7", "--overhead", "0.95", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"] == "overhead-too-large"
    assert main(["plan", "--alpha", "0.7", "--cost", "inf"]) == 2 and "finite" in capsys.readouterr().err


def test_a_plan_heeds_all_that_it_is_given(capsys, path, task, tmp_path):
    Profile((PassTime(16, 1, 1, 1.0), PassTime(16, 1, 5, 1.1))).save(tmp_path / "p.json")
    assert bench(capsys, path, task, tmp_path / "out", "-d", "ngram")[0] == 0
    measured = ["plan", "--profile", str(tmp_path / "p.json"), "--bench", str(tmp_path / "out")]
    for given in (["--alpha", "0.5"], ["--cost", "0.2"], ["--batch", "4"], ["--overhead", "0.1"], ["-k", "2"]):
        assert main([*measured, *given]) == 2 and "not heeded" in capsys.readouterr().err
    for given in (["--task", "copy"], ["--temperature", "0.6"]):
        assert main(["plan", "--alpha", "0.5", *given]) == 2 and "--bench" in capsys.readouterr().err


def test_two_tasks_of_one_name_are_refused(capsys, path, task, tmp_path):
    other = tmp_path / "mine.jsonl"
    other.write_text('{"prompt": "abab"}\n')
    code, said = bench(capsys, path, f"{task},{other}", tmp_path / "out", "-d", "ngram")
    assert code == 2 and "two tasks are named 'mine'" in said


def test_transformers_and_an_endpoint_run_beside_it(capsys, path, task, tmp_path, engine):  # noqa: F811
    others = ["--against", "transformers", "--endpoint", engine.address + "/"]
    code, report = bench(capsys, path, task, tmp_path, "-d", "ngram", "--batches", "1,2", *others)
    assert code == 0
    found = {(cell["batch"], cell["arm"]): cell for cell in report["cells"]}
    assert {arm for batch, arm in found if batch == 1} == {
        "none",
        "ngram",
        "transformers",
        "transformers prompt lookup",
        "endpoint served",
    }
    assert (2, "transformers") in found and (2, "transformers prompt lookup") not in found
    assert found[2, "transformers"]["identical"] is True, "padded and unpadded texts are the same"
    assert found[1, "transformers prompt lookup"]["identical"] is True
    assert found[1, "endpoint served"]["acceptance_by_position"] == [0.8, 0.625]


def test_an_assistant_with_another_tokenizer_is_one_line(capsys, path, task, tmp_path):
    other = folder(tmp_path / "other", vocabulary=300)
    theirs = ["--against", "transformers", "--draft-model", other]
    code, said = bench(capsys, path, task, tmp_path / "out", "-d", "ngram", *theirs)
    error = said.partition("truedraft: transformers assisted cannot write this")[2]  # after the bar
    assert code == 2 and "different tokenizers" in error and "draft_model" in error
    assert error.strip().count("\n") == 0


def test_what_transformers_refuses_is_told_in_one_line():
    class Model:
        device = "cpu"

        def generate(self, *arguments, **options):
            raise ValueError("this model\n  cannot assist")

    arm = TransformersArm("transformers assisted", Model())
    with pytest.raises(ParameterError, match=r"transformers assisted .*this model cannot assist") as raised:
        write(arm, Order(((5, 6),), (1,), tokens=3))
    assert "\n" not in str(raised.value)


def test_a_text_that_differs_fails_the_run(capsys, path, task, tmp_path, monkeypatch):
    calls = []
    inner = NgramDrafter.observe

    def observe(self, sessions, verdicts, scores):
        calls.append(1)
        sessions[0].tokens[-1] ^= 1  # a drafter that spoils what was written
        return inner(self, sessions, verdicts, scores)

    monkeypatch.setattr(NgramDrafter, "observe", observe)
    code, report = bench(capsys, path, task, tmp_path, "-d", "ngram")
    assert code == 1 and calls and "ngram differs from plain decoding in mine, batch 1" in report["mismatches"][0]


def test_tables_and_notes_are_printed(capsys, path, task, tmp_path):
    base = [
        "--model",
        path,
        "--tasks",
        task,
        "--out",
        str(tmp_path),
        "--tokens",
        "8",
        "--repeats",
        "1",
        "--prompts",
        "2",
    ]
    assert main(["bench", *base, "--batches", "4", "--fixed-length"]) == 0
    printed = capsys.readouterr().out
    out = " ".join(printed.split())
    assert "speedup" in out and "report.html" in "".join(printed.split())  # a long path is wrapped
    assert "2 prompts and is run at batch 4" in out and "past their ends" in out and "one task only" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--prompts", "0"], "prompts"),
        (["--tokens", "0"], "tokens"),
        (["--prompt-tokens", "0"], "prompt_tokens is 0"),
        (["--prompt-tokens", "-1"], "prompt_tokens is -1"),
        (["--batches", "0"], "batches"),
        (["--batches", ""], "batches"),
        (["--batches", "1,2,1"], "batches has 1 twice"),
        (["--temperatures", "warm"], "temperatures"),
        (["--temperatures", ""], "temperatures is ''"),
        (["--temperatures", "0,0.0"], "temperatures has 0.0 twice"),
        (["-d", "oracle"], "oracle"),
        (["-d", ""], "at least one drafter"),
        (["--rules", "coin-toss"], "coin-toss"),
        (["--rules", ""], "rules is empty"),
        (["--policies", ""], "policies is empty"),
        (["--policies", " , "], "policies is empty"),
        (["--tasks", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--tasks", ","], "tasks is empty"),
        (["--tasks", "copy,copy"], "tasks has 'copy' twice"),
        (["--against", "nobody"], "nobody"),
        (["--endpoint", "http://127.0.0.1:9"], "endpoint"),
        (["--profile", "nowhere.json"], "nowhere.json"),
        (["--trees", "oak"], "oak"),
        (["-d", "model"], "draft_model"),
    ],
)
def test_mistakes_are_one_line(capsys, path, task, tmp_path, arguments, named):
    base = ["--model", path, "--out", str(tmp_path), *([] if "--tasks" in arguments else ["--tasks", task])]
    assert main(["bench", *base, *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and error.strip().count("\n") == 0


def test_policies_are_compared_too(capsys, path, task, tmp_path):
    rows = "[[1, 1, 3], [2, 9, 0]]"
    grid = ["-d", "ngram", "-k", "4", "--policies", "fixed,auto", "--schedule", rows, "--batches", "1,2"]
    code, report = bench(capsys, path, task, tmp_path, *grid)
    assert code == 0 and all(cell["identical"] for cell in report["cells"])
    arms = {cell["arm"] for cell in report["cells"]}
    assert arms == {"none", "ngram k=4", "ngram k=4 policy auto", f"ngram k=4 policy {rows}"}
    drafted = {cell["batch"]: cell["drafted_per_round"] for cell in report["cells"] if cell["arm"].endswith(rows)}
    assert drafted[1] > 0 and drafted[2] == 0


def test_generate_takes_a_policy(capsys, path, tmp_path):
    texts = []
    for policy in ("fixed", "auto", "[[1, 9, 2]]"):
        assert main(["generate", "abcabcabc", "--model", path, "--policy", policy, "--json", "-n", "20"]) == 0
        texts.append(json.loads(capsys.readouterr().out)["token_ids"])
    assert texts[0] == texts[1] == texts[2]
    for mistake in (
        ["--policy", "mood"],
        ["--policy", "[[2, 3]]"],
        ["--policy", "auto", "--profile", str(tmp_path / "x")],
    ):
        assert main(["generate", "abc", "--model", path, *mistake]) == 2


def test_every_arm_reads_its_prompts_itself(path, monkeypatch):
    plain = load(path, drafter="none")
    target = plain.decoder.target.model
    read = []
    inner = target.model.get_decoder().forward

    def forward(*args, **options):
        read.append(options["input_ids"].numel())
        return inner(*args, **options)

    monkeypatch.setattr(target.model.get_decoder(), "forward", forward)
    fleet = Fleet(plain, {})
    order = Order((tuple(range(40, 80)),), (0,), tokens=2)
    for setting in (PLAIN, Setting("ngram", 4)):
        read.clear()
        write(fleet.arm(setting), order)
        assert sum(read) >= 40


def test_arms_share_weights_and_nothing_else(path):
    """Lengths of a small model, which is read once; all write at the same time."""
    plain = load(path, drafter="none")
    fleet = Fleet(plain, extras_of(["model"], draft_model=path))
    arms = [fleet.arm(setting) for setting in (PLAIN, Setting("model", 2), Setting("model", 4))]
    targets = [arm.model.decoder.target.model for arm in arms]
    small = [arm.model.decoder.drafter._model for arm in arms[1:]]
    assert len({id(target.model) for target in targets}) == len({id(each.model) for each in small}) == 1
    order = Order((tuple(range(40, 80)),), (0,), tokens=12, fixed_length=True)
    alone = [write(arm, order) for arm in arms]
    together = _together(arms, order)
    assert [together[arm.name].ids for arm in arms] == [sample.ids for sample in alone]
    assert [together[arm.name].counts for arm in arms] == [sample.counts for sample in alone]
    assert all(cache.held == 0 for cache in (*targets, *small)), "nothing is held of what is over"


def test_room_that_others_may_grow_into_is_not_given_twice(path):
    plain = load(path, drafter="none")
    fleet = Fleet(plain, {})
    first, second = (fleet.arm(setting).model.decoder.target for setting in (PLAIN, Setting("ngram", 4)))
    before = fleet._left(plain.decoder.target.model.device)
    first.require(4, 4096)
    held = first.model.held
    assert held > 0 and fleet._left(plain.decoder.target.model.device) <= before - held // 2
    with pytest.raises(OutOfMemoryError):
        second.require(2 * before // held * 4, 4096)


@pytest.mark.parametrize("drafter", ["suffix", "recycle", "merge"])
def test_trees_grow_while_the_profiled_price_is_paid(path, tmp_path, drafter):
    drafted = []
    for price in (0.0, 0.8):
        Profile((PassTime(8, 1, 1, 1.0), PassTime(8, 1, 9, 1.0 + 8 * price))).save(tmp_path / "p.json")
        model = load(path, drafter=drafter, profile=tmp_path / "p.json")
        drafted.append(model.generate("abcabcabcabc", max_new_tokens=24).statistics.drafted)
    assert drafted[0] > 2 * drafted[1]


def test_categories_of_one_file_are_tasks_of_their_own(capsys, path, tmp_path):
    rows = [{"turns": [f"{category} abcabc", "more"], "category": category} for category in ("qa", "writing", "stem")]
    file = tmp_path / "spec.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, report = bench(capsys, path, f"{file}:qa,{file}:mt_bench", tmp_path / "out", "-d", "ngram")
    assert code == 0 and {cell["task"]: len(cell["counts"]) for cell in report["cells"]} == {
        "spec:qa": 1,
        "spec:mt_bench": 2,
    }
    assert bench(capsys, path, f"{file}:poems", tmp_path / "other")[0] == 2
