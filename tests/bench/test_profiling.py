"""Measuring a profile on clocks that the test owns: every point once a turn, medians, nothing kept."""

import json

import pytest

from tests.folders import folder
from truedraft.bench.machine import model_size
from truedraft.bench.profiling import Grid, draft_costs, pass_times
from truedraft.build import load, redraft
from truedraft.cli import main
from truedraft.errors import ParameterError, UnsupportedModelError
from truedraft.planning.profile import Profile
from truedraft.request import Facts
from truedraft.toy import TabularTarget, random_language

FACTS = Facts(vocabulary=4)


class Costed(TabularTarget):
    """A toy target whose passes move a clock of their own."""

    def __init__(self, ridge):
        super().__init__(random_language(4))
        object.__setattr__(self, "now", 0.0)
        object.__setattr__(self, "ridge", ridge)
        object.__setattr__(self, "held", set())

    def score(self, sessions, trees, taps):
        tokens = len(sessions) * max(map(len, trees))
        unread = sum(session not in self.held for session in sessions)  # the first pass over a text reads it
        object.__setattr__(self, "now", self.now + max(1.0, tokens / self.ridge) + 100 * unread)
        self.held.update(sessions)
        return super().score(sessions, trees, taps)

    def release(self, session):
        self.held.discard(session)


def test_passes_are_timed_without_reading_the_prompt():
    target = Costed(ridge=3)
    grid = Grid(contexts=(8, 16), batches=(1, 2, 4), widths=(1, 2, 4, 8), tokens=16, repeats=3)
    times = pass_times(target, FACTS, grid, clock=lambda: target.now)
    found = {(point.context, point.batch, point.width): point.seconds for point in times}
    assert found == {
        (context, batch, width): pytest.approx(max(1.0, batch * width / 3))
        for context in (8, 16)
        for batch, width in [(b, w) for b in (1, 2, 4) for w in (1, 2, 4, 8) if b * w <= 16]
    }
    assert not target.held, "every text was released"
    assert Profile(times).ridge() == pytest.approx(3)


def test_a_median_forgives_one_slow_pass():
    target, slow = Costed(ridge=100), iter([0.0, 0.0, 50.0])

    def clock():
        return target.now

    inner = target.score

    def score(sessions, trees, taps):
        object.__setattr__(target, "now", target.now + next(slow, 0.0))
        return inner(sessions, trees, taps)

    object.__setattr__(target, "score", score)
    times = pass_times(target, FACTS, Grid((8,), (1,), (1, 2), repeats=5), clock=clock)
    assert times[0].seconds == pytest.approx(1.0)


def test_impossible_grids_are_named():
    with pytest.raises(ParameterError, match="widths"):
        Grid(widths=(0,))
    with pytest.raises(ParameterError, match="repeats"):
        Grid(repeats=0)
    with pytest.raises(ParameterError, match="a wider pass"):
        Grid(widths=(1,))
    with pytest.raises(ParameterError, match="shorter contexts"):
        pass_times(Costed(1), Facts(4, context_length=20), Grid((16,), (1,), (8,)))


def test_equal_values_of_a_grid_are_measured_once():
    """A point that was there twice made a division by zero of the profile, when all was measured."""
    grid = Grid((8, 8), (2, 1, 2), (1, 4, 8, 8), repeats=1)
    assert grid == Grid((8,), (2, 1), (1, 4, 8), repeats=1)
    target = Costed(ridge=3)
    times = pass_times(target, FACTS, grid, clock=lambda: target.now)
    points = [(point.context, point.batch, point.width) for point in times]
    assert sorted(points) == [(8, batch, width) for batch in (1, 2) for width in (1, 4, 8)]
    assert Profile(times).ridge() == pytest.approx(3)


def test_every_batch_has_plain_passes_and_wider_ones():
    """One point alone would say that drafts are free, and a first one that is wide that plain decoding is dear."""
    grid = Grid(widths=(5, 9), tokens=64)
    assert grid.points(1) == [1, 5, 9] and grid.points(8) == [1, 5]
    assert grid.points(60) == grid.points(200) == [1, 5], "wider than the most that was asked for, if need be"


