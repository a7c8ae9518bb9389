"""Who may attend to whom, node by node, for every rule that transformers states."""

import pytest
import torch
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    causal_mask_function,
    chunked_causal_mask_function,
    sliding_window_causal_mask_function,
)

from tests.targets.reference import path_to
from truedraft.targets.masks import MASKED_ATTENTION, additive_mask
from truedraft.targets.passes import Pass, Span, ancestors, current, depths_after, running

CPU = torch.device("cpu")
RULES = {
    "causal": (causal_mask_function, lambda q, k: True),
    "window": (sliding_window_causal_mask_function(4), lambda q, k: q - k < 4),
    "chunks": (chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)), lambda q, k: q // 4 == k // 4),
}


def span(row, base, parents, fresh):
    return Span(row, base, parents, depths_after((), parents), fresh)


TREES = Pass((span(0, 6, (-1, 0, 0, 2, 1, -1), 3), span(2, 3, (-1, 0, -1, 2), 4)), CPU)


def visible(what, rule):
    mask = additive_mask(what, rule, dtype=torch.float32)
    assert set(mask.unique().tolist()) <= {0.0, torch.finfo(torch.float32).min}
    return mask[:, 0] == 0


@pytest.mark.parametrize("rule", RULES)
def test_a_node_sees_its_text_and_nothing_else(rule):
    """Against the definition: committed slots and ancestors, where the rule holds between positions."""
    function, holds = RULES[rule]
    seen = visible(TREES, function)
    for row, part in enumerate(TREES.spans):
        for place in range(part.fresh):
            node = len(part.parents) - part.fresh + place
            position = part.base + part.depths[node]
            text = {slot: slot for slot in range(part.base)}
            text |= {
                part.base + ancestor: part.base + part.depths[ancestor] for ancestor in path_to(node, part.parents)
            }
            expected = [slot in text and holds(position, text[slot]) for slot in range(TREES.extent)]
            assert seen[row, place].tolist() == expected, (row, place)


@pytest.mark.parametrize("rule", RULES)
def test_padding_sees_something(rule):
    """A softmax over nothing would be no number, and no number spreads."""
    assert visible(TREES, RULES[rule][0]).any(-1).all()


def test_slots_are_no_positions():
    seen = visible(Pass((span(0, 2, (-1, 0, 0, 0, 3), 5),), CPU), sliding_window_causal_mask_function(3))
    assert seen[0, 4].tolist() == [False, False, True, False, False, True, True]


def test_positions_and_slots_of_a_pass():
    assert TREES.width == 4 and TREES.extent == 13 and TREES.is_padded and not TREES.is_flush
    assert TREES.positions.tolist() == [[8, 8, 6, 0], [3, 4, 3, 4]]
    assert TREES.slot_positions[0, :12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 6]
    assert TREES.slot_positions[1, :7].tolist() == [0, 1, 2, 3, 4, 3, 4]
    assert TREES.slot_positions[:, 12].min() > 10**9
    assert TREES.spans[0].start == 9


def test_ancestors_and_depths():
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 1]]
    assert ancestors((-1, 0, -1, 1)).int().tolist() == expected
    assert depths_after((0, 1), (1, -1, 2)) == (0, 1, 2, 0, 3)


# ── the mask functions that transformers calls ────────────────────────────────────────────────────────────────────


def asked(attention, rule=causal_mask_function, **options):
    return MASKED_ATTENTION[attention](
        batch_size=1, q_length=1, kv_length=6, q_offset=5, mask_function=rule, dtype=torch.bfloat16, **options
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_masks_are_additive_in_the_dtype_of_the_model(attention):
    """A bool mask would be added, and silently wrong, under eager attention."""
    with running(TREES):
        assert asked(attention).dtype == torch.bfloat16
        assert asked(attention).shape == (2, 1, 4, 13)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_lone_node_that_sees_everything_needs_no_mask(attention):
    one, window = span(0, 5, (-1,), 1), sliding_window_causal_mask_function(4)
    with running(Pass((one,), CPU)):
        assert asked(attention) is None
        assert asked(attention, allow_is_causal_skip=False) is not None
        assert asked(attention, window, local_size=6) is None
        assert asked(attention, window, local_size=5) is not None
    with running(Pass((one, span(1, 4, (-1, 0), 1)), CPU)):
        assert asked(attention) is None
    with running(Pass((one, span(1, 4, (-1,), 1)), CPU)):
        assert asked(attention) is not None
    with running(Pass((span(0, 4, (-1, -1), 1),), CPU)):
        assert asked(attention) is not None
    with running(Pass((span(0, 4, (-1, 0), 2),), CPU)):
        assert asked(attention) is not None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_outside_of_a_pass_masks_are_those_of_transformers(attention):
    assert current() is None
    assert ALL_MASK_ATTENTION_FUNCTIONS[attention] is MASKED_ATTENTION[attention]
    kind = {"sdpa": torch.bool, "eager": torch.bfloat16}[attention]
    assert asked(attention, allow_is_causal_skip=False).dtype == kind
    with pytest.raises(KeyError), running(TREES):
        assert current() is TREES
        raise KeyError
    assert current() is None
