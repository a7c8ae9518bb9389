"""Arms, units and journals on toys: what is timed, what is counted, what is resumed, what fails."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.toys import PROMPTS, Clock, model, oracle
from truedraft.bench.arms import Arm, AtOnce, ModelArm, Order, Sample, each_of, write
from truedraft.bench.grid import PLAIN, Load, Setting, loads_of, require_positive, settings_of
from truedraft.bench.runs import Journal, differs_at, in_turn, run_units, units_of
from truedraft.bench.summary import Cell, cells_of, csv_of, mismatches
from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.core import Shape
from truedraft.errors import OutOfMemoryError, ParameterError
from truedraft.request import Facts

ORDER = Order((), (), tokens=20)
ALONE = (Load("toy"),)


def arms(clock=None, right=None, k=4, slope=0.0):
    clock = clock or Clock()
    return [
        ModelArm("none", model(clock, slope=slope), clock=clock),
        ModelArm(f"script k={k}", model(clock, oracle(right), Shape.chain(k), slope=slope), clock=clock),
    ]


def lines_of(arms_, tmp_path, *, loads=ALONE, prompts=PROMPTS, repeats=1, order=ORDER):
    journal = Journal(tmp_path / "journal.jsonl", {"about": "toys"})
    units = units_of({"toy": prompts}, loads, order, repeats=repeats)
    assert list(run_units(units, lambda load: arms_, journal, told=lambda text: None)) == units
    return journal.lines


def test_an_arm_times_reading_and_decoding_apart():
    clock = Clock()
    plain, fast = arms(clock)
    assert isinstance(plain, Arm)
    order = replace(ORDER, prompts=PROMPTS[:1], seeds=(0,))
    slow = write(plain, order)
    assert (slow.tokens, slow.seconds, slow.first) == (20, 25.0, 6.0)
    assert (slow.decoded, slow.decoding, slow.rounds) == (19, 19.0, 19)
    sample = write(fast, order)
    assert sample.ids == slow.ids
    assert (sample.tokens, sample.seconds, sample.first) == (20, 9.0, 6.0)  # four rounds of five tokens
    assert (sample.decoded, sample.decoding) == (15, 3.0)
    assert sample.parts["target"] == 3.0 and sample.counts[0].acceptance_length == 5.0


def test_only_rounds_of_the_full_batch_are_decoding():
    clock = Clock()
    _, fast = arms(clock)
    uneven = replace(ORDER, prompts=(PROMPTS[0], (1, 2)), seeds=(0, 1))  # the oracle does not know the second text
    sample = write(fast, uneven)
    assert sample.rounds == 3, "after four rounds the first text is over, and the first round reads prompts"
    assert sample.decoded == 3 * (5 + 1) and sample.decoding == 3.0
    assert [counts.rounds for counts in sample.counts] == [4, 20]


def test_cells_hold_medians_ratios_and_counts(tmp_path):
    plain, fast = cells_of(lines_of(arms(), tmp_path, repeats=2))
    assert (plain.arm, plain.speedup.median, plain.identical) == ("none", 1.0, True)
    assert fast.speedup.median == fast.total_speedup == 5.0
    assert fast.speed.median == pytest.approx(20 / 9) and fast.decoding.median == 5.0
    assert fast.request_speedup.median == pytest.approx(25 / 9)
    assert fast.first.median == 6.0 and fast.each.median == pytest.approx(3 / 19)
    assert fast.identical and len(fast.counts) == 4 and fast.total.rounds == 2 * 4 * 4
    assert fast.total.by_position == (1.0,) * 4 and fast.total.drafted_per_round == 4.0
    assert fast.context == 2 + 10 and fast.cost == 0.0 and fast.parts["target"] == 1.0
    assert Cell.from_json(json.loads(json.dumps(fast.to_json()))) == fast


def test_a_drafter_that_takes_time_has_a_cost(tmp_path):
    clock = Clock()
    plain, fast = arms(clock)
    drafter = fast.model.decoder.drafter
    inner = drafter.propose

    def propose(sessions, shapes):
        clock.now += 0.25 * shapes[0].depth
        return inner(sessions, shapes)

    object.__setattr__(drafter, "propose", propose)
    cell = cells_of(lines_of([plain, fast], tmp_path))[1]
    assert cell.cost == pytest.approx(0.25, rel=0.1)  # the last round of a text is a little shorter
    assert cell.parts["draft"] == pytest.approx(0.5, abs=0.02)
    assert cell.total_speedup == pytest.approx(5 / 2, rel=0.02)


def test_csv_has_a_line_a_cell(tmp_path):
    head, *rows = csv_of(cells_of(lines_of(arms(), tmp_path))).splitlines()
    assert len(rows) == 2 and all(len(row.split(",")) == len(head.split(",")) for row in rows)
    assert head.endswith("acceptance_4") and rows[1].endswith("1.0,1.0,1.0,1.0")


def test_a_text_that_one_bet_ends_is_compared_whole(tmp_path):
    """No round of it was one of decoding alone: its whole request is held against the whole of plain decoding's."""
    lines = [dict(line) for line in lines_of(arms(), tmp_path)]
    for line in lines:
        if line["arm"] != "none":
            line["decoded"], line["decoding"] = 0, 0.0
    fast = cells_of(lines)[1]
    assert fast.speedup.median == fast.request_speedup.median == pytest.approx(25 / 9)
    assert fast.total_speedup == pytest.approx(25 / 9)


