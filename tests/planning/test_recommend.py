"""The recommendation, on costs and counts whose best setting is known."""

import json
from dataclasses import replace

import pytest

from tests.planning.test_predict import chains
from tests.planning.test_profile import roofline
from truedraft.bench.summary import Cell, Spread
from truedraft.cli import main
from truedraft.planning.account import sweet_spot
from truedraft.planning.counts import Counts
from truedraft.planning.profile import DraftCost, Profile
from truedraft.planning.recommend import Candidate, recommend, tree_for


def costs(c=0.1, ridge=1e9):
    drafting = (DraftCost("none", 1, 0.0, 0.0), DraftCost("model", 1, 0.0, c), DraftCost("free", 1, 0.0, 0.0))
    return Profile(roofline(ridge).passes, drafting)


def candidate(drafter, alpha, k=8):
    return Candidate(drafter, {1: tuple(chains(alpha, k, rounds=400, seed=seed) for seed in range(20))}, k)


def test_it_finds_the_sweet_spot():
    found = recommend([candidate("model", 0.7)], costs(), [1])
    best, gain = sweet_spot([0.7] * 8, 0.1)
    assert found.choices[0].draft_tokens == pytest.approx(best, abs=1)
    assert found.choices[0].speedup.value == pytest.approx(gain, rel=0.03) and found.pays
    assert found.off_above == 1


def test_a_free_drafter_may_beat_a_better_one():
    found = recommend([candidate("model", 0.7), candidate("free", 0.65)], costs(c=0.4), [1])
    assert found.choices[0].candidate.drafter == "free"


def test_do_not_speculate_is_an_answer():
    found = recommend([candidate("model", 0.3)], costs(c=0.5), [1, 4])
    assert not found.pays and found.off_above is None and found.schedule == [[1, 9999, 0]]


def test_it_says_above_which_batch_to_stop():
    found = recommend([candidate("free", 0.6)], costs(ridge=16), [1, 4, 8, 16, 32])
    assert found.choices[0].draft_tokens == 8 and found.choices[-1].is_worth_it is False
    assert 9 <= found.off_above <= 13, (
        "1.6 tokens of two: break-even is at 12.8, and passes there lie between measured ones"
    )
    drafted = [row[2] for row in found.schedule]
    assert drafted == sorted(drafted, reverse=True) and found.schedule[0][0] == 1 and found.schedule[-1][2] == 0
    assert [row[0] for row in found.schedule[1:]] == [row[1] + 1 for row in found.schedule[:-1]]


def test_one_criterion_says_where_to_stop():
    """What is called worth it, what the table drafts and where it says to stop are the same."""
    batches = [1, 4, 8, 16, 32]
    found = recommend([candidate("free", 0.6)], costs(ridge=16), batches)
    every = recommend([candidate("free", 0.6)], costs(ridge=16), range(1, 33))
    worth = [choice.batch for choice in every.choices if choice.is_worth_it]
    assert found.off_above == every.off_above == worth[-1] and worth == list(range(1, worth[-1] + 1))
    assert every.choices[worth[-1]].speedup.value > 1.0, "faster, though not by enough to bother"
    assert [row[:2] for row in found.schedule if row[2]][-1][1] == found.off_above


def test_what_pays_again_beyond_a_gap_is_not_below_where_to_stop():
    """Passes of eight texts fall off a cliff, those of sixteen do not."""
    steep = Profile(
        tuple(
            replace(point, seconds=point.seconds * (9.0 if point.batch == 8 and point.width > 1 else 1.0))
            for point in roofline(1e9, batches=(1, 4, 8, 16)).passes
        )
    )
    found = recommend([candidate("free", 0.6)], steep, [1, 4, 8, 16])
    assert [choice.is_worth_it for choice in found.choices] == [True, True, False, True]
    assert 4 <= found.off_above < 8
    rows = {batch: row[2] for row in found.schedule for batch in range(row[0], min(row[1], 20) + 1)}
    assert rows[found.off_above] > 0 == rows[found.off_above + 1] == rows[8] and rows[16] > 0


def test_doubt_keeps_it_from_speculating():
    sample = [Counts((0, 10), (10,)), Counts((0, 10), (8, 2))]
    wide = Candidate("free", {1: tuple(sample)}, 1)
    assert recommend([wide], costs(), [1]).choices[0].speedup.low == 1.0
    assert not recommend([wide], costs(), [1]).pays


def test_a_tree_is_sought_where_ranks_are_known():
    counts = Counts(drafted=(0, 0, 100), accepted=(30, 70), ranked=(170, 170), chosen=(80, 50))
    plan = tree_for(counts, costs(ridge=8), "free", nodes=12)
    assert plan.nodes >= 2 and plan.tokens > 1.7 and plan.parents[:3] == (-1, 0, 0)
    assert tree_for(chains(0.5, 4), costs(), "free") is None


def cell(arm, counts, *, task="copy", batch=1):
    one = Spread(1.0, 1.0, 1.0)
    seen = {"draft": 0.0, "target": 1.0, "rule": 0.0, "rest": 0.0}
    return Cell(task, batch, 0.0, arm, one, one, one, one, 1.0, one, one, True, True, 64.0, seen, None, counts)


def report_of(folder, *cells, **about):
    entry = {"bench": 1, "about": about, "cells": [item.to_json() for item in cells]}
    (folder / "report.json").write_text(json.dumps(entry))


