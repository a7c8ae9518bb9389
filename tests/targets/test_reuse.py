"""Rows that are freed and taken again, what a text finds already read, and memory that is asked for first."""

import pytest
import torch

from tests.targets.reference import fresh_state, largest_difference, one_path_at_a_time, state, text
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import OutOfMemoryError
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.memory import available_memory, check_fits


class Counted:
    """A cached model that counts the tokens it runs on."""

    def __init__(self, family="llama", **options):
        self.model = CachedModel(tiny_model(family, dtype=torch.float64), **options)
        self.tokens = 0
        self.model.model.get_input_embeddings().register_forward_pre_hook(self._count)

    def _count(self, module, inputs):
        self.tokens += inputs[0].numel()

    def tokens_to_read(self, key, tokens, taps=()):
        before = self.tokens
        self.model.read(key, tokens, taps)
        return self.tokens - before


def assert_as_cold(model, key, tokens):
    assert largest_difference(state(model, key), fresh_state(model, tokens)) < 1e-10


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shared", [0, 1, 4, 19, 20])
def test_the_next_turn_reads_only_what_follows(family, shared):
    """Turn 1 ends with a drafted tree; turn 2 begins with its text or a part of it. Warm is as cold."""
    counted, first = Counted(family), text(17)
    model = counted.model
    model.read("turn 1", first)
    model.extend(["turn 1"], [Nodes((5, 6, 7, 8, 9), (-1, 0, 0, 2, 1))])
    model.keep("turn 1", (0, 2, 3))
    first += [5, 7, 8]
    model.release("turn 1")
    second = [*first[:shared], *text(6, seed=9)]
    assert counted.tokens_to_read("turn 2", second) == len(second) - shared
    assert_as_cold(model, "turn 2", second)


def test_a_rejected_branch_is_never_reused():
    counted, first = Counted(), text(8)
    counted.model.read("a", first)
    counted.model.extend(["a"], [Nodes.chain((5, 6, 7))])
    counted.model.keep("a", (0,))
    counted.model.release("a")
    assert counted.tokens_to_read("b", [*first, 5, 6, 7]) == 2


def test_nodes_that_were_never_decided_are_never_reused():
    counted, first = Counted(), text(8)
    counted.model.read("a", first)
    counted.model.extend(["a"], [Nodes.chain((5, 6, 7))])
    counted.model.release("a")
    assert counted.tokens_to_read("b", [*first, 5]) == 1
    assert_as_cold(counted.model, "b", [*first, 5])


@pytest.mark.parametrize("drop", [lambda model: model.keep("a", ()), lambda model: model.rewind("a", 5)])
def test_padding_does_not_survive_in_what_is_left_over(drop):
    counted = Counted()
    model, long = counted.model, text(20)
    model.read("a", long)
    model.rewind("a", 5)
    model.read("b", text(3, seed=1))
    model.extend(["a", "b"], [Nodes.chain((5,)), Nodes.chain((5, 6, 7, 8))])  # a is padded over what it held
    drop(model)
    assert counted.tokens_to_read("a", long[5:]) == 15
    assert_as_cold(model, "a", long)


def test_features_are_never_reused():
    counted, tokens = Counted(), text(10)
    counted.model.read("a", tokens)
    counted.model.release("a")
    assert counted.tokens_to_read("b", tokens, taps=(1,)) == 10


def test_the_row_with_the_longest_common_beginning_is_found():
    counted = Counted()
    model = counted.model
    texts = {"a": text(10), "b": [*text(5), *text(7, seed=1)], "c": text(4, seed=2)}
    for key, tokens in texts.items():
        model.read(key, tokens)
    for key in texts:
        model.release(key)
    assert counted.tokens_to_read("d", [*texts["b"], 5]) == 1
    assert counted.tokens_to_read("e", texts["a"]) == 0
    assert counted.tokens_to_read("f", texts["c"]) == 0
    assert_as_cold(model, "d", [*texts["b"], 5])
    assert_as_cold(model, "e", texts["a"])
    assert_as_cold(model, "f", texts["c"])


def test_a_beginning_is_copied_from_a_row_in_use():
    counted, prompt = Counted(), text(15)
    model = counted.model
    model.read("a", prompt)
    assert counted.tokens_to_read("b", [*prompt, 5]) == 1
    model.extend(["a"], [Nodes.chain((9, 8))])
    model.keep("a", (0, 1))
    assert_as_cold(model, "a", [*prompt, 9, 8])
    assert_as_cold(model, "b", [*prompt, 5])


def test_releasing_is_forgiving_and_frees_the_row():
    counted = Counted(available=lambda device: 10**9)
    model = counted.model
    model.release("nobody")
    for key in range(20):
        model.read(key, text(5, seed=key))
        model.release(key)
        model.release(key)
    assert model._cache.rows == 1


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────

SLOT = 3 * 2 * 2 * 8 * 8
"""Bytes of a slot of the tiny Llama in float64: layers, keys and values, heads, dimensions, bytes."""