def test_a_batch_whose_rounds_nobody_saw_is_compared_whole(tmp_path):
    """Texts of 4 and 20 tokens: in most rounds one text is left, and what an engine decoded holds them.

    An engine exactly as quick as plain decoding is as quick.
    """

    class Engine(AtOnce):
        name, comparable = "engine", False

        def write(self, order):
            return Sample(None, 24, 25.0, 6.0, 22, 19.0)

    plain, _ = arms()
    uneven = [dict(line) for line in lines_of([plain, Engine()], tmp_path, loads=[Load("toy", 2)])]
    for line in uneven:
        if line["arm"] == "none":
            line |= {"tokens": 24, "seconds": 25.0, "first": 6.0, "decoded": 2 * 3, "decoding": 3.0}
    cell = cells_of(uneven)[1]
    assert cell.speedup.median == cell.total_speedup == pytest.approx(1.0)


def test_a_later_token_takes_what_it_takes_in_its_own_text():
    """Ten and a hundred tokens at a second each: whoever is done early does not wait for the last."""
    assert each_of([(10, 1.0, 10.0), (100, 1.0, 100.0)]) == pytest.approx(1.0)
    assert each_of([(1, 1.0, 1.0)]) is None


def test_a_journal_survives_what_may_happen_to_it(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    Journal(path, {"a": 1}).add([{"unit": "u", "arm": "x"}])
    whole = path.read_text()
    path.write_text(whole + '{"unit": "v", "ar')
    assert Journal(path, {"a": 1}).lines == [{"unit": "u", "arm": "x"}] and path.read_text() == whole
    before = path.stat().st_mtime_ns
    journal = Journal(path, {"a": 1})
    assert path.stat().st_mtime_ns == before, "what is whole is not written again"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(ParameterError, match="No space left"):
            journal.add([{"unit": "v", "arm": "x"}])
    assert path.read_text() == whole
    for header in ('{"a": ', "[1]", "text"):
        path.write_text(header + "\n")
        with pytest.raises(ParameterError, match="other settings"):
            Journal(path, {"a": 1})


@pytest.mark.parametrize("content", [b"\xff\xfe{\x00", b'{"a": 1}\n{"unit": "\xe4"}\n'])
def test_a_journal_of_other_bytes_is_one_line(tmp_path, content):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    with pytest.raises(ParameterError, match=r"journal\.jsonl has other bytes") as raised:
        Journal(path, {"a": 1})
    assert "\n" not in str(raised.value) and path.read_bytes() == content, "and it is left as it was"


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_arms_take_turns_and_warm_up_first(tmp_path):
    said = []
    journal = Journal(tmp_path / "journal.jsonl", {})
    units = units_of({"toy": PROMPTS}, [Load("toy", 2)], ORDER, repeats=1)
    for _ in run_units(units, lambda load: arms(), journal, told=said.append):
        pass
    names = [text.split(": ")[1] for text in said]
    assert names == ["none, warming up", "script k=4, warming up", *["2 arms in turns"] * 2]
    assert [arm.name for arm in in_turn(arms(), 1)] == ["script k=4", "none"]


def test_a_machine_that_slows_down_does_so_for_all_arms(tmp_path):
    """Ever slower, or twice as slow for some while: who had the quick seconds would look better than it is."""
    clock = Clock()
    both = arms(clock)
    for arm in both:
        target = arm.model.decoder.target
        inner = target.score

        def score(sessions, trees, taps, inner=inner):
            before = clock.now
            scores = inner(sessions, trees, taps)
            clock.now = before + (clock.now - before) * (1.0 + before / 40 + (30 < before < 60))
            return scores

        object.__setattr__(target, "score", score)
    cell = cells_of(lines_of(both, tmp_path))[1]
    assert cell.total_speedup == pytest.approx(5.0, rel=0.1) and cell.speedup.median == pytest.approx(5.0, rel=0.1)


def test_whoever_is_least_far_goes_next(tmp_path):
    """Both arms stand within a round of one another at any time, however unlike their rounds are."""
    turns = []

    class Seen(ModelArm):
        def begin(self, order):
            writing = super().begin(order)
            while True:
                try:
                    share = next(writing)
                except StopIteration as end:
                    return end.value
                turns.append((self.name, share))
                yield share

    lines_of([Seen(arm.name, arm.model, clock=arm.clock) for arm in arms()], tmp_path, prompts=PROMPTS[:1])
    here = dict.fromkeys(("none", "script k=4"), 0.0)
    for name, share in turns[-26:]:
        here[name] = share
        assert abs(here["none"] - here["script k=4"]) <= 5 / 20 + 1e-9
    assert set(here.values()) == {1.0}


def test_arms_that_do_not_fit_at_once_write_one_after_another(tmp_path):
    taken, said = [], []

    class Small(ModelArm):
        """There is room for one."""

        def begin(self, order):
            if taken:
                raise OutOfMemoryError("no room")
            taken.append(self.name)
            try:
                return (yield from super().begin(order))
            finally:
                taken.remove(self.name)

    journal = Journal(tmp_path / "journal.jsonl", {})
    small = [Small(arm.name, arm.model, clock=arm.clock) for arm in arms()]
    list(run_units(units_of({"toy": PROMPTS}, ALONE, ORDER, repeats=1), lambda _: small, journal, told=said.append))
    assert not taken and cells_of(journal.lines)[1].speedup.median == 5.0
    assert said[2:5] == ["toy, batch 1, T = 0: 2 arms in turns", *(f"toy, batch 1, T = 0: {arm.name}" for arm in small)]


def test_arms_are_tidied_up_whatever_happens(tmp_path):
    """Ctrl-C in the middle of a unit: every arm has let go of its texts."""
    tidied = []
    clock = Clock()
    plain, fast = arms(clock)
    both = [
        ModelArm(arm.name, arm.model, clock=clock, tidy=lambda arm=arm: tidied.append(arm.name))
        for arm in (plain, fast)
    ]
    drafter = fast.model.decoder.drafter

    def propose(sessions, shapes):
        raise KeyboardInterrupt

    journal = Journal(tmp_path / "journal.jsonl", {})
    units = units_of({"toy": PROMPTS}, ALONE, ORDER, repeats=1)
    run = run_units(units, lambda _: both, journal, told=lambda text: None)
    next(run)
    tidied.clear()
    object.__setattr__(drafter, "propose", propose)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert sorted(tidied) == sorted([plain.name, fast.name] * 2)


def test_batches_are_filled_by_going_round():
    units = units_of({"toy": PROMPTS}, [Load("toy", 3)], ORDER, repeats=2)
    assert [unit.order.prompts for unit in units[:2]] == [PROMPTS[:3], (PROMPTS[3], PROMPTS[0], PROMPTS[1])]
    assert len({unit.key for unit in units}) == 4
    assert units[0].order.seeds != units[2].order.seeds, "another repetition draws anew"


class Wrong(AtOnce):
    """An arm that writes something else."""

    name, comparable = "wrong", True

    def __init__(self, inner):
        self._inner = inner

    def write(self, order):
        sample = write(self._inner, order)
        return replace(sample, ids=tuple((*ids[:3], ids[3] ^ 1, *ids[4:]) for ids in sample.ids))


def test_a_mismatch_is_named(tmp_path):
    plain, _ = arms()
    wrong = Wrong(plain)
    lines = lines_of([plain, wrong], tmp_path)
    found = mismatches(lines)
    assert len(found) == 4 and "wrong differs" in found[0] and found[0].endswith("text 0, token 3")
    assert cells_of(lines)[1].identical is False
    wrong.comparable = False
    assert not mismatches(lines_of([plain, wrong], tmp_path / "other"))


def test_sampled_texts_are_not_compared(tmp_path):
    plain, _ = arms()
    lines = lines_of([plain, Wrong(plain)], tmp_path, loads=[Load("toy", 1, 0.8)])
    assert not mismatches(lines) and cells_of(lines)[1].identical is None


def test_differences_are_found_where_they_are():
    assert differs_at([(1, 2), (3, 4)], [(1, 2), (3, 4)]) is None
    assert differs_at([(1, 2), (3, 5)], [(1, 2), (3, 4)]) == [1, 1]
    assert differs_at([(1, 2)], [(1, 2, 3)]) == [0, 2]
    assert differs_at(None, None) is None


def test_a_run_is_resumed_where_it_stopped(tmp_path):
    file = tmp_path / "journal.jsonl"
    units = units_of({"toy": PROMPTS}, [Load("toy", 2)], ORDER, repeats=2)
    first = run_units(units, lambda load: arms(), Journal(file, {"a": 1}), told=lambda text: None)
    next(first), next(first)
    with file.open("a") as torn:
        torn.write('{"unit": "half a li')
    said = []
    journal = Journal(file, {"a": 1})
    assert len(journal.lines) == 4
    assert len(list(run_units(units, lambda load: arms(), journal, told=said.append))) == 4
    assert len(journal.lines) == 8 and sum("warming" not in text for text in said) == 2
    again = Journal(file, {"a": 1})
    assert again.lines == journal.lines and all(again.has(unit, arms()) for unit in units)
    with pytest.raises(ParameterError, match="other settings"):
        Journal(file, {"a": 2})
    (tmp_path / "blocked").write_text("")
    with pytest.raises(ParameterError, match="cannot write"):
        Journal(tmp_path / "blocked" / "journal.jsonl", {})


def test_fixed_lengths_forbid_ends():
    assert replace(ORDER, fixed_length=True, seeds=(3,)).parameters(0).min_new_tokens == 20
    assert replace(ORDER, seeds=(3,), temperature=0.5).parameters(0).min_new_tokens == 0


def test_impossible_loads_are_named():
    for temperature in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="temperatures has"):
            Load("toy", 1, temperature)
    with pytest.raises(ParameterError, match="batches has 0"):
        Load("toy", 0)


