"""Our attention is the textbook's; an exact layout gives every node the bits that it has alone."""

import random

import pytest
import torch
from torch.nn import functional

from tests.targets.reference import path_to, random_nodes
from tests.tiny import tiny_model
from truedraft.targets import ragged
from truedraft.targets.attention import PLAIN, Heads, Layout, Scoring, attend, register
from truedraft.targets.cached import CachedModel
from truedraft.targets.exact import HeadCount, find_layout
from truedraft.targets.masks import additive_mask
from truedraft.targets.passes import Pass, Span, depths_after

CAPACITY = 17  # slots beyond those of a pass: views have gaps, as in a cache
SHAPES = [(4, 2, 8), (4, 1, 16), (3, 3, 16), (9, 3, 64), (1, 1, 8)]
LAYOUTS = [Layout(4, 192, exact=True), Layout(8, 64, exact=True), Layout(4, 0, exact=True)]


def causal(row, head, query, key):
    return key <= query


def windowed(row, head, query, key):
    return (key <= query) & (key > query - 6)


def spans_of(rows):
    return [Span(i, base, tree, depths_after((), tree), fresh) for i, (base, tree, fresh) in enumerate(rows)]


def random_rows(rng, count, longest):
    """Rows as (committed tokens, parents, fresh nodes); chains among them."""
    rows = []
    for _ in range(count):
        nodes = rng.randint(1, 12)
        tree = tuple(range(-1, nodes - 1)) if rng.random() < 0.3 else random_nodes(rng, nodes).parents
        rows.append((rng.randint(1, longest), tree, rng.randint(1, nodes)))
    return rows