def test_what_does_not_fit_is_refused_before_it_is_made():
    model = CachedModel(tiny_model(dtype=torch.float64), available=lambda device: 100 * SLOT)
    model.reserve("a", 100)
    with pytest.raises(OutOfMemoryError, match=r"needs 0\.00 GiB but only 0\.00 GiB .* shorter"):
        model.reserve("a", 101)
    assert model._cache.capacity == 100
    with pytest.raises(OutOfMemoryError, match="2 texts of 100 tokens"):
        model.read("b", [5])
    assert (model.cached("b"), model._cache.rows) == (0, 1)
    model.read("a", text(99))
    model.extend(["a"], [Nodes.chain((5,))])
    with pytest.raises(OutOfMemoryError):
        model.extend(["a"], [Nodes.chain((6,))])
    model.keep("a", (0,))
    assert_as_cold(model, "a", [*text(99), 5])


def test_free_rows_make_way_for_a_long_text():
    model = CachedModel(tiny_model(dtype=torch.float64), available=lambda device: 128 * SLOT)
    for key in "ab":
        model.read(key, text(10))
    for key in "ab":
        model.release(key)
    model.read("c", text(100))
    assert (model._cache.rows, model._cache.capacity) == (1, 100)
    assert_as_cold(model, "c", text(100))


def test_a_long_text_does_not_make_many_short_ones_long():
    memory = [130 * SLOT]
    model = CachedModel(tiny_model(dtype=torch.float64), available=lambda device: memory[-1])
    model.read("long", text(100))
    model.release("long")
    for key in range(6):
        model.read(key, text(20, seed=key))
    assert (model._cache.rows, model._cache.capacity) == (6, 20)
    assert_as_cold(model, 5, text(20, seed=5))
    memory.append(10**9)
    model.read(0, text(100)[20:])  # of the long text only what was kept is still there
    assert_as_cold(model, 0, text(100))


def test_what_is_required_beforehand_is_all_that_is_needed():
    asked = []
    model = CachedModel(tiny_model(), available=lambda device: asked.append(device) or 10**9)
    model.require(3, 100)
    assert (model._cache.rows >= 3, model._cache.capacity >= 100, len(asked)) == (True, True, 1)
    for key in range(3):
        model.read(key, text(100, seed=key))
        model.extend([key], [Nodes.chain(text(20))])
    model.require(2, 100)
    assert len(asked) == 1
    with pytest.raises(OutOfMemoryError, match="5 texts"):
        CachedModel(tiny_model(dtype=torch.float64), available=lambda device: 300 * SLOT).require(5, 100)


def test_there_is_room_for_nothing_that_was_not_reserved():
    asked = []
    model = CachedModel(tiny_model(), available=lambda device: asked.append(device) or 10**9)
    model.reserve("a", 120)
    asked.clear()
    model.read("a", text(100))
    for _ in range(10):
        model.extend(["a"], [Nodes.chain((5, 6))])
        model.keep("a", (0, 1))
    assert asked == []


def test_growing_keeps_what_is_there():
    model, tokens = CachedModel(tiny_model(dtype=torch.float64)), text(60)
    model.read("a", tokens)
    model.extend(["a"], [Nodes.chain((5, 6))])
    model.reserve("b", 100)
    (scores,) = model.extend(["a"], [Nodes.chain((7,), parent=1)])
    expected = one_path_at_a_time(model.model, tokens, (5, 6, 7), (-1, 0, 1))[2:]
    assert largest_difference([scores.logits], [expected]) < 1e-10


def test_available_memory_is_a_number_of_bytes():
    assert 2**20 < available_memory(torch.device("cpu")) < 2**50
    check_fits(5, 5, "a thing")
    with pytest.raises(OutOfMemoryError, match=r"a thing needs 3\.00 GiB but only 1\.50 GiB"):
        check_fits(3 * 2**30, 3 * 2**29, "a thing")


def test_what_is_forgotten_is_read_anew():
    counted, tokens = Counted(), text(40)
    assert counted.tokens_to_read("a", tokens) == 40
    counted.model.release("a")
    assert counted.tokens_to_read("b", tokens) == 0
    counted.model.release("b")
    counted.model.forget()
    assert counted.tokens_to_read("c", tokens) == 40
    counted.model.forget()
    assert counted.model.cached("c") == 40 and counted.model.held, "rows in use keep what they hold"
    counted.model.release("c")
    counted.model.forget()
    assert counted.model.held == 0, "and without any the memory is given back"
    assert counted.tokens_to_read("c", tokens) == 40


def test_forks_know_nothing_of_one_another():
    counted, tokens = Counted(), text(40)
    assert counted.tokens_to_read("a", tokens) == 40
    other = counted.model.fork()
    assert other.cached("a") == 0 and other.held == 0 and other.model is counted.model.model
    other.catch_up("a", tokens[:8])
    assert (counted.model.cached("a"), other.cached("a")) == (40, 8)
    counted.model.release("a")
    counted.model.forget()
    assert other.cached("a") == 8 and other.held