def test_grids_hold_plain_decoding_once():
    settings = settings_of(["ngram", "none"], draft_tokens=[2, 4], trees=["3x2"], rules=["auto", "token"])
    assert settings[0] == PLAIN and settings.count(PLAIN) == 1 and len(settings) == 1 + 3 * 2
    assert {str(setting) for setting in settings} >= {"none", "ngram k=2", "ngram tree 3x2", "ngram k=4 token"}
    assert settings_of(["ngram"]) == [PLAIN, Setting("ngram")]
    with pytest.raises(ParameterError, match="at least one drafter"):
        settings_of([])
    for name in ("rules", "policies"):
        with pytest.raises(ParameterError, match=f"{name} is empty"):
            settings_of(["ngram"], **{name: []})


def test_loads_are_every_task_at_every_size_once():
    found = loads_of(["a", "b"], [1, 4], [0.0, 0.6])
    assert found[:3] == [Load("a", 1, 0.0), Load("a", 1, 0.6), Load("a", 4, 0.0)] and len(set(found)) == len(found) == 8
    for lists, said in (
        (([], [1], [0.0]), "tasks is empty"),
        ((["a"], [], [0.0]), "batches is empty"),
        ((["a"], [1], []), "temperatures is empty"),
        ((["a", "b", "a"], [1], [0.0]), "tasks has 'a' twice"),
        ((["a"], [4, 1, 4], [0.0]), "batches has 4 twice"),
        ((["a"], [1], [0.6, 0.6]), "temperatures has 0.6 twice"),
    ):
        with pytest.raises(ParameterError, match=said):
            loads_of(*lists)


