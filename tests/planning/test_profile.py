import json
import math

import pytest

from truedraft.errors import ParameterError
from truedraft.planning.profile import DraftCost, PassTime, Profile


def roofline(ridge, contexts=(64,), batches=(1, 2, 4, 16, 32), widths=(1, 2, 4, 8, 16, 32)):
    """Passes that cost one second up to the ridge and then in proportion; longer contexts cost a tenth more."""
    return Profile(
        tuple(
            PassTime(context, batch, width, max(1.0, batch * width / ridge) * (1.0 + 0.1 * place))
            for place, context in enumerate(contexts)
            for batch in batches
            for width in widths
        )
    )


def test_costs_are_measured_points_and_lines_between_them():
    profile = Profile(
        (PassTime(64, 1, 1, 1.0), PassTime(64, 1, 5, 2.0), PassTime(64, 4, 1, 3.0), PassTime(64, 4, 5, 7.0))
    )
    assert profile.pass_seconds(1) == 1.0 and profile.pass_seconds(5) == 2.0
    assert profile.pass_seconds(3) == 1.5
    assert profile.pass_seconds(9) == 3.0, "past the last point the line goes on"
    assert profile.pass_seconds(1, batch=2.5) == 2.0
    assert profile.pass_seconds(3, batch=4) == 5.0


def test_a_batch_with_a_single_width_costs_by_its_tokens_what_its_neighbour_costs():
    """One width said that five tokens cost as much as one, and drafting was free."""
    whole = roofline(16)
    sparse = Profile(tuple(point for point in whole.passes if point.batch < 16 or point.width == 1))
    for batch, width in ((16, 1), (16, 5), (32, 1), (32, 3), (16, 2.5), (24, 4)):
        assert sparse.pass_seconds(width, batch=batch) == pytest.approx(
            whole.pass_seconds(width, batch=batch), rel=0.01
        )
    only_plain = Profile(tuple(point for point in whole.passes if point.width == 1))
    assert only_plain.pass_seconds(5, batch=1) == 1.0
    assert only_plain.pass_seconds(5, batch=16) == pytest.approx(whole.pass_seconds(5, batch=16))


def test_a_single_width_takes_the_shape_of_another_context_where_its_own_has_none():
    known = [PassTime(64, 1, width, 1.0 + 0.1 * (width - 1)) for width in (1, 5, 9)]
    profile = Profile((*known, PassTime(512, 1, 1, 2.0), PassTime(512, 4, 1, 2.6)))
    assert profile.pass_seconds(5, context=512) == pytest.approx(2.0 * 1.4)
    assert profile.pass_seconds(2, batch=4, context=512) == pytest.approx(2.6 * 1.7 / 1.3)


def test_a_wide_pass_is_not_called_plain_decoding():
    known = [PassTime(64, 1, width, 1.0 + 0.1 * (width - 1)) for width in (1, 5, 9)]
    profile = Profile((*known, PassTime(64, 2, 5, 2.4), PassTime(64, 2, 9, 3.0)))
    assert profile.pass_seconds(5, batch=2) == 2.4 and profile.pass_seconds(9, batch=2) == 3.0
    assert profile.pass_seconds(1, batch=2) == pytest.approx(2.4 * 1.1 / 1.9)
    with pytest.raises(ParameterError, match="width 5, 9: expected width 1") as caught:
        Profile((PassTime(64, 1, 5, 1.2), PassTime(64, 1, 9, 1.3)))
    assert "\n" not in str(caught.value)


def test_costs_never_fall_past_the_last_point():
    profile = Profile((PassTime(64, 1, 1, 2.0), PassTime(64, 1, 2, 1.9)))
    assert profile.pass_seconds(10) == 1.9


def test_contexts_have_costs_of_their_own():
    profile = roofline(8, contexts=(64, 264))
    assert profile.pass_seconds(1) == profile.pass_seconds(1, context=64) == profile.pass_seconds(1, context=10) == 1.0
    assert profile.pass_seconds(1, context=164) == pytest.approx(1.05)


@pytest.mark.parametrize("ridge", [2.0, 5.0, 11.0])
def test_the_ridge_is_where_the_plateau_ends(ridge):
    assert roofline(ridge).ridge() == pytest.approx(ridge)


@pytest.mark.parametrize("widths", [(1, 2, 4, 8, 16, 32), (1,)])
@pytest.mark.parametrize("batches", [(8, 16, 32), (4, 16, 64), (2, 16, 32)])
def test_where_one_text_alone_was_not_measured_the_ridge_is_told_in_tokens_still(batches, widths):
    """It was told in tokens of a text, and off by the smallest batch."""
    assert roofline(16.0, batches=batches, widths=widths).ridge() == pytest.approx(16)