def heads_for(spans, shape, *, rule=causal, in_slots=True, seed=0):
    query_heads, key_heads, dim = shape
    what = Pass(tuple(spans), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(len(spans), what.width, query_heads, dim, generator=generator).transpose(1, 2)
    keys, values = torch.randn(2, len(spans), key_heads, what.extent + CAPACITY, dim, generator=generator)
    mask = additive_mask(what, rule, dtype=torch.float32, in_slots=in_slots)
    return Heads(query, keys[:, :, : what.extent], values[:, :, : what.extent], mask)


def textbook(heads, scale, softcap=None):
    """softmax(q k / sqrt d + mask) v with copied heads, in float64, as [B, W, H, E]."""
    shared = heads.query.shape[1] // heads.keys.shape[1]
    keys, values = (x.double().repeat_interleave(shared, dim=1) for x in (heads.keys, heads.values))
    scores = heads.query.double() @ keys.transpose(2, 3) * scale
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    return (torch.softmax(scores + heads.mask.double(), dim=-1) @ values).transpose(1, 2)


def largest_error(output, expected, spans):
    return max(float((output - expected)[row, : span.fresh].abs().max()) for row, span in enumerate(spans))


# ── it is attention ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", [causal, windowed])
@pytest.mark.parametrize("layout", [PLAIN, *LAYOUTS], ids=str)
def test_every_layout_is_the_textbooks_attention(shape, rule, layout):
    """Exact layouts take the mask in positions, which is another mask for the same attention."""
    rng = random.Random(str((shape, layout)))
    for seed in range(8):
        spans = spans_of(random_rows(rng, rng.choice([1, 3]), longest=rng.choice([20, 220])))
        expected = textbook(heads_for(spans, shape, rule=rule, seed=seed), 0.3)
        heads = heads_for(spans, shape, rule=rule, seed=seed, in_slots=not layout.exact)
        output = attend(heads, Scoring(0.3, layout), spans=spans)
        assert output.shape == expected.shape
        assert largest_error(output, expected, spans) < 1e-5


@pytest.mark.parametrize("layout", [PLAIN, LAYOUTS[0]], ids=str)
def test_scores_may_be_capped(layout):
    spans = spans_of([(30, (-1, 0, 0, 1), 4)])
    heads = heads_for(spans, (4, 2, 8), in_slots=not layout.exact)
    output = attend(heads, Scoring(2.0, layout, softcap=1.5), spans=spans)
    expected = textbook(heads_for(spans, (4, 2, 8)), 2.0, softcap=1.5)
    assert largest_error(output, expected, spans) < 1e-5


@pytest.mark.parametrize("layout", [PLAIN, LAYOUTS[0]], ids=str)
@pytest.mark.parametrize("base", [0, 1, 70, 200])
def test_long_texts_are_read_in_tiles(layout, base):
    spans = spans_of([(base, tuple(range(-1, 149)), 150)])
    heads = heads_for(spans, (4, 2, 8), in_slots=not layout.exact)
    assert largest_error(attend(heads, Scoring(0.3, layout), spans=spans), textbook(heads, 0.3), spans) < 1e-5


def test_a_single_node_needs_no_mask():
    spans = spans_of([(5, (-1,), 1)])
    heads = heads_for(spans, (4, 2, 8))
    without = Heads(heads.query, heads.keys, heads.values)
    for layout in (PLAIN, *LAYOUTS):
        output = attend(without, Scoring(0.3, layout), spans=spans)
        assert largest_error(output, textbook(heads, 0.3), spans) < 1e-5


@pytest.mark.parametrize("behind", [0, 1, 2, 3, 30])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_single_nodes_queries_are_read_where_they_lie(layout, behind):
    """Rows to spare are what lies behind the queries: whatever that is, and where memory ends there are none."""
    spans = spans_of([(40, (-1,), 1)])
    heads = heads_for(spans, (6, 2, 8))
    memory = torch.full((6 + behind, 8), torch.nan)
    memory[:6] = heads.query[0, :, 0]
    query = memory[None, None].transpose(1, 2)[:, :6]
    assert query.untyped_storage().nbytes() == memory.nbytes
    output = attend(Heads(query, heads.keys, heads.values), Scoring(0.3, layout), spans=spans)
    assert torch.equal(output, attend(Heads(heads.query, heads.keys, heads.values), Scoring(0.3, layout), spans=spans))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_keys_and_values_are_left_as_they_were(layout):
    rng = random.Random(1)
    for seed in range(20):
        spans = spans_of(random_rows(rng, 2, longest=70))
        heads = heads_for(spans, (4, 2, 8), in_slots=False, seed=seed)
        before = heads.keys.clone(), heads.values.clone()
        attend(heads, Scoring(0.3, layout), spans=spans)
        assert torch.equal(heads.keys, before[0]) and torch.equal(heads.values, before[1])


# ── bit by bit ────────────────────────────────────────────────────────────────────────────────────────────────────


def alone(heads, row, span, node):
    """The node with nothing but its path behind the committed tokens: what plain decoding runs."""
    path = path_to(len(span.parents) - span.fresh + node, span.parents)
    slots = [*range(span.base), *(span.base + i for i in path)]
    query = heads.query[row : row + 1, :, node : node + 1]
    return Heads(query, heads.keys[row : row + 1, :, slots], heads.values[row : row + 1, :, slots])


def differing(layout, shape, rounds, seed=0):
    """How many of some random nodes do not have the bits that they have alone."""
    rng, count = random.Random(seed), 0
    threads = torch.get_num_threads()
    try:
        for number in range(rounds):
            spans = spans_of(random_rows(rng, rng.choice([1, 1, 2, 8]), longest=rng.choice([10, 260, 800])))
            heads = heads_for(spans, shape, in_slots=not layout.exact, seed=number)
            torch.set_num_threads(rng.choice([1, 2]))
            output = attend(heads, Scoring(0.3, layout), spans=spans)
            torch.set_num_threads(rng.choice([1, 2]))
            for row, span in enumerate(spans):
                node = rng.randrange(span.fresh)
                single = attend(alone(heads, row, span, node), Scoring(0.3, layout))
                count += not torch.equal(single[0, 0], output[row, node])
    finally:
        torch.set_num_threads(threads)
    return count


@pytest.mark.parametrize("shape", [*SHAPES, (14, 2, 64), (4, 1, 256)])
def test_the_layout_that_is_found_is_exact_on_what_was_not_tried(shape):
    layout = find_layout([HeadCount(*shape, shape[2])])
    assert layout is not None
    assert differing(layout, shape, 60) == 0


def test_the_plain_layout_is_not_exact():
    assert differing(PLAIN, (9, 3, 64), 20) > 0


# ── within transformers ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", [PLAIN, *LAYOUTS], ids=str)
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
@torch.inference_mode()
def test_models_run_on_it_without_a_pass_too(layout, family):
    model, ids = tiny_model(family), torch.arange(3, 43)[None]
    expected = model(ids).logits
    model.set_attn_implementation(register(layout))
    assert torch.allclose(model(ids).logits, expected, atol=1e-4)
    assert torch.allclose(model(ids, use_cache=False).logits, expected, atol=1e-4)


@pytest.mark.parametrize("layout", [PLAIN, *LAYOUTS], ids=str)
def test_a_cached_model_takes_it(layout):
    model = tiny_model("mistral")
    model.set_attn_implementation(register(layout))
    CachedModel(model)  # tries a tree


def test_what_it_does_not_know_is_refused():
    model = tiny_model("llama")
    model.set_attn_implementation(register(PLAIN))
    with pytest.raises(ValueError, match="s_aux"):
        model(torch.tensor([[3, 4]]), s_aux=torch.zeros(4))


def test_it_agrees_with_pytorchs_own():
    spans = spans_of([(40, tuple(range(-1, 5)), 6)])
    heads = heads_for(spans, (4, 2, 8))
    expected = functional.scaled_dot_product_attention(
        heads.query, heads.keys, heads.values, attn_mask=heads.mask, enable_gqa=True
    ).transpose(1, 2)
    assert torch.allclose(attend(heads, Scoring(8**-0.5), spans=spans), expected, atol=1e-6)


# ── passes without padding ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", [PLAIN, *LAYOUTS], ids=lambda layout: layout.name)
@pytest.mark.parametrize("seed", range(6))
def test_few_wide_rows_attend_on_their_own_and_nothing_changes(layout, seed, monkeypatch):
    """The real nodes of a ragged pass, with rows apart and padded: narrow rows with trees behind them among them."""
    rng, shape = random.Random(seed), SHAPES[1]
    rows = [(base, tree, 1 if n % 3 else fresh) for n, (base, tree, fresh) in enumerate(random_rows(rng, 8, 20))]
    spans = spans_of(rows)
    what = Pass(tuple(spans), torch.device("cpu"), ragged=True)
    heads = heads_for(spans, shape, in_slots=not layout.exact, seed=seed)
    query = heads.query.transpose(1, 2)[what.places].transpose(0, 1)[None]
    scoring, calls = Scoring(0.3, layout), []
    real = ragged.attend
    monkeypatch.setattr(ragged, "attend", lambda *args, **more: calls.append(1) or real(*args, **more))
    found = {}
    for name, cost in {"padded": 1 << 40, "apart": 0}.items():
        monkeypatch.setattr(ragged, "_ALONE", cost)
        calls.clear()
        found[name] = ragged.attend_ragged(query, heads, scoring, what)
        found[f"{name} calls"] = len(calls)
    assert found["padded calls"] == 1 and found["apart calls"] == 1 + sum(span.fresh > 1 for span in spans) > 1
    assert found["padded"].shape == (1, what.columns, shape[0], shape[2])
    assert torch.allclose(found["padded"], found["apart"], atol=1e-6)