NAMES = ("auto", "float16", "bfloat16", "int8", "int4")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"), context=512)


def test_drafters_cost_what_is_outside_the_pass(path):
    plain = load(path, drafter="none")
    models = {"none": plain, "model": redraft(plain, drafter="model", draft_model=path)}
    costs = draft_costs(models, [[5, 6, 7, 5, 6, 7]], batches=(1, 2), depths=(1, 6), tokens=40)
    assert [(cost.drafter, cost.batch) for cost in costs] == [("none", 1), ("none", 2), ("model", 1), ("model", 2)]
    assert all(cost.fixed >= 0 and cost.step >= 0 for cost in costs)
    assert costs[0].step == 0, "plain decoding drafts nothing"
    assert costs[2].seconds(6) > costs[0].seconds(0), "a model's steps take time"


def test_the_size_of_a_model_is_that_of_its_configuration(path):
    target = load(path, drafter="none").decoder.target
    size = model_size(target.model.model)
    # llama, tied: 260 x 32 embedding; per layer q, o 32 x 32, k, v 32 x 16, three of 32 x 48, two norms; a last norm
    assert size.parameters == 260 * 32 + 3 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32) + 32
    assert size.bytes_per_parameter == 4 and size.cache_bytes == 2 * 3 * 2 * 8 * 4
    assert size.attention_flops == 4 * 3 * 4 * 8


def test_rounded_weights_count_with_the_bytes_that_they_have_left(path):
    read = {}
    for name in NAMES:
        try:
            size = model_size(load(path, drafter="none", weights=name).decoder.target.model.model)
        except UnsupportedModelError:  # bfloat16 needs a processor that multiplies so
            continue
        read[name] = size.parameters * size.bytes_per_parameter
    layers = 3 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48)
    halves = read["auto"] - 2 * layers
    assert read["float16"] < halves, "it rounds the head as well"
    assert read.get("bfloat16", halves) == pytest.approx(halves)
    assert read["int4"] < read["int8"] < halves


def test_redraft_shares_the_target_and_checks_names(path):
    plain = load(path, drafter="none")
    fast = redraft(plain, drafter="ngram", draft_tokens=3)
    assert fast.decoder.target.model is plain.decoder.target.model and fast.drafter_name == "ngram"
    assert (
        fast.generate([5, 6, 5, 6], max_new_tokens=12).token_ids
        == plain.generate([5, 6, 5, 6], max_new_tokens=12).token_ids
    )
    with pytest.raises(ParameterError, match="oracle"):
        redraft(plain, drafter="oracle")


def test_the_command_writes_a_profile(path, tmp_path, capsys):
    arguments = ["--model", path, "--contexts", "16", "--batches", "1,4", "--widths", "1,4", "--repeats", "1"]
    out = tmp_path / "machine.json"
    assert main(["profile", str(out), *arguments, "--drafters", "ngram", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    saved = Profile.load(out)
    assert report == saved.to_json() and saved.drafters == ["ngram", "none"]
    assert saved.machine["bandwidth"] > 0 and saved.model["parameters"] > 0 and saved.contexts == [16]
    assert main(["profile", *arguments]) == 0
    assert "ridge" in capsys.readouterr().out


def test_what_is_said_twice_is_measured_once_and_kept(path, tmp_path):
    out = tmp_path / "machine.json"
    twice = ["--contexts", "16,16", "--batches", "1,1", "--widths", "1,4,4", "--drafters", "ngram"]
    assert main(["profile", str(out), "--model", path, "--repeats", "1", *twice]) == 0
    saved = Profile.load(out)
    assert [(point.context, point.batch, point.width) for point in saved.passes] == [(16, 1, 1), (16, 1, 4)]
    assert [(cost.drafter, cost.batch) for cost in saved.drafting] == [("none", 1), ("ngram", 1)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--contexts", "no"], "contexts"), (["--drafters", "oracle"], "oracle"), (["--contexts", "500"], "contexts")],
)
def test_mistakes_are_one_line(path, capsys, arguments, named):
    assert main(["profile", "--model", path, "--repeats", "1", *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and "Traceback" not in error
