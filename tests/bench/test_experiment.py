"""The experiment of record on a tiny model: one command, every cell, a page whose sentences are figures of the run."""

import re

import pytest

from tests.bench.test_report import SLOPE, grid
from tests.bench.test_runs import lines_of
from tests.bench.toys import Clock
from tests.folders import folder
from truedraft.bench.findings import break_even, findings
from truedraft.bench.grid import Load
from truedraft.bench.report import Report, read_cells
from truedraft.bench.tasks import read_prompts
from truedraft.build import load
from truedraft.cli import main
from truedraft.cli.experiment import _arms, _told
from truedraft.errors import CorruptModelError, UnknownModelError
from truedraft.planning.profile import PassTime, Profile


def test_the_gain_ends_where_the_line_falls_through_one():
    assert break_even([(1.0, 2.0), (4.0, 1.5), (16.0, 0.5)]) == pytest.approx(8.0)
    assert break_even([(1.0, 2.0), (4.0, 1.5)]) is None
    assert break_even([(1.0, 0.9), (4.0, 0.5)]) == 1.0


def test_the_full_experiment_has_two_hundred_prompts_a_load():
    for name in ("copy", "free"):
        rows = read_prompts(name)
        assert len({row.text for row in rows}) == len({row.id for row in rows}) == 200


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    loads = [Load("toy", batch, temperature) for batch in (1, 4) for temperature in (0.0, 0.6)]
    lines = lines_of(grid(Clock()), tmp_path_factory.mktemp("run"), loads=loads)
    points = tuple(
        PassTime(8, batch, width, 1 + SLOPE * (batch * width - 1)) for batch in (1, 4) for width in (1, 4, 8)
    )
    machine = {"bandwidth": 1e9, "peak": 16e9, "device": "toy", "threads": 1}
    model = {"name": "toy", "parameters": 1e6, "bytes_per_parameter": 4, "cache_bytes": 0.0, "attention_flops": 0.0}
    return Report({"model": "toy", "prompts": 4, "tokens": 20}, lines, [], Profile(points, (), machine, model))


def test_the_page_states_the_run(report):
    page = findings(report, title="T", command="run it", pictures={"a": "pictures/a.png"}, notes=["scaled down"])
    cells = {(cell.arm, cell.batch, cell.temperature): cell for cell in report.cells}
    own = cells["script k=4", 1, 0.0]
    assert f"script k=4, greedy at batch 1 – toy: {own.total.acceptance_length:.2f} tokens a round" in page
    assert "in 8 of 8 cells" in page and "scaled down" in page and "![a](pictures/a.png)" in page
    assert page.count("| toy |") == 16 and "    run it" in page
    ends = re.findall(r"\| toy, greedy \| script k=4 \| (.*) \| (.*) \| (.*) \| (.*) \|", page)
    assert [row[:2] for row in ends] == [("beyond 4", "beyond 4")]
    # The roofline's ridge is at 32 tokens in a pass: batch * width = 32 * tokens.
    expected = 32 * own.total.acceptance_length / (1 + own.total.drafted_per_round)
    assert int(ends[0][2]) == pytest.approx(expected, abs=1)


def test_a_difference_is_on_the_page(report):
    lines = [dict(line) for line in report.lines]
    for line in lines:
        if line["arm"] == "script k=2" and line["temperature"] == 0:
            line["differs"] = [0, 3]
    page = findings(Report(report.about, lines, [], report.profile), title="T", command="", pictures={}, notes=[])
    assert "in 6 of 8 cells" in page and "**no**" in page