def test_a_ridge_below_what_was_measured_is_no_less_than_that():
    assert roofline(4.0, batches=(8,)).ridge() == pytest.approx(8)
    bent = {1: 2.0, 2: 4.0, 4: 5.0}
    assert Profile(tuple(PassTime(64, 8, width, seconds) for width, seconds in bent.items())).ridge() == 8


def test_without_an_end_of_the_plateau_there_is_no_ridge():
    assert roofline(64).ridge() == math.inf
    assert Profile((PassTime(64, 1, 1, 1.0),)).ridge() == math.inf
    assert roofline(64).to_json()["ridge"] == {"64": None}


def test_passes_by_their_tokens_are_those_of_one_text_and_beyond_them_those_of_batches():
    times = {(1, 1): 1.0, (1, 4): 1.2, (1, 8): 1.6, (4, 1): 1.1, (4, 4): 2.5, (8, 2): 2.6, (8, 4): 5.0}
    passes = [PassTime(64, batch, width, seconds) for (batch, width), seconds in times.items()]
    profile = Profile((*passes, PassTime(512, 1, 16, 9.0)))
    assert profile.by_tokens() == [(1, 1.0), (4, 1.2), (8, 1.6), (16, 2.5), (32, 5.0)]


def test_where_one_text_alone_was_not_measured_one_token_costs_what_the_narrowest_passes_tell():
    """It cost what eight did, and seven drafted tokens were free."""
    points = [(8, 1), (8, 2), (8, 4), (16, 1), (16, 4)]
    passes = [PassTime(64, *point, 1.0 + 0.01 * (point[0] * point[1] - 1)) for point in points]
    found = Profile(tuple(passes)).by_tokens()
    assert [tokens for tokens, _ in found] == [1, 8, 16, 32, 64]
    assert [seconds for _, seconds in found] == pytest.approx([1.0, 1.07, 1.15, 1.31, 1.63])


@pytest.mark.parametrize(
    ("seconds", "one"),
    [({1: 2.0, 2: 4.0}, 0.25), ({1: 2.0, 2: 6.0}, 0.25), ({1: 2.0, 2: 1.9}, 2.0), ({1: 2.0}, 2.0)],
)
def test_one_token_costs_at_least_its_share_of_eight_and_no_more_than_all(seconds, one):
    found = Profile(tuple(PassTime(64, 8, width, taken) for width, taken in seconds.items())).by_tokens()
    assert found[0] == (1, pytest.approx(one)) and found[1] == (8, 2.0)


def test_drafting_costs_by_drafter_and_batch():
    costs = (DraftCost("none", 1, 0.1, 0.0), DraftCost("model", 1, 0.2, 0.3), DraftCost("model", 3, 0.4, 0.5))
    profile = Profile((PassTime(64, 1, 1, 2.0),), costs)
    assert profile.outside_seconds("none", 0) == 0.1
    assert profile.outside_seconds("model", 4) == pytest.approx(1.4)
    assert profile.outside_seconds("model", 4, batch=2) == pytest.approx(1.9)
    assert profile.outside_seconds("unknown", 4) == 0.0
    assert profile.cost_ratio("model") == pytest.approx(0.15) and profile.cost_ratio("unknown") == 0.0
    assert profile.drafters == ["model", "none"]


def test_a_profile_is_kept_in_a_file(tmp_path):
    profile = Profile(roofline(4).passes, (DraftCost("none", 1, 0.1, 0.0),), {"peak": 1e12}, {"name": "m"})
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json") == profile
    assert json.loads((tmp_path / "p.json").read_text())["ridge"] == {"64": pytest.approx(4.0)}


def test_a_point_that_is_there_twice_is_refused_in_one_line(tmp_path):
    """Between two of the same there is no line, and so a division by zero."""
    once = roofline(4)
    with pytest.raises(ParameterError, match=r"2 points of context, batch and width \(64, 1, 32\)"):
        Profile((*once.passes, PassTime(64, 1, 32, 9.0)))
    with pytest.raises(ParameterError, match=r"2 points of drafter and batch \('none', 1\)"):
        Profile(once.passes, (DraftCost("none", 1, 0.1, 0.0), DraftCost("none", 1, 0.2, 0.0)))
    entry = once.to_json()
    (tmp_path / "p.json").write_text(json.dumps(entry | {"passes": entry["passes"] + entry["passes"][-1:]}))
    with pytest.raises(ParameterError, match=r"p\.json is no profile .*2 points") as caught:
        Profile.load(tmp_path / "p.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", '{"profile": 99}', "[1]"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ParameterError, match=r"p\.json"):
        Profile.load(tmp_path / "p.json")
    with pytest.raises(ParameterError, match="cannot be read"):
        Profile.load(tmp_path / "absent.json")
    with pytest.raises(ParameterError, match="cannot write"):
        roofline(4).save(tmp_path / "no" / "p.json")
    with pytest.raises(ParameterError, match="at least one pass"):
        Profile(())