def test_amounts_are_at_least_one():
    require_positive(prompts=1, tokens=None)
    with pytest.raises(ParameterError, match="tokens is 0: expected at least 1"):
        require_positive(prompts=1, tokens=0)


@pytest.mark.parametrize("most", [0, -1])
def test_a_prompt_is_not_cut_to_nothing(most):
    with pytest.raises(ParameterError, match=f"most is {most}"):
        ids_of(Facts(vocabulary=4), "text", most=most)


def test_only_the_end_of_a_line_ends_a_prompt(tmp_path):
    """What else counts as one in Unicode may stand in a JSON string as it is; editors may begin a file with a mark."""
    texts = ["one\u2028two", "three\u2029four", "five\u0085six"]
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    assert all(text in line for text, line in zip(texts, lines, strict=True)), "raw, not escaped"
    for number, content in enumerate(("\n".join(lines), "\ufeff" + "\r\n".join([lines[0], "", *lines[1:], ""]))):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(content.encode())
        assert [row.text for row in read_prompts(file)] == texts
    file.write_text("\n".join([lines[0], "{"]), "utf-8")
    with pytest.raises(ParameterError, match="line 2"):
        read_prompts(file)


def test_arms_without_rounds_are_cells_too(tmp_path):
    class Blind(AtOnce):
        name, comparable = "engine", False

        def write(self, order):
            return Sample(None, 20, 10.0, 1.0, 0, 0.0)

    plain, _ = arms()
    cell = cells_of(lines_of([plain, Blind()], tmp_path))[1]
    assert cell.identical is None and not cell.counts
    assert cell.speedup.median == pytest.approx(20 / 10 * 25 / 20), "whole requests on both sides"
    assert cell.cost is None and cell.parts == {}
