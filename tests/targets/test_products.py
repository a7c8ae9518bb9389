"""The faster way of multiplying is found by the clock, and never at the price of exactness."""

import pytest
import torch
from torch import nn

from truedraft.targets import products
from truedraft.targets.kernels import why_not
from truedraft.targets.packed import Product
from truedraft.targets.products import Form, Stopwatch, form_of, pad, try_out

pytestmark = pytest.mark.skipif(why_not(torch.zeros(1)) is not None, reason="no packed products here")


class World:
    """Time passes only when something is multiplied."""

    def __init__(self, monkeypatch, *, plain, packed, exact_rows=1):
        self.now = 0.0
        multiply, linear = Product._multiply, nn.functional.linear

        def count_packed(product, x):
            self.now += packed(len(x))
            return multiply(product, x)

        def count_plain(*arguments):
            self.now += plain
            return linear(*arguments)

        monkeypatch.setattr(Product, "_multiply", count_packed)
        monkeypatch.setattr(products.functional, "linear", count_plain)
        monkeypatch.setattr(products, "least_rows", lambda *_, **__: exact_rows)

    def try_out(self, *layers):
        return try_out(form_of(layers), layers, Stopwatch(lambda: self.now))


def test_both_ways_are_measured_at_the_widths_of_drafts(monkeypatch):
    world = World(monkeypatch, plain=1.0, packed=lambda rows: 10.0 + rows)
    trial = world.try_out(nn.Linear(4, 4), nn.Linear(4, 2))
    assert trial.plain == 8.0  # two layers, four widths
    assert trial.packed == 11.0 + 12.0 + 14.0 + 18.0


@pytest.mark.parametrize(("exact_rows", "packed"), [(1, 15), (2, 16), (16, 64), (None, 15)])
def test_never_fewer_rows_than_are_exact(monkeypatch, exact_rows, packed):
    world = World(monkeypatch, plain=1.0, packed=lambda rows: float(rows), exact_rows=exact_rows)
    assert world.try_out(nn.Linear(4, 4)).packed == packed


# ── padding ───────────────────────────────────────────────────────────────────────────────────────────────────────


def padded(world, *least):
    made = [Product(torch.randn(6, 4), rows=rows) for rows in least]
    pad(made, Stopwatch(lambda: world.now))
    return [product.rows for product in made]


def test_a_single_row_is_padded_where_more_rows_take_less_time(monkeypatch):
    world = World(monkeypatch, plain=1.0, packed=lambda rows: {1: 5.0, 2: 5.0, 4: 4.0, 8: 7.0}[rows])
    assert padded(world, 1, 2, 8) == [4, 4, 8]


def test_and_not_where_they_take_more(monkeypatch):
    world = World(monkeypatch, plain=1.0, packed=lambda rows: float(rows))
    assert padded(world, 1, 2, 8) == [1, 2, 8]


def test_a_few_slow_runs_do_not_decide(monkeypatch):
    """The host of a shared machine takes a processor away now and then."""
    calls = iter(range(1000))
    world = World(monkeypatch, plain=1.0, packed=lambda rows: rows / 100 + (next(calls) in (4, 8)) / 10)
    assert padded(world, 1) == [1]


@pytest.mark.parametrize("usual", [1, 4])
def test_noise_leaves_what_is_usual(monkeypatch, usual):
    """Another program runs while a model is loaded: the clock tells nothing, or the wrong thing half of the time."""
    monkeypatch.setattr(products.Product, "padded", usual)
    turns = iter(range(1000))
    world = World(monkeypatch, plain=1.0, packed=lambda rows: 0.03 + 0.02 * ((next(turns) // 2 + (rows == 4)) % 2))
    assert padded(world, 1) == [usual]
    world = World(monkeypatch, plain=1.0, packed=lambda rows: 0.04 if rows == usual else 0.038)
    assert padded(world, 1) == [usual]


def test_what_cannot_win_any_more_is_not_tried_to_the_end(monkeypatch):
    runs = []
    world = World(monkeypatch, plain=1.0, packed=lambda rows: runs.append(rows) or 0.01)
    assert padded(world, 1) == [4] and len(runs) == 2 * 3


def test_where_a_pass_takes_long_fewer_rounds_have_to_do(monkeypatch):
    runs = []
    world = World(monkeypatch, plain=1.0, packed=lambda rows: runs.append(rows) or 5.0 * rows)
    assert padded(world, 1) == [1]
    assert runs == [1, 4]


@pytest.mark.parametrize("bias", [True, False])
def test_a_bias_does_not_hide_what_exactness_is_told_by(monkeypatch, bias):
    seen = []
    monkeypatch.setattr(products, "least_rows", lambda product_with, weight: seen.append(product_with(weight)))
    layers = [nn.Linear(4, 4, bias=bias)]
    assert try_out(form_of(layers), layers, Stopwatch()).exact_rows is None
    assert (seen[0].bias is not None) == bias and not seen[0](torch.zeros(3, 4)).any()


def test_the_best_of_several_runs_counts():
    times = iter([0.0, 9.0, 10.0, 12.0, 20.0, 25.0])
    assert Stopwatch(lambda: next(times)).best(lambda: None) == 2.0


def test_the_form_of_a_group_is_that_of_its_product():
    assert form_of([nn.Linear(4, 8), nn.Linear(4, 2)]) == Form(10, 4, has_bias=True)
    assert form_of([nn.Linear(4, 8, bias=False)]) == Form(8, 4, has_bias=False)


def test_a_real_trial_gives_real_seconds():
    trial = try_out(Form(64, 64, True), [nn.Linear(64, 64)], Stopwatch())
    assert trial.plain > 0 and trial.packed > 0
