"""The slot cache against a plain dictionary of slots."""

import random

import pytest
import torch

from truedraft.targets.passes import Pass, Span, depths_after
from truedraft.targets.slots import SlotCache, SlotLayer

CPU = torch.device("cpu")
SHAPES = {
    "alike": [(2, 4)] * 6,
    "values of another size": [(2, 4), (2, 3)] * 3,
    "layers of two kinds": [(2, 4), (2, 4), (1, 8), (1, 8), (2, 4), (2, 4)],
}


class Plain:
    """Every slot of every row by itself."""

    def __init__(self, shapes):
        self.shapes, self.slots = shapes, {}

    def write(self, row, slot, content):
        self.slots[row, slot] = content

    def row(self, row, length):
        return [[self.slots[row, slot][part] for slot in range(length)] for part in range(len(self.shapes))]


def made(shapes, rows=4, capacity=16):
    cache = SlotCache(shapes, dtype=torch.float64, device=CPU)
    cache.resize(rows, capacity)
    return cache


def write(cache, plain, places, width):
    """One pass: `width` random slots a row from (row, start) on, checking what every layer gives to attention."""
    chains = [Span(row, start, tuple(range(-1, width - 1)), tuple(range(width)), width) for row, start in places]
    what = Pass(tuple(chains), CPU)
    cache.begin(what)
    new = [torch.randn(len(places), heads, width, dim, dtype=torch.float64) for heads, dim in plain.shapes]
    for place, (row, start) in enumerate(places):
        for offset in range(width):
            plain.write(row, start + offset, [part[place, :, offset] for part in new])
    for layer in range(len(plain.shapes) // 2):
        seen = cache.update(new[2 * layer], new[2 * layer + 1], layer)
        assert cache.get_mask_sizes(width, layer) == (what.extent, 0)
        assert cache.get_seq_length(layer) == what.extent - width
        for part, given in enumerate(seen):
            assert given.shape[2] == what.extent
            for place, (row, start) in enumerate(places):
                expected = torch.stack(plain.row(row, start + width)[2 * layer + part], dim=1)
                assert torch.equal(given[place, :, : start + width], expected)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_passes_over_any_rows_write_and_see_their_slots(shapes):
    torch.manual_seed(0)
    cache, plain = made(shapes), Plain(shapes)
    assert all(isinstance(layer, SlotLayer) for layer in cache.layers)
    write(cache, plain, [(0, 0), (1, 0), (2, 0), (3, 0)], 3)  # all rows alike
    write(cache, plain, [(1, 3)], 2)  # one row
    write(cache, plain, [(0, 3), (1, 5), (2, 3)], 4)  # neighbours of different lengths
    write(cache, plain, [(1, 9), (3, 3)], 1)  # rows apart
    write(cache, plain, [(0, 2), (2, 2), (3, 2)], 2)  # rows apart, alike


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_moving_slots_and_rows(shapes):
    torch.manual_seed(0)
    cache, plain = made(shapes), Plain(shapes)
    write(cache, plain, [(row, 0) for row in range(4)], 10)
    cache.compact(1, 3, [4, 5, 7, 9])
    for target, source in enumerate([4, 5, 7, 9], start=3):
        plain.write(1, target, plain.slots[1, source])
    cache.swap_rows(0, 3, 8)
    cache.copy_row(2, 0, 5)
    for slot in range(8):
        one, other = plain.slots[0, slot], plain.slots[3, slot]
        plain.write(0, slot, other)
        plain.write(3, slot, one)
    for slot in range(5):
        plain.write(0, slot, plain.slots[2, slot])
    cache.resize(6, 32, used=16)
    write(cache, plain, [(0, 8), (1, 7), (2, 10), (3, 8)], 1)
    cache.resize(3, 12, used=12)
    assert (cache.rows, cache.capacity) == (3, 12)
    write(cache, plain, [(0, 9), (1, 8), (2, 11)], 1)


def test_a_row_is_not_touched_by_passes_over_others():
    torch.manual_seed(0)
    cache, plain, rng = made(SHAPES["alike"]), Plain(SHAPES["alike"]), random.Random(0)
    lengths = [0] * 4
    for _ in range(30):
        rows = sorted(rng.sample(range(4), rng.randrange(1, 5)))
        width = rng.randrange(1, 4)
        places = [(row, lengths[row] if lengths[row] + width <= 16 else 0) for row in rows]
        write(cache, plain, places, width)
        for row, start in places:
            lengths[row] = start + width


def test_the_size_is_what_is_allocated():
    for shapes in SHAPES.values():
        cache = made(shapes)
        assert cache.size(4, 16) == sum(buffer.nbytes for buffer in cache._buffers)
        assert cache.size(0, 16) == 0


def test_attention_sees_views_not_copies():
    cache = made(SHAPES["alike"])
    cache.begin(Pass((Span(1, 2, (-1,), depths_after((), (-1,)), 1), Span(2, 2, (-1,), (0,), 1)), CPU))
    new = torch.ones(2, 2, 1, 4, dtype=torch.float64)
    keys, _ = cache.update(new, new, 0)
    assert keys.data_ptr() == cache._buffers[0][0, 1].data_ptr()
