"""The dice, used as a person would: settings, throws, runs, editing, sharing. Right rules hold, the wrong one fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.conftest import PHONE, Open

THEORY = {  # preset, rule, k -> E
    ("story", "token", 8): 2.425,
    ("story", "block", 8): 3.002,
    ("code", "token", 8): 6.905,
    ("code", "block", 8): 7.357,
    ("copied", "target-only", 8): 6.174,
    ("greedy", "target-only", 8): 8.0,
    ("story", "token", 1): 1.62,
}


def run(page: Any, button: str = "#run-1000", rounds: str = "1,000") -> None:
    page.click(button)
    page.wait_for_function("rounds => document.querySelector('#yield-rounds').textContent === rounds", arg=rounds)


def text(page: Any, selector: str) -> str:
    return str(page.inner_text(selector)).strip()


def test_theory_of_every_situation(open_page: Open) -> None:
    page = open_page("dice")
    for (preset, rule, k), expected in THEORY.items():
        page.check(f"input[value={preset}]")
        page.check(f"input[value={rule}]")
        page.fill("#k", str(k))
        assert text(page, "#yield-theory") == f"{expected:.3f}"
        assert text(page, "#k-value") == str(k)


def test_a_round_step_by_step(open_page: Open) -> None:
    page = open_page("dice", "lang=en&k=3")
    assert text(page, "#narration").startswith("Press Step")
    page.click("#step")
    assert "has drafted 3 tokens" in text(page, "#narration")
    assert page.locator(".card .gauge").count() == 3
    play = page.evaluate(
        "() => Simulation.play(Simulation.create({pairs: Presets.copy('story'), k: 3, rule: 'token', seed: 2}))"
    )
    for coin in play["coins"]:
        page.keyboard.press("s")
        assert f"Position {coin['position'] + 1}: u = {coin['u']:.2f}" in text(page, "#narration")
        assert ("stands" in text(page, "#narration")) == coin["passed"]
    page.click("#step")
    accepted = play["verdict"]["accepted"]
    assert page.locator(".card.is-accepted").count() == accepted
    assert page.locator(".card.is-corrected").count() == (accepted < 3)
    assert text(page, "#yield-rounds") == "1"
    assert text(page, "#yield-emitted") == str(accepted + 1)


@pytest.mark.parametrize("rule", ["token", "block", "target-only", "careless"])
def test_every_rule_plays_through(open_page: Open, rule: str) -> None:
    page = open_page("dice", f"lang=en&preset=code&rule={rule}")
    while text(page, "#yield-rounds") != "4":
        page.click("#step")
    ended = page.locator(".card.is-corrected, .card.is-bonus").count()
    assert ended == 1


def test_play_and_pause(open_page: Open) -> None:
    page = open_page("dice", "lang=en&k=1")
    page.keyboard.press("p")
    assert text(page, "#play-label") == "Pause"
    page.wait_for_function("document.querySelector('#yield-rounds').textContent === '1'")
    page.click("#play")
    assert text(page, "#play-label") == "Play"


def test_a_right_rule_holds_and_the_wrong_one_fails(open_page: Open) -> None:
    page = open_page("dice")
    run(page)
    assert "agrees with the target" in text(page, "#fit")
    assert page.get_attribute("#fit", "class") == "notice good"
    page.check("input[value=careless]")
    assert "Too few rounds" in text(page, "#fit")
    run(page)
    assert "not the target's distribution" in text(page, "#fit")
    assert page.get_attribute("#fit", "class") == "notice bad"
    assert page.locator("#positions .is-off").count() >= 1
    page.check("input[value=block]")
    run(page)
    assert "agrees" in text(page, "#fit")


def test_the_wrong_rule_emits_the_law_that_it_should(scripts: Any) -> None:
    """min(p, q) + (1 - alpha) p at the first position, which is not p."""
    p, q, counts = scripts("dice").evaluate(
        """() => {
            const game = Simulation.create({pairs: Presets.copy("story"), k: 2, rule: "careless", seed: 5});
            Simulation.run(game, 200000);
            return [Array.from(game.p[0]), Array.from(game.q[0]), game.tally.counts[0]];
        }"""
    )
    shared = [min(pair) for pair in zip(p, q, strict=True)]
    for count, both, share in zip(counts, shared, p, strict=True):
        assert count / 200000 == pytest.approx(both + (1 - sum(shared)) * share, abs=0.006)


def test_temperature_zero_cannot_tell_the_rules_apart(open_page: Open) -> None:
    page = open_page("dice", "lang=en&preset=greedy&rule=careless")
    run(page)
    assert "only one the target allows" in text(page, "#fit")


def test_a_hundred_thousand_rounds_leave_the_page_alive(open_page: Open) -> None:
    page = open_page("dice", "lang=en&preset=code")
    page.evaluate("() => { window.frames_ = 0; const f = () => { window.frames_++; requestAnimationFrame(f); }; f(); }")
    run(page, "#run-100000", "100,000")
    assert page.evaluate("window.frames_") >= 3  # the page was painted while the dice ran
    assert abs(float(text(page, "#yield-mean")) - 6.905) < 4 * 2.78 / 100000**0.5
    assert "100,000 rounds done" in text(page, "#narration")


def test_a_seeded_run_shows_these_numbers(open_page: Open) -> None:
    page = open_page("dice", "lang=en&seed=11&k=5")
    run(page)
    tally = page.evaluate(
        """() => {
            const game = Simulation.create({pairs: Presets.copy("story"), k: 5, rule: "token", seed: 11});
            Simulation.run(game, 1000);
            return game.tally;
        }"""
    )
    assert text(page, "#yield-mean") == f"{tally['emitted'] / 1000:.3f}"
    shown = page.locator("#histogram tbody td:nth-child(3)").all_inner_texts()
    assert shown == [str(count) for count in tally["counts"][0]]
    page.click("#positions button:nth-child(2)")
    shown = page.locator("#histogram tbody td:nth-child(3)").all_inner_texts()
    assert shown == [str(count) for count in tally["counts"][1]]


def test_seed_and_length_start_a_new_game(open_page: Open) -> None:
    page = open_page("dice")
    run(page)
    first = text(page, "#yield-mean")
    page.fill("#seed", "77")
    page.press("#seed", "Enter")
    assert text(page, "#yield-rounds") == "0" and "seed=77" in page.url
    run(page)
    assert text(page, "#yield-mean") != first
    page.focus("#k")
    page.keyboard.press("ArrowLeft")
    assert text(page, "#k-value") == "7" and page.locator(".card").count() == 8
    page.click("#reset")
    assert text(page, "#yield-mean") == "–"


def test_bars_show_p_q_their_minimum_and_the_residual(open_page: Open) -> None:
    page = open_page("dice")
    assert page.locator("#pair tbody tr:nth-child(1) td").all_inner_texts()[1:] == ["0.34", "0.18", "0.18", "0.42"]
    assert page.locator("#pair .rest").count() == 6
    assert "α = Σ min(p, q) = 0.620" in text(page, "#pair-note")
    page.click(".card:nth-child(9) button")
    assert "Position 9, the bonus" in text(page, "#pair-title")
    assert "drawn from p" in text(page, "#pair-note")


def test_editing_changes_the_pair_and_the_address(open_page: Open) -> None:
    page = open_page("dice", "lang=en&k=1")
    page.check("#edit")
    for token, share in enumerate([34, 16, 14, 14, 12, 10]):  # q becomes p
        page.fill(f"#pair input[data-side=q][data-token='{token}']", str(share))
        page.press(f"#pair input[data-side=q][data-token='{token}']", "Tab")
    q = page.evaluate("Address.numbers('q1')")
    assert sum(q) == pytest.approx(1)
    page.reload()
    assert text(page, "#preset-note") == "Your own numbers."
    assert page.evaluate("Address.numbers('q1')") == q
    page.goto(page.url.split("#")[0] + "#lang=en&k=1&q1=0.34,0.16,0.14,0.14,0.12,0.1")
    assert text(page, "#yield-theory") == "2.000"
    page.check("input[value=code]")
    assert "q1" not in page.url and text(page, "#yield-theory") != "2.000"


def test_a_view_is_shared_by_its_address(open_page: Open) -> None:
    page = open_page("dice", "lang=en&preset=code&rule=block&k=5&seed=9&at=3")
    assert text(page, "#pair-title") == "Position 3"
    assert (page.input_value("#k"), page.input_value("#seed")) == ("5", "9")
    assert page.is_checked("input[value=code]") and page.is_checked("input[value=block]")


@pytest.mark.parametrize("state", ["preset=none&rule=x&k=99&seed=-3&at=77", "k=&q1=1,2&p2=a,b,c,d,e,f&p1=0,0,0,0,0,0"])
def test_nonsense_in_the_address_falls_back(open_page: Open, state: str) -> None:
    page = open_page("dice", f"lang=en&{state}")
    assert text(page, "#yield-theory") == "2.425"


def test_chinese_on_a_dark_phone(open_page: Open) -> None:
    page = open_page("dice", "lang=zh", viewport=PHONE, color_scheme="dark")
    page.click("#step")
    assert "小模型起草了 8 个词元" in text(page, "#narration")
    run(page, rounds="1,001")  # a round begun is a round counted
    assert "一致" in text(page, "#fit")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
