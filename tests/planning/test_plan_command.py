"""`truedraft plan` as a person uses it."""

import json

import pytest

from tests.planning.test_account import REFERENCE
from truedraft.cli import main


def plan(capsys, *arguments):
    assert main(["plan", "--json", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("alpha", "cost", "k", "expected"), REFERENCE)
def test_reference_values(capsys, alpha, cost, k, expected):
    report = plan(capsys, "--alpha", alpha, "--cost", cost, "--draft-tokens", k)
    assert f"{report['speedup']:.2f}" == f"{expected:.2f}"
    assert report["expected_tokens"] == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


def test_the_sweet_spot(capsys):
    report = plan(capsys, "--alpha", 0.7, "--cost", 0.1, "--draft-tokens", 8)
    assert report["best_draft_tokens"] == 4 and f"{report['best_speedup']:.2f}" == "1.98"
    assert [row["draft_tokens"] for row in report["table"]] == list(range(17))


@pytest.mark.parametrize(("longest", "k"), [(1, 1), (1024, 4), (8, 12)])
def test_every_length_up_to_the_longest_is_considered_and_the_one_asked_for(capsys, longest, k):
    report = plan(capsys, "--alpha", 0.7, "--longest", longest, "--draft-tokens", k)
    assert [row["draft_tokens"] for row in report["table"]] == list(range(max(longest, k) + 1))


def test_rates_by_position_yield_less_than_a_constant_one(capsys):
    falling = plan(capsys, "--rates", "0.7,0.6,0.5,0.4", "--draft-tokens", 4)
    assert falling["expected_tokens"] == pytest.approx(1 + 0.7 * (1 + 0.6 * (1 + 0.5 * (1 + 0.4))))


@pytest.mark.parametrize(
    ("arguments", "advice", "words"),
    [
        (["--alpha", "0.7"], "worth-it", "worth it"),
        (["--alpha", "0.8", "--cost", "0.9"], "draft-too-expensive", "do not speculate: the drafter"),
        (["--alpha", "0.1"], "acceptance-too-low", "do not speculate: too little"),
        (["--alpha", "0.7", "--batch", "300", "--ridge", "100"], "past-the-ridge", "do not speculate at this batch"),
    ],
)
def test_the_three_ways_to_lose_are_told_apart(capsys, arguments, advice, words):
    report = plan(capsys, *arguments)
    assert report["advice"] == advice
    assert main(["plan", *arguments]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


def test_short_outputs_gain_less(capsys):
    assert plan(capsys, "--alpha", 0.9, "--overhead", 0.5)["speedup"] == pytest.approx(
        1 / (0.5 + 0.5 / 2.925), abs=1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--alpha"),
        (["--alpha", "0.5", "--rates", "0.5"], "--alpha"),
        (["--alpha", "1.5"], "1.5"),
        (["--rates", "0.5;0.4"], "rates"),
        (["--rates", "0.5,0.4", "-k", "3"], "draft_tokens"),
        (["--alpha", "0.5", "-k", "0"], "draft_tokens"),
        (["--alpha", "0.5", "--overhead", "1"], "overhead"),
        (["--alpha", "0.5", "--cost", "-1"], "-1"),
        (["--alpha", "0.5", "--ridge", "0"], "ridge"),
        (["--alpha", "0.5", "--longest", "-5"], "longest is -5: expected 1 to 1024"),
        (["--alpha", "0.5", "--longest", "0"], "longest is 0"),
        (["--alpha", "0.5", "--longest", "1025"], "longest is 1025"),
        (["--alpha", "0.5", "-k", "1025"], "draft_tokens is 1025: expected 1 to 1024"),
        (["--rates", "0.5,0.4", "-k", "1025"], "draft_tokens is 1025"),
        (["--rates", ",".join(["0.5"] * 1025)], "rates has 1025 positions"),
        (["--rates", "0.5,0.4", "-k", "2", "--longest", "3"], "longest is not heeded with --rates"),
        (["--profile", "p", "--bench", "b", "--rates", "0.5"], "rates is not heeded with --profile and --bench"),
        (["--profile", "p", "--bench", "b", "--longest", "3"], "longest is not heeded with --profile and --bench"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, named):
    assert main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and error.strip().count("\n") == 0
