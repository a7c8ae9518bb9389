"""The account, used as a person would: every slider, the reference tables, the map, pasted and loaded numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.web.conftest import PHONE, Open
from truedraft.planning.account import expected_tokens, speedup, sweet_spot


def text(page: Any, selector: str) -> str:
    return str(page.inner_text(selector)).strip()


def figures(page: Any) -> tuple[str, ...]:
    return tuple(text(page, f"#figure-{name}") for name in ("gain", "tokens", "cost", "best"))


def test_reference_tables(open_page: Open) -> None:
    page = open_page("account")
    shown = page.locator("#tables td").all_inner_texts()
    assert shown == ["1.38", "1.98", "2.93", "1.98", "1.26", "0.92", "1.55", "1.98", "1.78"]
    assert page.inner_text("#tables .loss").split() == ["0.5", "0.92"]


def test_the_sliders(open_page: Open) -> None:
    page = open_page("account")
    assert figures(page) == ("1.98×", "2.77", "1.40", "4 (1.98×)")
    page.fill("#alpha", "0.8")
    assert figures(page)[0] == "2.40×"
    page.fill("#c", "0.3")
    page.fill("#k", "8")
    gain = speedup(expected_tokens(0.8, 8), 8, 0.3)
    best = sweet_spot([0.8] * 16, 0.3)
    assert figures(page) == (f"{gain:.2f}×", f"{expected_tokens(0.8, 8):.2f}", "3.40", f"{best[0]} ({best[1]:.2f}×)")
    page.focus("#k")
    page.keyboard.press("ArrowLeft")
    assert text(page, "#k-value") == "7" and "k=7" in page.url and "alpha=0.8" in page.url


def test_more_decay_batch_and_ridge(open_page: Open) -> None:
    page = open_page("account", "lang=en&alpha=0.8")
    page.click("#more summary")
    page.fill("#decay", "0.9")
    rates = [0.8 * 0.9**j for j in range(16)]
    k, gain = sweet_spot(rates, 0.1)
    assert text(page, "#figure-best") == f"{k} ({gain:.2f}×)"
    page.fill("#decay", "1")
    page.fill("#ridge", "60")
    assert text(page, "#ridge-value") == "64"
    page.fill("#batch", "40")
    assert text(page, "#batch-value") == "16"
    loaded = speedup(expected_tokens(0.8, 4), 4, 0.1, batch=16, ridge=64)
    assert text(page, "#figure-gain") == f"{loaded:.2f}×"
    page.fill("#ridge", "101")
    assert text(page, "#ridge-value") == "none" and text(page, "#figure-gain") == "2.40×"


VERDICTS = [
    ("alpha=0.7&c=0.1&k=4", "worth-it", "This is the best length"),
    ("alpha=0.7&c=0.5&k=4", "other-length", "k = 1 gives 1.13"),
    ("alpha=0.7&c=0.1&k=4&batch=300&ridge=100", "past-the-ridge", "300 × 5 = 1500 tokens"),
    ("alpha=0.8&c=0.9&k=4", "draft-too-expensive", "A draft step costs 0.90"),
    ("alpha=0.1&c=0.1&k=4", "acceptance-too-low", "Of 4 drafted tokens 0.11 stand"),
]


def test_the_verdict_in_words(open_page: Open) -> None:
    page = open_page("account")
    for state, advice, says in VERDICTS:
        page.evaluate("state => { location.hash = state; }", f"lang=en&{state}")
        page.wait_for_selector(f"#verdict[data-advice={advice}]")
        assert says in text(page, "#verdict")
        page.click("#language")
        assert page.get_attribute("#verdict", "data-advice") == advice
        assert "lang=zh" in page.url and says not in text(page, "#verdict")


def test_the_map_by_mouse_and_by_keyboard(open_page: Open) -> None:
    page = open_page("account")
    assert page.locator("#map rect[data-alpha]").count() == 21 * 13
    page.click("#map rect[data-alpha='0.7'][data-c='0.5']")
    assert text(page, "#figure-gain") == "0.92×"
    assert text(page, "#map-note") == "α = 0.70, c = 0.50: 0.92× with k = 4."
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert (page.input_value("#alpha"), page.input_value("#c")) == ("0.75", "0.45")
    page.check("input[name=map][value=best]")
    k, gain = sweet_spot([0.75] * 16, 0.45)
    assert text(page, "#map-note") == f"α = 0.75, c = 0.45: {gain:.2f}× with k = {k}."
    page.click("#map rect[data-alpha='0'][data-c='0.5']")
    assert "nothing pays" in text(page, "#map-note")


def test_three_numbers_pasted(open_page: Open) -> None:
    page = open_page("account")
    for pasted in ("0.7 0.3 4", "0.7, 0.3, 4", "alpha=0.7 c=0.3 k=4", "α: 0.7\nc: 0.3\nk: 4"):
        page.fill("#k", "2")
        page.fill("#paste", pasted)
        page.click("#use")
        assert text(page, "#figure-gain") == "1.26×"
        assert text(page, "#paste-note").startswith("Read: alpha = 0.7, c = 0.3, k = 4")


def test_a_bench_file_with_measured_rates(open_page: Open, tmp_path: Path) -> None:
    report = {"runs": [{"name": "x", "statistics": {"acceptance_by_position": [0.8, 0.6, 0.5], "k": 3}, "c": 0.25}]}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(report))
    page = open_page("account")
    page.set_input_files("#file", path)
    page.wait_for_function("document.querySelector('#paste-note').textContent !== ''")
    assert "Worked out: alpha from acceptance_by_position" in text(page, "#paste-note")
    tokens = 1 + 0.8 + 0.8 * 0.6 + 0.8 * 0.6 * 0.5
    assert figures(page)[:2] == (f"{tokens / 1.75:.2f}×", f"{tokens:.2f}")
    assert "rates=0.8,0.6,0.5" in page.url
    assert "0.80, 0.60, 0.50" in text(page, "#rates-note")
    page.reload()
    assert figures(page)[1] == f"{tokens:.2f}"
    page.fill("#alpha", "0.7")
    assert "rates" not in page.url and text(page, "#rates-note") == ""


def test_the_report_of_a_run(open_page: Open) -> None:
    """What `truedraft generate --json` prints: k and c are worked out from its counts and times."""
    report = {
        "rounds": 100,
        "drafted": 410,
        "acceptance_by_position": [0.7, 0.6, 0.5, 0.5, 0.5],
        "seconds_by_part": {"draft": 0.82, "target": 2.0, "rule": 0.1, "rest": 0.1},
    }
    page = open_page("account")
    page.fill("#paste", json.dumps(report))
    page.click("#use")
    assert "k from drafted / rounds, c from seconds_by_part" in text(page, "#paste-note")
    assert (text(page, "#k-value"), text(page, "#c-value")) == ("4", "0.10")


def test_alpha_from_what_engines_report(open_page: Open) -> None:
    page = open_page("account")
    page.fill("#paste", json.dumps({"tokens_per_pass": expected_tokens(0.7, 4), "k": 4}))
    page.click("#use")
    assert text(page, "#alpha-value") == "0.70"
    page.fill("#paste", json.dumps({"acceptance_rate": (expected_tokens(0.9, 4) - 1) / 4, "depth": 4}))
    page.click("#use")
    assert text(page, "#alpha-value") == "0.90"
    assert "Not found and left as it was: c" in text(page, "#paste-note")


UNREADABLE = {
    "": "No number found",
    "hello": "No number found",
    "{": "not valid JSON",
    "[]": "No number found",
    "1.7 0.1 4": "alpha = 1.7 is out of range",
    "0.7 -0.1 4": "c = -0.1 is out of range",
    "0.7 0.1 4.5": "k = 4.5 is out of range",
    '{"alpha": 0.5, "k": 1e9}': "k = 1000000000 is out of range",
    '{"alpha": "<img src=x onerror=alert(1)>"}': "No number found",
}


def test_what_cannot_be_read_says_why(open_page: Open) -> None:
    page = open_page("account")
    for pasted, says in UNREADABLE.items():
        page.fill("#paste", pasted)
        page.click("#use")
        assert says in text(page, "#paste-note")
        assert figures(page)[0] == "1.98×"


def test_a_file_too_large_is_refused(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    page = open_page("account")
    page.set_input_files("#file", path)
    page.wait_for_function("document.querySelector('#paste-note').textContent.includes('200 MB')")


def test_the_dice_and_the_account_have_one_expectation(open_page: Open) -> None:
    """Constant alpha: two tokens, p and q chosen so that min(p, q) sums to 0.7 everywhere."""
    p, q = "0.85,0.15,0,0,0,0", "0.55,0.45,0,0,0,0"
    state = "&".join(f"p{i}={p}&q{i}={q}" for i in range(1, 5))
    dice = open_page("dice", f"lang=en&k=4&{state}")
    account = open_page("account", "lang=en&alpha=0.7&k=4")
    assert text(dice, "#yield-theory") == "2.773"
    assert text(account, "#figure-tokens") == "2.77"


def test_chinese_on_a_dark_phone(open_page: Open) -> None:
    page = open_page("account", "lang=zh&alpha=0.3&c=0.6", viewport=PHONE, color_scheme="dark")
    assert "保留的草稿太少" in text(page, "#verdict") or "起草太贵" in text(page, "#verdict")
    page.fill("#paste", "没有数")
    page.click("#use")
    assert "没有找到数值" in text(page, "#paste-note")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
