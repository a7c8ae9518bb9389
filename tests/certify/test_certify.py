"""Certificates: a right engine passes every check, every known fault is refuted, and the report says so everywhere."""

import json

import pytest

from tests.folders import folder
from truedraft.certify.checks import Examination, examine
from truedraft.certify.report import Certificate, Check
from truedraft.certify.statistics import goodness_of_fit
from truedraft.cli import main
from truedraft.request import Parameters
from truedraft.verify.mutants import MUTANTS, mutant_named


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("small"), seed=1)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": text}) + "\n" for text in ("abcabcabcab", "xyzzyxyzzyxy", "hello hello h"))
    )
    return str(path)


def certify(capsys, *arguments):
    code = main(["certify", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else None, captured.err


DRAFTERS = {
    "ngram": ["--drafter", "ngram"],
    "model chain": ["--drafter", "model", "-k", "2"],
    "model tree": ["--drafter", "model", "--tree", "2x1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_right_engine_passes_every_check(capsys, model, small, prompts, drafter):
    options = [*DRAFTERS[drafter], *(["--draft-model", small] if drafter != "ngram" else [])]
    code, report, err = certify(
        capsys, "--model", model, *options, "--prompts", prompts, "--tokens", 24, "--draws", 600
    )
    assert code == 0, err
    assert report["lossless"] is True
    assert {check["name"]: check["passed"] for check in report["checks"]} == {
        "enumeration": True,
        "greedy identity": True,
        "sampled law": True,
        "forward parity": True,
        "seeded identity": True,
    }
    assert all(check["claim"] and check["finding"] and check["figures"] for check in report["checks"])


@pytest.mark.parametrize("mutant", [mutant.name for mutant in MUTANTS])
def test_every_known_fault_is_refuted(capsys, model, prompts, mutant):
    code, report, _ = certify(
        capsys, "--model", model, "--prompts", prompts, "--count", 1, "--tokens", 2, "--draws", 4000, "--mutant", mutant
    )
    assert code == 1 and report["lossless"] is False
    failed = {check["name"] for check in report["checks"] if check["passed"] is False}
    assert "enumeration" in failed
    assert report["subject"]["rule"] == mutant and report["subject"]["fault"] == mutant_named(mutant).fault


def test_the_residual_mutant_is_refuted_by_draws_alone(capsys, model, prompts):
    _, report, _ = certify(
        capsys, "--model", model, "--prompts", prompts, "--count", 1, "--draws", 6000, "--mutant", "residual-forgotten"
    )
    outcome = {check["name"]: check["passed"] for check in report["checks"]}
    assert outcome["sampled law"] is False


def test_the_coupled_rule_is_certified_by_other_checks(capsys, model, prompts):
    options = ["--prompts", prompts, "--count", 1, "--tokens", 8, "--draws", 600, "--rule", "coupled"]
    code, report, err = certify(capsys, "--model", model, *options)
    assert code == 0 and report["lossless"] is True, err
    outcome = {check["name"]: check["passed"] for check in report["checks"]}
    assert outcome["enumeration"] is None and outcome["sampled law"] is outcome["seeded identity"] is True
    assert report["verdict"].endswith("Not run: enumeration.")


def test_too_few_draws_show_nothing_and_say_so(capsys, model, prompts):
    """At a high temperature 64 texts are about equally likely, and each is expected less than twice."""
    options = ["--prompts", prompts, "--count", 1, "--tokens", 2, "--draws", 100, "--temperature", 100]
    code, report, _ = certify(capsys, "--model", model, *options)
    law = next(check for check in report["checks"] if check["name"] == "sampled law")
    assert code == 0 and law["passed"] is None and "seen" not in law["finding"]
    assert "too few draws: 100" in law["finding"] and f"{law['figures']['enough']:,} or more" in law["finding"]
    assert "Not run: sampled law." in report["verdict"]


def test_stop_tokens_do_not_cut_what_is_compared(model):
    from truedraft.build import load

    loaded = load(model, drafter="ngram")
    parameters = Parameters(temperature=1.0, stop_token_ids=range(257))
    certificate = examine(Examination(loaded, [[1, 2, 3, 1, 2]], parameters, tokens=3, draws=600))
    assert {check.name: check.passed for check in certificate.checks}["sampled law"] is True


def test_a_lossy_rule_is_never_certified(capsys, model, prompts):
    code, report, _ = certify(
        capsys,
        "--model",
        model,
        "--prompts",
        prompts,
        "--count",
        1,
        "--tokens",
        4,
        "--draws",
        100,
        "--rule",
        "typical-lossy",
    )
    assert code == 1 and report["lossless"] is False and "lossy" in report["subject"]["rule"]


def test_the_page_escapes_what_it_shows(tmp_path, capsys, model, prompts):
    page = tmp_path / "report.html"
    certify(capsys, "--model", model, "--prompts", prompts, "--count", 1, "--tokens", 2, "--draws", 100, "--html", page)
    assert "Certificate of losslessness" in page.read_text()
    shown = Certificate({"target": "<script>"}, (Check("x", "<b>", True, "&"),)).to_html()
    assert "<script>" not in shown and "&lt;b&gt;" in shown


@pytest.mark.parametrize(
    ("outcomes", "lossless", "passes"),
    [([True, None], True, True), ([True, False], True, False), ([None], True, False), ([True], False, False)],
)
def test_the_verdict_follows_from_the_checks(outcomes, lossless, passes):
    checks = tuple(Check("c", "", outcome, "") for outcome in outcomes)
    certificate = Certificate({}, checks, rule_is_lossless=lossless)
    assert certificate.lossless is passes and certificate.to_json()["lossless"] is passes


def test_the_stated_power_is_real():
    law = {(token,): 0.1 for token in range(10)}
    fit = goodness_of_fit({text: 1000 for text in law}, law)
    assert fit.passed and fit.p_value == pytest.approx(1)
    shift = fit.seen  # half the bins up, half down, by a total variation of `seen`
    biased = {(token,): round(1000 * (1 + (2 * shift if token % 2 else -2 * shift))) for token in range(10)}
    assert not goodness_of_fit(biased, law).passed
    assert not goodness_of_fit({**{text: 1000 for text in law}, (99,): 1}, law).passed


def test_a_fit_without_two_bins_is_none():
    law = {(token,): 0.001 for token in range(1000)}
    counts = {(token,): 1 for token in range(100)}
    fit = goodness_of_fit(counts, law)
    assert fit.passed is fit.seen is None and fit.bins == 1 and 5000 <= fit.enough <= 5002
    assert goodness_of_fit({**counts, (1000,): 1}, law).passed is False
    more = goodness_of_fit({(token,): fit.enough / 1000 for token in range(1000)}, law)
    assert more.passed and more.bins > 1


def test_a_law_of_one_text_is_never_enough():
    fit = goodness_of_fit({(7,): 100}, {(7,): 1.0})
    assert fit.passed is fit.enough is None
    assert goodness_of_fit({(7,): 99, (8,): 1}, {(7,): 1.0}).passed is False


def test_a_few_rare_texts_belong_to_a_bin():
    law = {(0,): 0.5, (1,): 0.499, (2,): 0.001}
    fit = goodness_of_fit({(0,): 500, (1,): 400, (2,): 100}, law)
    assert fit.bins == 2 and fit.statistic == pytest.approx(0.0)
    assert not goodness_of_fit({(0,): 400, (1,): 500, (2,): 100}, law).passed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--mutant", "nonsense"], "nonsense"), (["--draws", "1"], "draws"), (["--prompts", "/none"], "/none")],
)
def test_mistakes_get_one_line(capsys, model, arguments, named):
    code, _, err = certify(capsys, "--model", model, *arguments)
    assert code == 2 and named in err and err.strip().count("\n") == 0


def test_examinations_are_told_as_they_go(model, prompts):
    from truedraft.build import load

    loaded = load(model, drafter="ngram")
    heard = []
    what = Examination(loaded, [[1, 2, 3, 1, 2]], Parameters(temperature=1.0), tokens=3, draws=100)
    certificate = examine(what, told=heard.append)
    assert heard == [check.name for check in certificate.checks]
