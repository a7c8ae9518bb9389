"""Charts, forecasts, pages and files of a run on toys."""

import json
import re
from html.parser import HTMLParser

import pytest

from tests.bench.test_runs import ALONE, arms, lines_of
from tests.bench.toys import Clock, model, oracle
from truedraft.bench.arms import ModelArm
from truedraft.bench.charts import Chart, Series, svg, write_png
from truedraft.bench.forecast import drafter_of, family_of, forecasts_of, length_of, rule_of
from truedraft.bench.grid import Load
from truedraft.bench.plots import charts_of
from truedraft.bench.report import Report, read_cells
from truedraft.bench.summary import cells_of
from truedraft.core import Shape
from truedraft.errors import ParameterError
from truedraft.planning.profile import PassTime, Profile

SLOPE = 0.02


def grid(clock):
    """Plain decoding, and oracles that are right for three tokens, with k = 2, 4 and 6."""
    made = {k: model(clock, oracle(right=3), Shape.chain(k), slope=SLOPE) for k in (2, 4, 6)}
    return [
        ModelArm("none", model(clock, slope=SLOPE), clock=clock),
        *(ModelArm(f"script k={k}", each, clock=clock) for k, each in made.items()),
    ]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    loads = [Load("toy", batch) for batch in (1, 4)]
    return lines_of(grid(Clock()), tmp_path_factory.mktemp("run"), loads=loads)


@pytest.fixture(scope="module")
def profile():
    points = [(batch, width) for batch in (1, 2, 4) for width in (1, 2, 4, 8)]
    return Profile(tuple(PassTime(8, *point, 1 + SLOPE * (point[0] * point[1] - 1)) for point in points))


def test_names_of_arms_say_drafter_and_length():
    assert (drafter_of("ngram k=12 token"), length_of("ngram k=12 token")) == ("ngram", 12)
    assert family_of("ngram k=12 token") == family_of("ngram k=2 token") != family_of("ngram k=2")
    assert rule_of("ngram k=12 token") == "token" and rule_of("eagle3 tree 3x2x1") == rule_of("free") == "auto"
    assert rule_of("model tree 16 k-seq policy auto") == "k-seq"
    assert length_of("recycle tree 16") is None and family_of("recycle tree 16") == "recycle tree 16"


def test_cells_are_predicted_from_the_longest_chain_at_their_batch(lines, profile):
    forecasts = forecasts_of(cells_of(lines), profile)
    assert len(forecasts) == 6
    assert all(forecast.source == f"script k=6, batch {forecast.cell.batch}" for forecast in forecasts)
    assert all(abs(forecast.miss) < 0.06 for forecast in forecasts), [f.miss for f in forecasts]
    assert all(forecast.is_close for forecast in forecasts)
    assert all(forecast.predicted.low <= forecast.predicted.value <= forecast.predicted.high for forecast in forecasts)


def test_a_miss_is_explained(lines):
    dear = Profile((PassTime(8, 1, 1, 1.0), PassTime(8, 1, 9, 9.0)))
    missed = [forecast for forecast in forecasts_of(cells_of(lines), dear) if not forecast.is_close]
    assert missed and all("passes that cost other than profiled" in forecast.why(dear) for forecast in missed)
    changed = [dict(line) for line in lines]
    for line in changed:
        if length_of(line["arm"]) == 2 and line["counts"]:
            line["counts"] = [dict(counts, accepted=[20]) for counts in line["counts"]]
    report = forecasts_of(cells_of(changed), dear)
    assert any("a round emitted 1.00 tokens" in forecast.why(dear) for forecast in report)


def test_charts_show_what_there_is(lines, profile):
    cells = cells_of(lines)
    charts = charts_of(cells, forecasts_of(cells, profile))
    assert set(charts) == {"positions-toy-t0", "batch-script-toy-t0", "k-toy-t0", "predicted"}
    by_batch = charts["batch-script-toy-t0"]
    assert by_batch.colour(0) == by_batch.colour(1) != by_batch.colour(2), "a prediction looks like what it predicts"
    assert [series.name for series in charts["positions-toy-t0"].series] == ["script k=6"]
    assert by_batch.level == 1.0 and [x for x, _ in by_batch.series[0].points] == [1.0, 4.0]
    assert [series.name for series in by_batch.series][:2] == ["script k=2", "script k=2, predicted"]
    lengths = charts["k-toy-t0"].series[0]
    assert [x for x, _ in lengths.points] == [2.0, 4.0, 6.0]
    assert max(lengths.points, key=lambda point: point[1])[0] != 2.0
    assert [y for _, y in charts["positions-toy-t0"].series[-1].points] == [1.0, 1.0, 1.0, 0.0]
    assert set(charts_of(cells[:2])) == {"positions-toy-t0"}


def test_a_chart_is_one_svg_with_its_values():
    chart = Chart("a < b", "x & y", "z", (Series("s", ((1.0, 2.0), (4.0, 1.0)), ((1.5, 2.5), (0.5, 1.5))),), level=1.0)
    drawn = svg(chart)
    assert drawn.count("<circle") == 2 and "a &lt; b" in drawn and "s: 4, 1" in drawn and 'class="level"' in drawn
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn)]
    assert heights[0] < heights[1], "more is higher up"
    places = [
        float(x)
        for x in re.findall(
            r'<circle cx="([\d.]+)"',
            svg(Chart("", "", "", (Series("s", ((1.0, 1.0), (2.0, 1.0), (4.0, 1.0))),), logarithmic=True)),
        )
    ]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)


@pytest.mark.parametrize("points", [(), ((3.0, 0.0),), ((1.0, 0.0), (1.0, 0.0))])
def test_charts_of_little_are_drawn(points):
    for options in ({}, {"diagonal": True}, {"level": 1.0}):
        assert "</svg>" in svg(Chart("t", "x", "y", (Series("s", points),), **options))


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links = []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href") and value]


def test_files_are_whole_and_the_page_needs_nothing_else(lines, profile, tmp_path):
    report = Report({"model": "toy <1>"}, lines, ["a warning"], profile)
    report.write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    checker = Checker()
    checker.feed(page)
    assert not checker.links and "toy &lt;1&gt;" in page and "a warning" in page
    assert "6 of 6 cells were predicted within 15%" in page and page.count("<svg") == 4
    assert read_cells(tmp_path) == read_cells(tmp_path / "report.json") == (list(report.cells), dict(report.about))
    entry = json.loads((tmp_path / "report.json").read_text())
    assert entry["mismatches"] == [] and len(entry["forecasts"]) == 6
    assert len((tmp_path / "report.csv").read_text().splitlines()) == 9


def test_png_files_where_they_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    chart = Chart("t", "x", "y", (Series("s", ((1.0, 2.0), (2.0, 3.0)), ((1.0, 3.0), (2.0, 4.0))),), 1.0, True, True)
    write_png(chart, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ParameterError, match=r"truedraft\[plots\]"):
        write_png(Chart("t", "x", "y", ()), tmp_path / "a.png")


def test_other_files_are_no_reports(tmp_path):
    with pytest.raises(ParameterError, match="cannot be read"):
        read_cells(tmp_path)
    for text in ("", "{}", '{"bench": 7}', "[]"):
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(ParameterError, match="no report"):
            read_cells(tmp_path)
    (tmp_path / "blocked").write_text("")
    with pytest.raises(ParameterError, match="cannot write"):
        Report({}, lines_of(arms(), tmp_path / "run", loads=ALONE)).write(tmp_path / "blocked")
