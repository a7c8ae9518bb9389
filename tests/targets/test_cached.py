"""Every pass of the cached model gives what transformers gives for the whole text, and leaves the right state."""

import random

import pytest
import torch

from tests.targets.reference import (
    KINDS,
    fresh_state,
    largest_difference,
    one_path_at_a_time,
    path_to,
    plain,
    random_nodes,
    random_path,
    state,
    text,
    tolerance,
)
from tests.tiny import FAMILIES, WINDOW, tiny_model
from truedraft.errors import ParameterError, PromptError, UnsupportedModelError
from truedraft.targets.cached import CachedModel, Nodes

every_kind = pytest.mark.parametrize(("attention", "dtype"), KINDS)
every_family = pytest.mark.parametrize("family", FAMILIES)
around_the_window = [1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 2 * WINDOW + 3]


def cached(family="llama", attention="sdpa", dtype=torch.float64, chunk=512, **options):
    return CachedModel(tiny_model(family, attention=attention, dtype=dtype, **options), chunk=chunk)


def close(one, other, attention="sdpa", dtype=torch.float64):
    return largest_difference([one], [other]) < tolerance(attention, dtype)


# ── one row ───────────────────────────────────────────────────────────────────────────────────────────────────────


@every_family
@every_kind
def test_a_tree_scores_as_its_paths(family, attention, dtype):
    model = cached(family, attention, dtype)
    rng = random.Random(family)
    for length in around_the_window:
        prefix, nodes = text(length), random_nodes(rng, 9)
        model.read(length, prefix)
        (scores,) = model.extend([length], [nodes])
        expected = one_path_at_a_time(model.model, prefix, nodes.tokens, nodes.parents)
        assert close(scores.logits, expected, attention, dtype), length
        model.release(length)


@every_family
def test_a_tree_may_grow_level_by_level(family):
    model, rng, prefix = cached(family), random.Random(1), text(WINDOW + 2)
    model.read("a", prefix)
    tokens, parents = (), ()
    for count in (1, 3, 4, 2):
        nodes = random_nodes(rng, count, before=len(tokens))
        (scores,) = model.extend(["a"], [nodes])
        tokens, parents = tokens + nodes.tokens, parents + nodes.parents
        expected = one_path_at_a_time(model.model, prefix, tokens, parents)[-count:]
        assert close(scores.logits, expected)
    path = path_to(len(tokens) - 1, parents)
    model.keep("a", path)
    assert largest_difference(state(model, "a"), fresh_state(model, [*prefix, *(tokens[i] for i in path)])) < 1e-10


@every_family
@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_a_prompt_may_be_read_in_chunks(family, chunk):
    for length in (7, 8, 9, 17):
        model, prefix = cached(family, chunk=chunk), text(length)
        model.read("a", prefix)
        assert model.cached("a") == length
        assert largest_difference(state(model, "a"), fresh_state(model, prefix)) < 1e-10


def test_reading_computes_no_logits():
    model = cached()
    rows = []
    model.model.lm_head.register_forward_hook(lambda module, inputs, output: rows.append(output))
    model.read("a", text(20))
    assert not rows


@every_family
@every_kind
def test_fifty_rounds_of_partial_acceptance_leave_the_state_of_a_fresh_prefill(family, attention, dtype):
    model, rng = cached(family, attention, dtype, chunk=16), random.Random(2)
    committed = text(3)
    model.read("a", committed)
    for _ in range(50):
        if len(committed) > 40:
            del committed[rng.randrange(20) :]
            model.rewind("a", len(committed))
        nodes = random_nodes(rng, rng.choice([1, 2, 5, 8]))
        (scores,) = model.extend(["a"], [nodes])
        path = random_path(rng, nodes.parents)
        model.keep("a", path)
        if path:
            expected = plain(model.model, [*committed, *(nodes.tokens[node] for node in path)])[len(committed) :]
            assert close(scores.logits[path], expected, attention, dtype)
        committed += [nodes.tokens[node] for node in path]
        assert model.cached("a") == len(committed)
        assert largest_difference(state(model, "a"), fresh_state(model, committed)) < tolerance(attention, dtype)