@pytest.fixture
def folder(tmp_path):
    cells = [
        cell("none", (Counts((9,), (9,)),)),
        *(cell(f"model k={k}", tuple(chains(0.8, k, rounds=300, seed=s) for s in range(9))) for k in (2, 8)),
        cell("free tree 8", (Counts((0, 0, 99), (50, 49), ranked=(148, 148), chosen=(30, 19)),), task="free"),
    ]
    report = {"bench": 1, "cells": [item.to_json() for item in cells]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    costs(ridge=16).save(tmp_path / "p.json")
    return tmp_path


def plan(capsys, folder, *arguments):
    code = main(["plan", "--profile", str(folder / "p.json"), "--bench", str(folder), *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_recommends(capsys, folder):
    code, out, _ = plan(capsys, folder, "--json", "--task", "copy")
    report = json.loads(out)
    assert code == 0 and report["speculate"] and report["choices"][0]["drafter"] == "model"
    assert report["prompts"] == 9
    assert report["choices"][0]["low"] < report["choices"][0]["speedup"] < report["choices"][0]["high"]
    assert report["switch_off_above"] < 32 and "switch off above batch" in report["advice"]
    code, out, _ = plan(capsys, folder)
    assert code == 0 and "take model with" in " ".join(out.split()) and "--tree" in out


def chain(arm, alpha, **options):
    return cell(arm, tuple(chains(alpha, 4, rounds=300, seed=s) for s in range(9)), **options)


def test_a_tree_is_not_told_as_a_chain_of_its_nodes(capsys, folder):
    """Rows of a policy are lengths of chains: sixteen nodes side by side are no chain of sixteen."""
    tree = Counts((*[0] * 16, 99), (10, 30, 59), ranked=(148, 148), chosen=(120, 19))
    report_of(folder, cell("none", (Counts((9,), (9,)),)), cell("free", (tree,) * 9), chain("model k=4", 0.2))
    code, out, _ = plan(capsys, folder)
    assert code == 0 and "take free" in " ".join(out.split()) and "--policy" not in out
    assert json.loads(plan(capsys, folder, "--json")[1])["schedule"] is None


def test_acceptance_is_that_of_the_nearest_batch_measured(capsys, folder):
    """A drafter that bets less where more texts share a pass: at 16 its rounds are hardly wider than plain ones."""
    much, little = Counts((0, 0, 0, 0, 99), (20, 20, 20, 20, 19)), Counts((90, 9), (91, 8))
    cells = [cell("free k=4", (much,) * 12), cell("free k=4", (little,) * 12, batch=16)]
    costs().save(folder / "p.json")
    report_of(folder, *cells)
    report = json.loads(plan(capsys, folder, "--json")[1])
    assert report["batches"] == [1, 16] and report["prompts"] == 12
    speeds = {choice["batch"]: choice["speedup"] for choice in report["choices"]}
    assert speeds[1] == pytest.approx(1 + sum(much.survival), rel=0.02) and speeds[16] == pytest.approx(1.08, abs=0.03)
    report_of(folder, cells[0])
    assert json.loads(plan(capsys, folder, "--json")[1])["choices"][-1]["speedup"] > 2.5, "one batch tells of all"


def test_a_drafter_of_unknown_cost_is_not_free(capsys, folder):
    report_of(folder, chain("none", 0.5), chain("model k=4", 0.6), chain("eagle3 k=4", 0.9))
    report = json.loads(plan(capsys, folder, "--json")[1])
    assert {choice["drafter"] for choice in report["choices"]} == {"model"} and report["not_profiled"] == ["eagle3"]
    assert "without eagle3" in " ".join(plan(capsys, folder)[1].split())
    report_of(folder, chain("eagle3 k=4", 0.9))
    code, _, err = plan(capsys, folder)
    assert code == 2 and "no costs of eagle3" in err and err.count("\n") == 1


def test_a_profile_of_another_model_is_pointed_out(capsys, folder):
    known = costs()
    Profile(known.passes, known.drafting, model={"name": "one"}).save(folder / "p.json")
    for name, count in {"one": 1, "two": 2}.items():
        report_of(folder, chain("model k=4", 0.8), model=name)
        assert len(json.loads(plan(capsys, folder, "--json")[1])["notes"]) == count


def test_what_cannot_be_chosen_is_not_recommended(capsys, folder):
    """Another engine, and a rule under which the text would be another one."""
    served = replace(chain("endpoint m", 0.99), parts={})
    report_of(folder, served, chain("model k=4 typical-lossy", 0.95), chain("model k=4 token", 0.6))
    report = json.loads(plan(capsys, folder, "--json")[1])
    assert {(choice["drafter"], choice["rule"]) for choice in report["choices"]} == {("model", "token")}
    assert "under rule token" in report["advice"]


def test_it_says_when_not_to(capsys, folder):
    costs(c=0.9, ridge=0.9).save(folder / "p.json")
    report = json.loads(plan(capsys, folder, "--json", "--task", "copy")[1])
    assert "do not speculate" in report["advice"] and "plain ones: drafts are" in report["advice"]
    best = max(report["choices"], key=lambda choice: choice["speedup"])
    assert best["speedup"] == pytest.approx(best["tokens_a_round"] / (1 + best["widening"] + best["drafting"]))
    assert report["choices"][0]["drafting"] > 0.8, "0.9 of a plain round for every drafted token, alone"


def test_mistakes_are_one_line(capsys, folder):
    code, _, err = plan(capsys, folder, "--task", "poems")
    assert code == 2 and "poems" in err
    assert main(["plan", "--profile", str(folder / "p.json")]) == 2
    assert "--bench" in capsys.readouterr().err
