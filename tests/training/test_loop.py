"""Runs: that they learn, that they resume bit for bit, that several processes do what one does, that they stop."""

import copy
import json
import math
import socket
from dataclasses import replace

import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing

from tests.training.helpers import answers, featured, teacher
from truedraft.errors import CorruptModelError, ModelError, ParameterError
from truedraft.nets.eagle3 import Eagle3Net
from truedraft.nets.medusa import MedusaConfig, MedusaNet
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.training.acceptance import Tally
from truedraft.training.batches import collate
from truedraft.training.course import Course, rate_at
from truedraft.training.learn import draft_ids
from truedraft.training.prepare import Plan, Rows, prepare
from truedraft.training.recipes import RECIPES
from truedraft.training.record import Record
from truedraft.training.show import describe

KINDS = list(RECIPES)


@pytest.fixture(scope="module")
def target():
    return teacher()


@pytest.fixture(scope="module")
def rows(target):
    return Rows(tuple(featured(answers(12), target)), tuple(featured(answers(4, seed=1), target)))


def plan(folder, kind="eagle3", start=None, taps=(0, 1, 2), **course):
    usual = {"steps": 6, "tokens": 40, "rate": 3e-3, "warmup": 2, "examine_every": 3, "checkpoint_every": 2}
    taps = taps if kind == "eagle3" else None
    return Plan(
        kind, folder, folder, folder, "tiny", Course(**{**usual, **course}), vocabulary=24, taps=taps, start=start
    )


def run(target, rows, folder, stop=None, resume=False, **options):
    """The trainer after its run, or after some steps of it; and the losses."""
    trainer = prepare(plan(folder, **options), target, rows).trainer
    if resume:
        assert trainer.resume()
    losses = []
    for report in trainer.run():
        losses.append(report.loss)
        if report.progress.step == stop:
            break
    return trainer, losses


def state(trainer):
    return {name: value.clone() for name, value in trainer.net.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns(target, rows, tmp_path, kind):
    _, losses = run(target, rows, tmp_path, kind=kind, steps=60, examine_every=60)
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_takes_the_same_steps_bit_for_bit(target, rows, tmp_path, kind):
    whole, losses = run(target, rows, tmp_path / "whole", kind=kind)
    run(target, rows, tmp_path / "parts", stop=5, kind=kind)  # one step past the checkpoint at 4
    parts, rest = run(target, rows, tmp_path / "parts", resume=True, kind=kind)
    assert rest == losses[4:]
    assert_same(state(parts), state(whole))
    untimed = [vars(each.progress) | {"seconds": 0} for each in (parts, whole)]
    assert untimed[0] == untimed[1]
    logs = [
        [(line["step"], line["loss"], line["rate"], line["tokens_per_pass"]) for line in Record.read(path / "log.csv")]
        for path in (tmp_path / "whole", tmp_path / "parts")
    ]
    assert logs[0] == logs[1] and len(logs[0]) == 6


@pytest.mark.parametrize("changed", [{"rate": 1e-3}, {"seed": 1}, {"steps": 7}, {"tokens": 50}])
def test_another_run_does_not_resume(target, rows, tmp_path, changed):
    run(target, rows, tmp_path, stop=2)
    with pytest.raises(ParameterError, match="resume with its settings"):
        run(target, rows, tmp_path, resume=True, **changed)


def test_another_draft_vocabulary_does_not_resume(target, rows, tmp_path):
    run(target, rows, tmp_path, stop=2)
    other = prepare(Plan(**{**vars(plan(tmp_path)), "vocabulary": 30}), target, rows).trainer
    with pytest.raises(ParameterError, match="vocabulary"):
        other.resume()


def test_other_answers_do_not_resume(target, rows, tmp_path):
    """The same tokens in as many rows, two of them exchanged."""
    run(target, rows, tmp_path, stop=2)
    for name in ("training", "held_out"):
        first, *others = getattr(rows, name)
        other = replace(first, tokens=torch.cat([first.tokens[:-2], first.tokens[-2:].flip(0)]))
        assert not torch.equal(first.tokens, other.tokens)
        with pytest.raises(ParameterError, match="with data"):
            run(target, replace(rows, **{name: (other, *others)}), tmp_path, resume=True)
    run(target, rows, tmp_path, resume=True)


def test_another_number_of_processes_does_not_resume(target, rows, tmp_path, monkeypatch):
    run(target, rows, tmp_path, stop=2)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ParameterError, match="processes 1, not 2"):
        run(target, rows, tmp_path, resume=True)


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_a_step_that_would_ruin_the_weights_is_not_taken(target, rows, tmp_path, broken):
    trainer, _ = run(target, rows, tmp_path, stop=2)
    saved = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    before = state(trainer)
    if broken == "loss":
        trainer._added_up = lambda loss: math.nan
    else:
        trainer._parameters[0].register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(ParameterError, match="step 3 was not taken") as said:
        list(trainer.run())
    assert "\n" not in str(said.value)
    assert_same(state(trainer), before)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == saved