@every_family
def test_a_branch_that_is_not_the_first_is_compacted(family):
    model, committed = cached(family), text(WINDOW - 1)
    model.read("a", committed)
    nodes = Nodes((5, 6, 7, 8, 9, 10, 11), (-1, 0, 0, 1, 2, 4, 4))
    for _ in range(4):  # crosses the window with siblings in between
        model.extend(["a"], [nodes])
        model.keep("a", (0, 2, 4, 6))
        committed += [5, 7, 9, 11]
        assert largest_difference(state(model, "a"), fresh_state(model, committed)) < 1e-10


# ── several rows ──────────────────────────────────────────────────────────────────────────────────────────────────


@every_family
@every_kind
def test_rows_of_different_lengths_score_as_alone(family, attention, dtype):
    """In any order, some rows left out, with different numbers of nodes: none knows of the others."""
    model, rng = cached(family, attention, dtype), random.Random(3)
    texts = {key: text(length, seed=length) for key, length in zip("abcd", (1, WINDOW + 5, 4, 20), strict=True)}
    for key, tokens in texts.items():
        model.read(key, tokens)
    for keys in ("abcd", "dbca", "db", "ca", "bc", "a", "dcb"):
        nodes = {key: random_nodes(rng, rng.choice([1, 2, 6])) for key in keys}
        scores = model.extend(list(keys), [nodes[key] for key in keys])
        for key, score in zip(keys, scores, strict=True):
            expected = one_path_at_a_time(model.model, texts[key], nodes[key].tokens, nodes[key].parents)
            assert close(score.logits, expected, attention, dtype), (keys, key)
            path = random_path(rng, nodes[key].parents)
            model.keep(key, path)
            texts[key] += [nodes[key].tokens[node] for node in path]
    for key, tokens in texts.items():
        assert largest_difference(state(model, key), fresh_state(model, tokens)) < tolerance(attention, dtype)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_rows_come_and_go(family):
    model, rng, texts = cached(family), random.Random(4), {}
    for step in range(40):
        if texts and (len(texts) > 4 or rng.random() < 0.4):
            gone = rng.choice(sorted(texts))
            model.release(gone)
            del texts[gone]
            assert model.cached(gone) == 0
        else:
            texts[step] = text(rng.randrange(1, 25), seed=rng.randrange(3))  # often begin alike
            model.read(step, texts[step])
        keys = rng.sample(sorted(texts), rng.randrange(len(texts) + 1))
        nodes = [random_nodes(rng, rng.choice([1, 4])) for _ in keys]
        for key, new, scores in zip(keys, nodes, model.extend(keys, nodes), strict=True):
            assert close(scores.logits, one_path_at_a_time(model.model, texts[key], new.tokens, new.parents))
            model.keep(key, ())
        for key, tokens in texts.items():
            assert largest_difference(state(model, key), fresh_state(model, tokens)) < 1e-10


def test_a_row_may_begin_with_nodes():
    model = cached()
    (scores,) = model.extend(["a"], [Nodes((5, 6, 7), (-1, -1, 0))])
    assert close(scores.logits, one_path_at_a_time(model.model, [], (5, 6, 7), (-1, -1, 0)))
    model.keep("a", (0, 2))
    assert largest_difference(state(model, "a"), fresh_state(model, [5, 7])) < 1e-10


