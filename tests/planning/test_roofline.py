import pytest

from truedraft.planning.account import ridge_of
from truedraft.planning.roofline import Machine, ModelSize, break_even_batch, pass_seconds

MACHINE = Machine(bandwidth=100e9, peak=10e12)
MODEL = ModelSize(parameters=1e9, bytes_per_parameter=2)


def test_a_pass_reads_until_the_ridge_and_then_computes():
    ridge = ridge_of(MACHINE.peak, MACHINE.bandwidth, 2)
    assert ridge == 100
    assert pass_seconds(MACHINE, MODEL, batch=1, width=1) == pass_seconds(MACHINE, MODEL, batch=20, width=5) == 0.02
    assert pass_seconds(MACHINE, MODEL, batch=40, width=5) == pytest.approx(0.04)


def test_at_long_context_every_text_has_its_cache_read():
    model = ModelSize(1e9, 2, cache_bytes=1e5, attention_flops=1e5)
    short = pass_seconds(MACHINE, model, batch=4, width=1)
    assert pass_seconds(MACHINE, model, batch=4, width=1, context=10_000) == pytest.approx(
        short + 4 * 1e4 * 1e5 / 100e9
    )
    assert pass_seconds(MACHINE, model, batch=1, width=200, context=1e5) == pytest.approx(200 * (2e9 + 1e10) / 10e12)


def test_the_gain_vanishes_where_arithmetic_eats_it():
    assert break_even_batch(MACHINE, MODEL, tokens=2.5, width=5) == 50
    assert break_even_batch(MACHINE, MODEL, tokens=1.0, width=5) == 1
    assert break_even_batch(MACHINE, MODEL, tokens=5.5, width=5) is None