@pytest.mark.parametrize("what", ["checkpoint.pt", "best", "log.csv"])
def test_what_cannot_be_written_is_named_in_one_line(target, rows, tmp_path, monkeypatch, what):
    run(target, rows, tmp_path, stop=2)
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def full(*said, **more):
        if what == "checkpoint.pt":
            said[1].write_bytes(b"half")
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos\nmore lines")
        raise OSError(28, "No space left on device")

    place = {"checkpoint.pt": "torch.save", "best": "truedraft.nets.head.save_file", "log.csv": "os.replace"}[what]
    monkeypatch.setattr(place, full)
    with pytest.raises(ParameterError, match=f"{what} cannot be written") as said:
        run(target, rows, tmp_path, resume=True)
    assert "\n" not in str(said.value) and not list(tmp_path.glob("*.pt.part"))
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_log_that_was_cut_off_goes_on(tmp_path):
    path = tmp_path / "log.csv"
    record = Record(path)
    for step in range(1, 12):
        record.write({"step": step, "loss": "1.0"})
    text = path.read_text()
    path.write_text(text[: text.rindex("11") + 1])
    Record(path, step=10).write({"step": 11})
    assert [line["step"] for line in Record.read(path)] == [str(step) for step in range(1, 12)]


def test_a_damaged_checkpoint_is_named(target, rows, tmp_path):
    trainer, _ = run(target, rows, tmp_path, stop=2)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CorruptModelError, match=r"checkpoint\.pt"):
        trainer.resume()
    torch.save({"net": {}}, path)
    with pytest.raises(CorruptModelError, match="optimizer"):
        trainer.resume()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_a_head(target, rows, tmp_path, kind):
    first, _ = run(target, rows, tmp_path / "first", kind=kind)
    with first.inputs.written():
        first.net.save(tmp_path / "head", dtype=torch.float32)
    again = prepare(plan(tmp_path / "again", kind, tmp_path / "head"), target, rows).trainer
    assert torch.equal(again.net.vocabulary.ids, first.net.vocabulary.ids)
    for name, value in state(first).items():
        torch.testing.assert_close(again.net.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    assert again.examine() == first.examine()


def test_a_head_that_does_not_fit_is_refused_before_the_first_step(target, rows, tmp_path):
    config = MedusaConfig.like(target.model.config, heads=4)
    unfit = {
        "heads for 4 steps": replace(config, heads=3),
        "states of 24 numbers": replace(config, hidden_size=24),
        "drafts for 47 tokens": replace(config, vocab_size=47),
    }
    for message, each in unfit.items():
        MedusaNet(each, DraftVocabulary.full(each.vocab_size)).save(tmp_path / "head")
        with pytest.raises((ModelError, ParameterError), match=message):
            prepare(plan(tmp_path, "medusa", tmp_path / "head"), target, rows)
    MedusaNet(replace(config, heads=5)).save(tmp_path / "head")
    assert run(target, rows, tmp_path, kind="medusa", start=tmp_path / "head")[1]


def test_what_is_written_is_what_was_trained(target, rows, tmp_path):
    """The written head, on features as they are, is the trained one on even inputs."""
    trainer, _ = run(target, rows, tmp_path)
    features = rows.training[0].features[None, :, :3].float()
    trained = trainer.net.fuse(features)
    before = state(trainer)
    with trainer.inputs.written():
        trainer.net.save(tmp_path / "head", dtype=torch.float32)
    assert_same(state(trainer), before)
    written = Eagle3Net.load(tmp_path / "head")
    torch.testing.assert_close(written.fuse(features), trained, rtol=1e-4, atol=1e-5)


def test_gradients_do_not_depend_on_how_rows_are_put_together(target, rows, tmp_path):
    """One batch of all rows, or one row a batch accumulated: the same step."""
    guesses = len(rows.training)
    steps = [
        run(target, rows, tmp_path / name, steps=1, **course)[0]
        for name, course in {
            "together": {"tokens": 10_000},
            "apart": {"tokens": 1, "accumulate": guesses},
        }.items()
    ]
    for name, value in state(steps[0]).items():
        torch.testing.assert_close(value, state(steps[1])[name], rtol=1e-4, atol=1e-5)


def test_bfloat16_is_near(target, rows, tmp_path):
    losses = [run(target, rows, tmp_path / str(half), steps=3, bfloat16=half)[1] for half in (False, True)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_a_run_stops_when_acceptance_does_not_rise(target, rows, tmp_path):
    trainer = prepare(plan(tmp_path, steps=50, patience=2, examine_every=2), target, rows).trainer
    rates = iter([1.5, 1.7, 1.6, 1.7, 9.0])
    trainer.examine = lambda: Tally((100,), (0,), 100, int(next(rates) * 100))
    steps = [report.progress.step for report in trainer.run()]
    assert steps[-1] == 8 and trainer.progress.best == 1.7 and trainer.progress.best_step == 4
    assert (tmp_path / "best" / "model.safetensors").is_file()


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_without_a_held_out_text_nothing_is_said_of_acceptance_and_nothing_ends_the_run(target, rows, tmp_path, kind):
    sampled = Rows(tuple(featured(answers(12, temperature=1.0), target)), ())
    prepared = prepare(plan(tmp_path, kind, steps=8, patience=1, examine_every=2), target, sampled)
    reports = list(prepared.trainer.run())
    assert len(reports) == 8 and all(report.tally is None for report in reports)
    written = json.loads((tmp_path / "best" / "config.json").read_text())["truedraft"]
    assert written["steps"] == 8
    assert not {"held_out_acceptance", "head_accuracies", "best_tokens_per_pass"} & set(written)
    told = describe(plan(tmp_path, kind), prepared)
    assert "acceptance is not measured" in told and "% of the answers" in told


@pytest.mark.parametrize(
    "wrong",
    [{"final": 1.5}, {"final": math.nan}, {"decay": math.inf}, {"decay": -1}, {"rate": math.nan}, {"warmup": -1}],
)
def test_a_course_that_makes_no_sense(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Course(1, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"decay": math.nan},
        {"decay": -0.1},
        {"noise": math.inf},
        {"noise": -0.1},
        {"held_out": -1},
        {"vocabulary": -1},
        {"limit": 0},
        {"layers": (0, 1)},
        {"loss": "nan*tv"},
    ],
)
def test_a_plan_that_makes_no_sense(tmp_path, wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        replace(plan(tmp_path), **wrong)


def test_a_batch_goes_to_a_device_as_a_whole(target, rows):
    """The map of draft ids stays where it is, and what it says goes where the tokens are."""
    batch = collate(rows.training[:2], (0, 1), 2).to(torch.device("meta"))
    assert {each.device.type for each in (batch.tokens, batch.inputs, batch.last)} == {"meta"}
    vocabulary = DraftVocabulary(torch.tensor([3, 5]), 8)
    assert draft_ids(vocabulary, torch.tensor([5, 0, 3])).tolist() == [1, -1, 0]


def test_learning_rate():
    course = Course(steps=110, rate=1.0, warmup=10, final=0.1)
    rates = [rate_at(step, course) for step in range(111)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == rates[10] == 1.0 and rates[110] == pytest.approx(0.1)
    assert rates[60] == pytest.approx(0.55) and rates[10:] == sorted(rates[10:], reverse=True)
    assert math.isclose(rate_at(500, course), 0.1)


# ── several processes ─────────────────────────────────────────────────────────────────────────────────────────────


def _worker(rank, folder, rows, port):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    trainer, losses = run(teacher(), rows, folder, steps=4)
    torch.save((losses, trainer.net.state_dict()), folder / f"{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_take_the_steps_of_one_with_twice_the_batches(target, rows, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_worker, (tmp_path, copy.deepcopy(rows), port), nprocs=2)
    alone, losses = run(target, rows, tmp_path / "alone", steps=4, accumulate=2)
    for rank in range(2):
        shared, weights = torch.load(tmp_path / f"{rank}.pt")
        assert shared == pytest.approx(losses, rel=1e-5)
        for name, value in state(alone).items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)