# ── taps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_family
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_taps_are_the_hidden_states_of_transformers(family, attention):
    model = cached(family, attention, chunk=5)
    taps, prefix, nodes = (0, 2, model.layers, 1), text(12), Nodes.chain((5, 6, 7))
    prefix_features = model.read("a", prefix, taps)
    (scores,) = model.extend(["a"], [nodes], taps)
    hidden = model.model(torch.tensor([[*prefix, *nodes.tokens]]), output_hidden_states=True).hidden_states
    expected = torch.stack([hidden[tap][0] for tap in taps], dim=1)
    assert prefix_features.shape == (12, 4, model.hidden_size) == (12, len(taps), expected.shape[-1])
    assert close(torch.cat([prefix_features, scores.features]), expected, attention)


def test_taps_of_a_batch_and_of_nothing():
    model = cached()
    model.read("a", text(9))
    model.read("b", text(4, seed=1))
    nodes = [Nodes((5, 6, 7), (-1, 0, 0)), Nodes((8,), (-1,))]
    alone = [model.extend([key], [new], (1, 3))[0].features for key, new in zip("ab", nodes, strict=True)]
    model.rewind("a", 9)
    model.rewind("b", 4)
    together = model.extend(["a", "b"], nodes, (1, 3))
    assert all(close(one, both.features) for one, both in zip(alone, together, strict=True))
    model.rewind("a", 9)
    assert model.read("a", [], (1, 3)).shape == (0, 2, model.hidden_size)
    assert model.read("a", []) is None
    assert model.extend([], []) == []


def test_a_model_that_hides_its_states_cannot_be_tapped():
    model = cached()
    model.model.register_forward_hook(lambda module, inputs, output: setattr(output, "hidden_states", None))
    with pytest.raises(UnsupportedModelError, match="hidden states"):
        model.extend(["a"], [Nodes.chain((5,))], (1,))
    model.extend(["a"], [Nodes.chain((5,))])


@pytest.mark.parametrize("tap", [-1, 4])
def test_a_tap_that_the_model_has_not_is_refused(tap):
    model = cached()
    with pytest.raises(ParameterError, match=rf"tap {tap} .* 0 .. 3"):
        model.read("a", text(3), (0, tap))
    with pytest.raises(ParameterError, match=f"tap {tap}"):
        model.extend(["a"], [Nodes.chain((5,))], (tap,))


# ── going back ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rewinding_to_any_length_and_on():
    model, tokens = cached(), text(12)
    for length in range(13):
        model.catch_up("a", tokens)
        model.rewind("a", length)
        assert model.cached("a") == length
        model.read("a", [40, 41])
        assert largest_difference(state(model, "a"), fresh_state(model, [*tokens[:length], 40, 41])) < 1e-10


def test_rewinding_further_than_there_is_is_an_error():
    model = cached()
    model.read("a", text(5))
    for length in (-1, 6):
        with pytest.raises(ParameterError, match="holds 5"):
            model.rewind("a", length)
    with pytest.raises(ParameterError, match="holds 0"):
        model.rewind("nobody", 1)
    model.rewind("nobody", 0)


def test_rewinding_drops_the_nodes():
    model = cached()
    model.read("a", text(5))
    model.extend(["a"], [Nodes.chain((5, 6))])
    model.rewind("a", 5)
    with pytest.raises(ParameterError, match="path"):
        model.keep("a", (0,))


def test_catching_up_with_a_text_that_was_edited():
    model, before = cached(), text(14)
    model.catch_up("a", before)
    edited = [*before[:6], 47, *before[7:10]]
    model.catch_up("a", edited)
    assert model.cached("a") == 10
    assert largest_difference(state(model, "a"), fresh_state(model, edited)) < 1e-10


# ── what makes no sense ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [(1,), (0, 0), (0, 2, 1), (3,), (-1,), (0, 3)])
def test_a_path_must_lead_from_child_to_child(path):
    model = cached()
    model.read("a", text(4))
    model.extend(["a"], [Nodes((5, 6, 7), (-1, 0, 0))])
    with pytest.raises(ParameterError, match="path"):
        model.keep("a", path)
    model.keep("a", (0, 2))


