"""The round viewer, used as a person would: traces of every kind, good and bad, replayed, filtered and shared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import PHONE, Open
from tests.web.traces import HEADER, lines, synthetic
from truedraft.core import Draft, Round, Shape, Statistics, Timings, Tree, Verdict


def text(page: Any, selector: str) -> str:
    return str(page.inner_text(selector)).strip()


def load(page: Any, path: Path) -> str:
    """Load a file and wait for what the page has to say about it."""
    page.evaluate("document.querySelector('#status').textContent = ''")
    page.set_input_files("#file", path)
    page.wait_for_function("!['', 'Reading …'].includes(document.querySelector('#status').textContent)")
    return text(page, "#status")


def saved(path: Path, content: list[str] | str) -> Path:
    path.write_text(content if isinstance(content, str) else "\n".join(content) + "\n", encoding="utf-8")
    return path


def tree_round(index: int = 0, **changes: Any) -> Round:
    """Root, two children, the second with two children of its own; the path takes the second of each."""
    fields: dict[str, Any] = {
        "index": index,
        "shape": Shape.tree(2, 2),
        "draft": Draft(Tree((0, 1, 2, 3, 4), (-1, 0, 0, 2, 2))),
        "verdict": Verdict((2, 4), (2, 4, 5)),
        "emitted": 3,
        "timings": Timings(0.001, 0.02, 0.003, 0.0005),
        "p": (None, 0.25, 0.5, 0.125, 0.75),
        "q": (None, 0.375, 0.4375, 0.0625, 0.005),
    }
    return Round(**(fields | changes))


def test_totals_are_the_statistics_of_the_run(open_page: Open, tmp_path: Path) -> None:
    rounds = synthetic(300)
    statistics = Statistics()
    for record in rounds:
        statistics = statistics.add(record)
    page = open_page("rounds")
    assert load(page, saved(tmp_path / "run.jsonl", lines(rounds, header=HEADER))) == "run.jsonl: 300 rounds."
    total = page.evaluate(
        "text => TraceFacts.statistics(Trace.parse(text).rounds)", (tmp_path / "run.jsonl").read_text()
    )
    for name in ("rounds", "emitted", "drafted", "accepted"):
        assert total[name] == getattr(statistics, name)
    assert [position["tried"] for position in total["positions"]] == list(statistics.tried)
    assert [position["hits"] for position in total["positions"]][: len(statistics.hits)] == list(statistics.hits)
    assert total["tokensPerPass"] == pytest.approx(statistics.tokens_per_pass, rel=1e-12)
    assert total["acceptanceRate"] == pytest.approx(statistics.acceptance_rate, rel=1e-12)
    assert total["seconds"] == pytest.approx(statistics.timings.total, rel=1e-12)
    assert text(page, "#figure-rounds") == "300"
    assert text(page, "#figure-emitted") == str(statistics.emitted)
    assert text(page, "#figure-perPass") == f"{statistics.tokens_per_pass:.2f}"
    assert text(page, "#figure-rate") == f"{100 * statistics.acceptance_rate:.1f} %"
    shown = page.locator("#by-position tr:nth-child(4) td").all_inner_texts()
    assert shown == [f"{rate:.2f}" for rate in statistics.acceptance_by_position]


def test_a_tree_with_its_path_its_shares_and_its_time(open_page: Open, tmp_path: Path) -> None:
    page = open_page("rounds")
    load(page, saved(tmp_path / "tree.jsonl", lines([tree_round()], header=HEADER)))
    assert page.locator("#tree .node").count() == 6
    assert page.locator("#tree .node.is-accepted .piece").all_text_contents() == ["·brown", "·jumps"]
    assert page.locator("#tree .node.is-refused .piece").all_text_contents() == ["·quick", "·fox"]
    assert page.locator("#tree .node.is-bonus .piece").all_text_contents() == ["·over"]
    assert page.locator("#tree .node .share").all_text_contents()[1:3] == ["p 0.25  q 0.38", "p 0.50  q 0.44"]
    assert page.locator("#tree .node .share").all_text_contents()[4] == "p 0.75  q <0.01"
    assert "4 drafted, 2 accepted, and the bonus token came for free: 3 tokens" in text(page, "#round-story")
    time = " ".join(text(page, "#round-time").split())
    assert time == "draft 1.0 ms (4 %) target 20.0 ms (82 %) rule 3.0 ms (12 %) rest 0.5 ms (2 %)"
    assert [page.locator(f"#text .is-{origin}").count() for origin in ("accepted", "corrected", "bonus")] == [2, 0, 1]
    boxes = page.evaluate(
        "[...document.querySelectorAll('#tree rect')].map(r => [r.x.baseVal.value, r.y.baseVal.value])"
    )
    assert len({tuple(box) for box in boxes}) == 6  # no box lies on another


def test_corrections_cuts_and_tokens_taken_back(open_page: Open, tmp_path: Path) -> None:
    rounds = [
        tree_round(0, verdict=Verdict((2,), (2, 7)), emitted=2),
        tree_round(1, draft=Draft.empty(7), shape=Shape(0), verdict=Verdict((), (8,)), emitted=1, p=None, q=None),
        tree_round(2, emitted=-2),  # a stop string that began two tokens earlier
    ]
    page = open_page("rounds")
    load(page, saved(tmp_path / "run.jsonl", lines(rounds, header=HEADER)))
    assert page.locator("#tree .node.is-corrected .piece").all_text_contents() == ["·lazy"]
    page.click("#next")
    assert "Nothing was drafted" in text(page, "#round-story")
    assert page.locator("#text .is-plain").count() == 1
    page.click("#next")
    assert page.locator("#text .mark").all_inner_texts() == [" brown"]
    assert "cut this round short" in text(page, "#round-story")
    assert "✂" in page.locator("#tree .piece").all_text_contents()
    assert page.evaluate("TraceFacts.statistics(Trace.parse(SampleTrace).rounds).rounds") > 0


def test_scrub_step_play_and_share(open_page: Open, tmp_path: Path) -> None:
    page = open_page("rounds")
    path = saved(tmp_path / "run.jsonl", lines(synthetic(5), header=HEADER))
    load(page, path)
    assert text(page, "#round-title") == "Round 1 of 5"
    page.click("#next")
    page.keyboard.press("ArrowRight")
    assert text(page, "#round-title") == "Round 3 of 5" and "round=3" in page.url
    page.keyboard.press("ArrowLeft")
    page.click("#back")
    assert text(page, "#round-title") == "Round 1 of 5"
    page.fill("#scrub", "3")
    assert text(page, "#round-title") == "Round 4 of 5"
    page.click("#first")
    page.click("#end")
    assert text(page, "#round-title") == "Round 5 of 5"
    page.click("#strip", position={"x": 5, "y": 30})
    assert text(page, "#round-title") == "Round 1 of 5"
    page.click("#play")
    assert text(page, "#play-label") == "Pause"
    page.wait_for_function("document.querySelector('#round-title').textContent === 'Round 5 of 5'")
    page.wait_for_function("document.querySelector('#play-label').textContent === 'Play'")
    shared = open_page("rounds", "lang=en&round=7")
    assert text(shared, "#round-title").startswith("Round 7 of")


def test_filters_for_rounds_without_gain_and_for_a_text(open_page: Open, tmp_path: Path) -> None:
    first, second = synthetic(20), synthetic(12, seed=3)
    vain = [i for i, record in enumerate(first) if len(record.draft) and not record.accepted]
    page = open_page("rounds")
    content = [*lines(first, header=HEADER), *lines(second, session=1)]
    load(page, saved(tmp_path / "run.jsonl", content))
    page.select_option("#session", "0")
    page.check("#vain")
    seen = []
    page.click("#first")
    for _ in vain:
        seen.append(int(text(page, "#round-title").split()[1]) - 1)
        page.click("#next")
    assert seen == vain
    assert text(page, "#figure-rounds") == "20"
    page.uncheck("#vain")
    page.select_option("#session", "1")
    page.click("#first")
    assert text(page, "#round-title") == "Round 21 of 32"
    assert text(page, "#figure-rounds") == "12"
    plain = [tree_round(0, draft=Draft.empty(7), shape=Shape(0), verdict=Verdict((), (8,)), emitted=1, p=None, q=None)]
    load(page, saved(tmp_path / "plain.jsonl", lines(plain, header=HEADER)))
    page.check("#vain")
    assert text(page, "#round-title") == "No round matches this filter."
    assert page.is_disabled("#next")


def test_text_is_never_markup(open_page: Open, tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    header = {**HEADER, "prompt": evil, "model": evil, "drafter": {"a": evil}}
    entry = json.loads(lines([tree_round()])[0])
    entry["pieces"] = [evil] * 5
    entry["text"] = [evil] * 3
    page = open_page("rounds")
    load(page, saved(tmp_path / "<b>evil.jsonl", [json.dumps(header), json.dumps(entry)]))
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "The rounds – truedraft lab"
    assert evil in text(page, "#text") and evil in text(page, "#facts")
    assert "<b>evil.jsonl" in text(page, "#status")


GOOD = lines(synthetic(4), header=HEADER)


def broken(**changes: Any) -> list[str]:
    """A trace whose third round is changed."""
    return [*GOOD[:3], json.dumps(json.loads(GOOD[3]) | changes), GOOD[4]]


FOREIGN: list[tuple[list[str] | str, str]] = [
    ("", "This file is empty"),
    ("hello\nworld\n", "not a trace of truedraft"),
    ('{"cells": [], "nbformat": 4}\n', "not a trace of truedraft"),
    ("[1, 2, 3]\n", "not a trace of truedraft"),
    ('{"trace": 2}\n', "has format 2"),
    (GOOD[:1], "no round"),
    ([GOOD[0], '{"tokens": 5}'], "Line 2 is damaged (emitted)"),
    ([GOOD[0], "null"], "Line 2 is damaged"),
]


def test_what_is_no_trace_says_why_and_leaves_the_page_as_it_was(open_page: Open, tmp_path: Path) -> None:
    page = open_page("rounds")
    for number, (content, says) in enumerate(FOREIGN, start=1):
        assert says in load(page, saved(tmp_path / "file.jsonl", content))
        assert page.get_attribute("#status", "class") == "notice bad"
        page.click("#next")
        assert text(page, "#round-title").startswith(f"Round {number + 1} of")
    assert "4 rounds" in load(page, saved(tmp_path / "good.jsonl", GOOD))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parents": [-1]}, "parents"),
        ({"tokens": [0, 1], "parents": [-1, 1]}, "parents"),
        ({"path": [7]}, "path"),
        ({"verdict": []}, "verdict"),
        ({"emitted": 99}, "verdict"),
        ({"p": [2, -1]}, "p"),
        ({"pieces": [5]}, "pieces"),
        ({"text": None, "verdict": "x"}, "verdict"),
        ({"seconds": None}, "seconds"),
        ({"session": "a"}, "session"),
        ({"emitted": 1e400}, "emitted"),
    ],
)
def test_a_damaged_line_is_named_and_the_rounds_before_it_kept(
    scripts: Any, changes: dict[str, Any], says: str
) -> None:
    file = scripts("rounds").evaluate(
        "text => Trace.parse(text)", "\n".join(broken(**changes)).replace("Infinity", "null")
    )
    assert len(file["rounds"]) == 2
    assert file["notice"] == {"kind": "line", "line": 4, "detail": says}


def test_a_run_cut_off_in_the_middle_of_a_line(open_page: Open, tmp_path: Path) -> None:
    page = open_page("rounds")
    said = load(page, saved(tmp_path / "cut.jsonl", "\n".join(GOOD)[:-40]))
    assert said == "Line 5 is damaged (not JSON). The 3 rounds before it are shown."
    assert text(page, "#figure-rounds") == "3"


def test_200_megabytes_of_something_else(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    page = open_page("rounds")
    for start in (b"", b"\x7fELF\x00\xff"):
        with path.open("wb") as file:
            file.write(start)
            file.truncate(200_000_000)
        assert "longer than 4 MB" in load(page, path)
    page.click("#next")
    assert text(page, "#round-title").startswith("Round 2 of")


def test_a_trace_of_200_megabytes_is_shown_up_to_a_limit(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    some = "\n".join(lines(synthetic(500))) + "\n"
    with path.open("w") as file:
        file.write(json.dumps(HEADER) + "\n")
        for _ in range(200_000_000 // len(some) + 1):
            file.write(some)
    page = open_page("rounds")
    assert "longer than a page can show: it was read up to line 20,001" in load(page, path)
    assert text(page, "#figure-rounds") == "20,000"
    page.click("#end")
    assert text(page, "#round-title") == "Round 20,000 of 20,000"
    assert "tokens earlier" in text(page, "#text")
    path.unlink()


def test_a_wide_tree_is_drawn_in_part(open_page: Open, tmp_path: Path) -> None:
    nodes = 1500
    tree = Tree(tuple(i % 18 for i in range(nodes)), (-1, *(max(0, i // 3 - 1) for i in range(1, nodes))))
    record = tree_round(draft=Draft(tree), verdict=Verdict((), (3,)), emitted=1, p=None, q=None)
    page = open_page("rounds")
    load(page, saved(tmp_path / "wide.jsonl", lines([record], header=HEADER)))
    assert text(page, "#tree-note") == "400 of 1500 nodes are drawn."
    assert page.locator("#tree .node").count() == 401


def test_dropping_a_file(open_page: Open) -> None:
    page = open_page("rounds")
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.items.add(new File([text], "dropped.jsonl"));
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        "\n".join(GOOD),
    )
    page.wait_for_function("document.querySelector('#status').textContent === 'dropped.jsonl: 4 rounds.'")
    page.click("#sample")
    assert text(page, "#status").startswith("sample trace")


def test_the_sample_is_a_whole_trace(open_page: Open) -> None:
    page = open_page("rounds")
    file = page.evaluate("() => Trace.parse(SampleTrace)")
    assert file["notice"] is None and len(file["rounds"]) >= 20
    assert {"model", "drafter", "rule", "prompt", "parameters"} <= set(file["header"])
    assert any(len(record["path"]) >= 2 for record in file["rounds"])


def test_chinese_on_a_dark_phone(open_page: Open, tmp_path: Path) -> None:
    page = open_page("rounds", "lang=zh", viewport=PHONE, color_scheme="dark")
    assert text(page, "#status").startswith("示例轨迹")
    page.set_input_files("#file", saved(tmp_path / "x.jsonl", "nonsense"))
    page.wait_for_function("document.querySelector('#status').textContent.includes('这不是 truedraft 的轨迹文件')")
    page.click("#next")
    assert text(page, "#round-title").startswith("第 2 轮")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
