"""The account: the published reference values, the identities behind them, and the verdict in words."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedraft import planning
from truedraft.errors import ParameterError
from truedraft.planning import account, controller, profile, recommend, schedule, trees
from truedraft.planning.account import (
    WORTHWHILE,
    Advice,
    advise,
    alpha_from,
    decayed_rates,
    expected_tokens,
    expected_tokens_by_position,
    overall_speedup,
    pass_cost,
    ridge_of,
    speedup,
    sweet_spot,
)

REFERENCE = [  # alpha, c, k, speedup
    (0.5, 0.1, 4, 1.38),
    (0.7, 0.1, 4, 1.98),
    (0.9, 0.1, 4, 2.93),
    (0.7, 0.3, 4, 1.26),
    (0.7, 0.5, 4, 0.92),
    (0.7, 0.1, 1, 1.55),
    (0.7, 0.1, 8, 1.78),
    (0.8, 0.1, 4, 2.40),
]
HOMES = (account, controller, profile, recommend, schedule, trees)
rate = st.floats(0, 1)


@pytest.mark.parametrize(("alpha", "c", "k", "expected"), REFERENCE)
def test_reference_speedups_to_two_decimals(alpha: float, c: float, k: int, expected: float) -> None:
    assert f"{speedup(expected_tokens(alpha, k), k, c):.2f}" == f"{expected:.2f}"


@given(st.floats(0, 0.999), st.integers(0, 32))
def test_the_sum_is_the_closed_form(alpha: float, k: int) -> None:
    assert expected_tokens(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha), rel=1e-9)


@given(rate, st.integers(1, 16))
def test_alpha_is_found_again_from_what_it_yields(alpha: float, k: int) -> None:
    tokens = expected_tokens(alpha, k)
    assert expected_tokens(alpha_from(tokens, k), k) == pytest.approx(tokens, rel=1e-12)


def test_certain_acceptance_yields_every_draft_and_the_bonus() -> None:
    assert expected_tokens(1.0, 7) == 8
    assert expected_tokens(0.0, 7) == expected_tokens(0.3, 0) == 1


@given(st.lists(rate, max_size=8))
def test_by_position_is_one_plus_the_survival_sum(rates: list[float]) -> None:
    survival = [math.prod(rates[: j + 1]) for j in range(len(rates))]
    assert expected_tokens_by_position(rates) == pytest.approx(1 + sum(survival), abs=1e-12)


@given(rate, rate, st.integers(0, 12))
def test_falling_acceptance_never_yields_more_than_constant(alpha: float, decay: float, k: int) -> None:
    rates = decayed_rates(alpha, decay, k)
    assert len(rates) == k
    assert expected_tokens_by_position(rates) <= expected_tokens(alpha, k) + 1e-12


def test_sweet_spot_is_the_best_length_and_plain_decoding_when_nothing_pays() -> None:
    k, gain = sweet_spot([0.7] * 16, 0.1)
    assert k == max(range(1, 17), key=lambda k: speedup(expected_tokens(0.7, k), k, 0.1)) == 4
    assert gain == speedup(expected_tokens(0.7, 4), 4, 0.1)
    assert sweet_spot([0.3] * 16, 0.3) == (0, 1.0)
    assert sweet_spot([], 0.1) == (0, 1.0)


def test_roofline() -> None:
    assert ridge_of(989e12, 3.35e12, 2) == pytest.approx(295.2, abs=0.05)
    assert pass_cost(5, 10) == pass_cost(10, 10) == 1
    assert pass_cost(25, 10) == 2.5
    at_ridge = speedup(expected_tokens(0.7, 4), 4, 0.1, batch=20, ridge=100)
    assert at_ridge == speedup(expected_tokens(0.7, 4), 4, 0.1)
    assert speedup(expected_tokens(0.7, 4), 4, 0.1, batch=40, ridge=100) == pytest.approx(2.7731 / 2.4)
    assert speedup(expected_tokens(0.7, 4), 4, 0.1, batch=200, ridge=100) < 1


@pytest.mark.parametrize(
    ("alpha", "c", "k", "batch", "advice"),
    [
        (0.7, 0.1, 4, 1, Advice.WORTH_IT),
        (0.7, 0.5, 4, 1, Advice.OTHER_LENGTH),
        (0.7, 0.1, 4, 300, Advice.PAST_THE_RIDGE),
        (0.8, 0.9, 4, 1, Advice.DRAFT_TOO_EXPENSIVE),
        (0.1, 0.1, 4, 1, Advice.ACCEPTANCE_TOO_LOW),
        (0.0, 0.9, 4, 1, Advice.ACCEPTANCE_TOO_LOW),
    ],
)
def test_advice(alpha: float, c: float, k: int, batch: int, advice: Advice) -> None:
    assert advise([alpha] * 12, c, k, batch=batch, ridge=100) is advice


@given(st.lists(rate, min_size=1, max_size=8), st.floats(0, 2), st.integers(1, 64), st.floats(1, 256))
def test_advice_says_worth_it_exactly_when_it_is(rates: list[float], c: float, batch: int, ridge: float) -> None:
    k = len(rates)
    gain = speedup(expected_tokens_by_position(rates), k, c, batch=batch, ridge=ridge)
    assert (advise(rates, c, k, batch=batch, ridge=ridge) is Advice.WORTH_IT) == (gain >= WORTHWHILE)


def test_a_cost_beyond_all_numbers_is_no_speed() -> None:
    assert overall_speedup(speedup(3.0, 4, 1e308), 0.2) == 0.0


def test_advice_knows_what_is_not_sped_up() -> None:
    rates = [0.7] * 12
    assert advise(rates, 0.1, 4, overhead=0.5) is Advice.WORTH_IT
    assert advise(rates, 0.1, 4, overhead=0.97) is not Advice.WORTH_IT
    assert overall_speedup(speedup(expected_tokens_by_position(rates[:4]), 4, 0.1), 0.97) < WORTHWHILE


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected_tokens(1.2, 4),
        lambda: expected_tokens(math.nan, 4),
        lambda: expected_tokens(0.5, -1),
        lambda: decayed_rates(0.5, 1.5, 4),
        lambda: alpha_from(5.5, 4),
        lambda: speedup(2.0, 4, -0.1),
        lambda: speedup(2.0, 4, math.inf),
        lambda: speedup(2.0, 4, math.nan),
        lambda: sweet_spot([0.5], math.inf),
        lambda: advise([0.5], math.inf, 1),
        lambda: speedup(2.0, 4, 0.1, batch=0),
        lambda: pass_cost(4, 0),
        lambda: ridge_of(1e12, 0, 2),
        lambda: advise([0.5], 0.1, 2),
    ],
)
def test_impossible_numbers_are_named(call: object) -> None:
    with pytest.raises(ParameterError, match=r"got"):
        call()  # type: ignore[operator]


# ── what the package offers ───────────────────────────────────────────────────────────────────────────────────────


def test_the_package_offers_what_its_parts_do() -> None:
    offered = {name: getattr(home, name) for home in HOMES for name in home.__all__ if name != "recommend"}
    assert set(planning.__all__) == set(offered)
    assert [name for name, found in offered.items() if getattr(planning, name) is not found] == []


def test_no_name_it_offers_is_that_of_a_file() -> None:
    """It would be the function before the file is imported, and the file from then on."""
    assert not set(planning.__all__) & {path.stem for path in Path(account.__file__).parent.glob("*.py")}


@pytest.mark.parametrize("name", planning.__all__)
def test_what_it_offers_can_be_imported_and_says_what_it_is(name: str) -> None:
    code: dict[str, object] = {}
    exec(f"from truedraft.planning import {name}", code)
    if callable(found := code[name]):  # WORTHWHILE is a number
        said = found.__doc__ or ""
        assert said and not said.startswith(f"{name}("), "what dataclass says of one that says nothing"


def test_it_knows_no_other_names() -> None:
    with pytest.raises(AttributeError, match="speedups"):
        _ = planning.speedups


def test_importing_the_account_imports_no_torch() -> None:
    code = """
import sys
from truedraft.planning import Profile, best_tree, speedup
assert not {"torch", "numpy", "transformers"} & set(sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