def test_the_command_runs_it_all(tmp_path, capsys):
    path = folder(tmp_path / "model", context=512)
    small = ["--prompts", "2", "--prompt-tokens", "40", "-n", "10", "--batches", "1,2", "--out", str(tmp_path / "out")]
    page = tmp_path / "docs" / "page.md"
    assert main(["experiment", "copy-vs-free", "-m", path, *small, "--page", str(page)]) == 0
    cells, _ = read_cells(tmp_path / "out")
    assert {(cell.task, cell.batch, cell.temperature, cell.arm) for cell in cells} == {
        (task, batch, temperature, arm)
        for task in ("copy", "free")
        for batch in (1, 2)
        for temperature in (0.0, 0.6)
        for arm in ("none", "ngram k=5")
    }
    text = page.read_text()
    assert "--batches 1,2 --temperatures 0,0.6 --repeats 1\n" in text
    assert "without eagle3" in text and "scaled down: 2 prompts a load, 200 in the full experiment" in text
    assert all((page.parent / picture).exists() for picture in re.findall(r"\]\((pictures/[^)]+)\)", text))
    assert _told(copy="my file.jsonl", free="", head=None) == " --copy 'my file.jsonl'"
    capsys.readouterr()
    assert main(["experiment", "copy-vs-free", "-m", path, *small]) == 0, "resumed, with the profile of before"
    assert main(["experiment", "tea-tasting", "-m", path]) == 2
    assert "tea-tasting" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompts", "0"], "prompts is 0"),
        (["--prompts", "-1"], "prompts is -1"),
        (["--repeats", "0"], "repeats is 0"),
        (["-n", "0"], "tokens is 0"),
        (["--prompt-tokens", "0"], "prompt_tokens is 0"),
        (["--prompt-tokens", "-3"], "prompt_tokens is -3"),
        (["--batches", "1,4,1"], "batches has 1 twice"),
        (["--batches", ""], "batches is ''"),
        (["--batches", "0"], "batches is '0'"),
        (["--temperatures", "0,0.0"], "temperatures has 0.0 twice"),
        (["--temperatures", ""], "temperatures is ''"),
        (["--temperatures", "-1"], "temperatures has -1"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_loaded(capsys, tmp_path, arguments, said):
    """Of a model that does not exist nothing is said: nobody has looked for it."""
    base = ["experiment", "copy-vs-free", "-m", "no-such-model", "--out", str(tmp_path / "out")]
    assert main([*base, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"truedraft: {said}") and error.count("\n") == 1


def test_a_head_that_was_asked_for_is_not_left_out(capsys, tmp_path):
    """A mistyped folder: neither is the machine measured nor is anything run."""
    path, out = folder(tmp_path / "model", context=512), tmp_path / "out"
    small = ["--prompts", "1", "--prompt-tokens", "40", "-n", "4", "--batches", "1", "--temperatures", "0"]
    typed = str(tmp_path / "haed")
    assert main(["experiment", "copy-vs-free", "-m", path, *small, "--head", typed, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert typed in error and error.strip().count("\n") == 0 and not list(out.iterdir())


class Faulty:
    """A fleet in which whatever has a head is at fault."""

    def __init__(self, error):
        self.error = error

    def arm(self, setting):
        if setting.drafter == "eagle3":
            raise self.error
        return setting


def test_only_that_no_head_ships_is_a_note(tmp_path, monkeypatch):
    plain = load(folder(tmp_path / "model"), drafter="none")
    notes = []
    found = [setting.drafter for setting in _arms(Faulty(AssertionError), plain, None, notes)]
    assert found == ["none", "ngram"], "no head is tried where none ships"
    assert len(notes) == 1 and notes[0].startswith("without eagle3") and "--head" in notes[0]
    for error in (UnknownModelError("no folder"), CorruptModelError("damaged")):
        with pytest.raises(type(error)):
            _arms(Faulty(error), plain, "mine", notes)
    monkeypatch.setattr("truedraft.cli.experiment.shipped_head", lambda owner, kind: tmp_path)
    with pytest.raises(UnknownModelError):  # it ships, and its folder is empty
        _arms(Faulty(UnknownModelError("no config.json")), plain, None, notes)
    assert len(notes) == 1