@pytest.mark.parametrize("parents", [(0,), (-2,), (5,)])
def test_a_parent_must_be_there(parents):
    with pytest.raises(ParameterError, match="parents"):
        cached().extend(["a"], [Nodes((5,), parents)])


def test_nodes_that_are_no_nodes():
    with pytest.raises(ParameterError, match="at least one"):
        Nodes((), ())
    with pytest.raises(ParameterError, match="equally many"):
        Nodes((1, 2), (-1,))


def test_a_row_is_extended_once_in_a_pass():
    with pytest.raises(ParameterError, match="twice"):
        cached().extend(["a", "a"], [Nodes.chain((5,)), Nodes.chain((6,))])


def test_keeping_and_reading_in_the_wrong_order():
    model = cached()
    with pytest.raises(ParameterError, match="no row"):
        model.keep("a", (0,))
    model.extend(["a"], [Nodes.chain((5,))])
    with pytest.raises(ParameterError, match="uncommitted"):
        model.read("a", [6])


@pytest.mark.parametrize("token", [-1, 48])
def test_a_token_that_the_model_cannot_read_is_refused(token):
    model = cached()
    with pytest.raises(PromptError, match=f"token id {token} .* 47"):
        model.read("a", [5, token])
    with pytest.raises(PromptError, match=f"token id {token}"):
        model.extend(["a"], [Nodes.chain((token,))])


def test_a_chunk_has_at_least_one_token():
    with pytest.raises(ParameterError, match="chunk is 0"):
        CachedModel(tiny_model(), chunk=0)


# ── the end of the context ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_context_can_be_filled_to_the_last_position_and_no_further(family):
    model = cached(family, chunk=10)
    limit = model.context_length
    prefix = text(limit - 3)
    model.read("a", prefix)
    nodes = Nodes((5, 6, 7, 8), (-1, 0, 1, 0))
    (scores,) = model.extend(["a"], [nodes])
    assert close(scores.logits, one_path_at_a_time(model.model, prefix, nodes.tokens, nodes.parents))
    with pytest.raises(ParameterError, match=f"position {limit} .* {limit}"):
        model.extend(["a"], [Nodes((9,), (2,))])
    model.keep("a", (0, 1, 2))
    with pytest.raises(PromptError, match=f"{limit + 1} tokens .* {limit}"):
        model.read("a", [5])
    assert model.cached("a") == limit
    with pytest.raises(PromptError, match="do not fit"):
        model.read("b", text(limit + 1))
    model.read("b", text(limit))


def test_a_row_at_the_limit_takes_part_in_a_wider_pass():
    model = cached("gpt2")
    full, short = text(model.context_length - 1), text(3, seed=1)
    model.read("full", full)
    model.read("short", short)
    nodes = [Nodes.chain((5,)), Nodes.chain(text(12, seed=2))]
    for prefix, new, scores in zip((full, short), nodes, model.extend(["full", "short"], nodes), strict=True):
        assert close(scores.logits, one_path_at_a_time(model.model, prefix, new.tokens, new.parents))


@pytest.mark.parametrize("length", range(1, 9))
def test_short_prompts_with_learned_positions(length):
    model, prompt = cached("gpt2"), text(length)
    model.read("a", prompt[:-1])
    (scores,) = model.extend(["a"], [Nodes.chain((prompt[-1], 5, 6))])
    assert close(scores.logits, plain(model.model, [*prompt, 5, 6])[length - 1 :])


# ── low precision ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_family
def test_low_precision_stays_within_its_rounding(family, dtype):
    model, prefix, nodes = cached(family, dtype=dtype), text(11), random_nodes(random.Random(5), 7)
    model.read("a", prefix)
    (scores,) = model.extend(["a"], [nodes])
    expected = one_path_at_a_time(model.model, prefix, nodes.tokens, nodes.parents)
    assert scores.logits.dtype == dtype
    assert (scores.logits - expected).abs().max() < 32 * torch.finfo(dtype).eps * expected.abs().max()
