"""The trials tell products and attention that are exact from those that are not, and leave nothing behind."""

import pytest
import torch

from truedraft.targets.attention import PLAIN, Layout
from truedraft.targets.exact import HeadCount, find_layout, is_exact, least_rows

WEIGHT = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))


def one_at_a_time(x):
    """A product whose rows know nothing of each other."""
    return torch.stack([WEIGHT @ row for row in x]) if len(x) else x.new_zeros(0, len(WEIGHT))


def rounded(x):
    """The same product, in bits that differ."""
    return one_at_a_time(x) * (1 + 2**-20)


def rows_found(multiply):
    return least_rows(lambda weight: multiply, WEIGHT)


# ── products ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_product_of_independent_rows_needs_only_one():
    assert rows_found(one_at_a_time) == 1


@pytest.mark.parametrize("least", [2, 4, 8, 16])
def test_a_product_that_sums_few_rows_in_another_way_needs_more(least):
    assert rows_found(lambda x: one_at_a_time(x) if len(x) >= least else rounded(x)) == least


@pytest.mark.parametrize("odd", [3, 5, 7, 9])
def test_a_number_of_rows_that_is_special_counts_with_all_below(odd):
    assert rows_found(lambda x: rounded(x) if len(x) == odd else one_at_a_time(x)) == next(
        rows for rows in (1, 2, 4, 8, 16) if rows > odd
    )


def test_a_product_that_knows_where_a_row_stands_is_not_exact():
    assert rows_found(lambda x: torch.cat([one_at_a_time(x[:-1]), rounded(x[-1:])])) is None


def test_a_product_that_knows_the_number_of_threads_is_not_exact():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert rows_found(lambda x: one_at_a_time(x) if torch.get_num_threads() == 1 else rounded(x)) is None
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_large_products_are_tried_too():
    def multiply(x):
        return torch.zeros(len(x), 1) if len(x) > 2 else torch.ones(len(x), 1)

    assert least_rows(lambda weight: multiply, torch.empty(1, 1).expand(10_000_000, 2)) == 4


def test_another_order_shows_even_where_results_have_few_bits():
    """Sums in float32, the same for up to eight rows and in two halves beyond, rounded to eight bits of mantissa."""

    def product_with(weight):
        def multiply(x):
            parts = weight.shape[1] if len(x) <= 8 else weight.shape[1] // 2
            sums = [sum((row[at] * weight[:, at] for at in range(0, parts)), torch.zeros(len(weight))) for row in x]
            for row, left in zip(x, sums, strict=True):
                rest = torch.zeros(len(weight))
                for at in range(parts, weight.shape[1]):
                    rest += row[at] * weight[:, at]
                left += rest
            return torch.stack(sums).to(torch.bfloat16)

        return multiply

    assert least_rows(product_with, torch.randn(8, 33, generator=torch.Generator().manual_seed(3))) == 9


# ── attention ─────────────────────────────────────────────────────────────────────────────────────────────────────

HEADS = HeadCount(9, 3, 64, 64)


def test_layouts_without_the_property_are_told():
    assert not is_exact(PLAIN, HEADS)
    assert not is_exact(Layout(1, 64, exact=True), HEADS)


@pytest.mark.parametrize("block", [100, 1000])
def test_a_block_that_is_not_the_librarys_is_told(block):
    assert not is_exact(Layout(8, block, exact=True), HEADS)


def test_one_layout_serves_all_shapes_of_a_model():
    shapes = [HeadCount(4, 1, 16, 16), HeadCount(4, 2, 8, 24)]
    layout = find_layout(shapes)
    assert layout is not None and layout.exact
    assert all(is_exact(layout, shape) for shape in shapes)


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    find_layout([HeadCount(2, 1, 8, 8)])
    rows_found(one_at_a_time)
    assert torch.equal(torch.random.get_rng_state(), before)
