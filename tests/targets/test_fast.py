"""A prepared model gives what transformers gives; an exact one gives every token the bits of plain decoding."""

import random
from dataclasses import replace

import pytest
import torch

from tests.targets.reference import path_to, random_nodes, text, tiny_gemma2
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import UnsupportedModelError
from truedraft.targets import fast
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.fast import Preparation, prepare
from truedraft.targets.kernels import KERNELS, Float16, Packed, why_not
from truedraft.targets.packed import PackedLinear, linears
from truedraft.targets.products import Trial

ROUNDED = [name for name in KERNELS if name != "auto" and why_not(torch.zeros(1), KERNELS[name]) is None]
needs_float16 = pytest.mark.skipif("float16" not in ROUNDED, reason="no products of float16 here")
PACKS = Trial(exact_rows=1, plain=2.0, packed=1.0)
FULL_SHAPE = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 2,
    "max_position_embeddings": 1024,
}
"""A common model of 135M parameters, with two of its layers and few words."""


def packed_layers(model):
    return [module for module in model.modules() if isinstance(module, PackedLinear)]


@pytest.fixture
def trials(monkeypatch):
    """Decides what trials find, instead of the machine."""
    return lambda trial: monkeypatch.setattr(fast, "try_out", lambda form, group, stopwatch: trial)


# ── the model stays what it is ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("exact", [True, False, None])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_prepared_model_gives_the_same_logits(family, exact):
    model, prepared = tiny_model(family), tiny_model(family)
    prepare(prepared, exact=exact)
    ids = torch.tensor([text(40)])
    assert torch.allclose(prepared(ids).logits, model(ids).logits, atol=2e-4)


def test_layers_are_packed_only_if_that_is_faster(trials):
    model = tiny_model()
    trials(PACKS)
    assert prepare(model, exact=False).exact is False
    assert packed_layers(model) and not linears(model)
    model = tiny_model()
    trials(replace(PACKS, packed=3.0))
    assert prepare(model, exact=False).exact is False
    assert linears(model) and not packed_layers(model)


def test_exactness_is_the_default_as_long_as_it_costs_little(trials):
    for packed, is_exact in ((1.0, True), (2.1, True), (2.3, False)):
        trials(replace(PACKS, packed=packed))
        assert prepare(tiny_model()).exact is is_exact
        assert prepare(tiny_model(), exact=True).exact is True


# ── where it cannot be had ────────────────────────────────────────────────────────────────────────────────────────


def refused(model, reason):
    before = linears(model)
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        prepare(model, exact=True)
    assert "\n" not in str(caught.value)
    assert linears(model) == before


def test_products_that_depend_on_each_other_rule_it_out(trials):
    trials(replace(PACKS, exact_rows=None))
    refused(tiny_model(), "products of 32 by")
    model = tiny_model()
    (note,) = prepare(model).notes
    assert "products of 32 by" in note and packed_layers(model)
    assert prepare(tiny_model(), exact=False).notes == ()


def test_an_attention_that_depends_on_its_rows_rules_it_out(monkeypatch):
    monkeypatch.setattr(fast, "find_layout", lambda heads: None)
    refused(tiny_model(), "no attention is known")
    assert prepare(tiny_model()).exact is False


@pytest.mark.parametrize(("dtype", "reason"), [(torch.float64, "float64"), (torch.bfloat16, "float32|no packed")])
def test_only_float32_is_exact(dtype, reason):
    refused(tiny_model(dtype=dtype), reason)
    model = tiny_model(dtype=dtype)
    assert prepare(model).exact is False
    CachedModel(model)


def test_without_packed_products_a_model_runs_as_it_is(monkeypatch):
    monkeypatch.setattr(fast, "why_not", lambda weight, kernel: "nothing is packed here")
    refused(tiny_model(), "nothing is packed here")
    model = tiny_model()
    before = linears(model)
    assert prepare(model) == Preparation(False, ("nothing is packed here",))
    assert linears(model) == before
    CachedModel(model)


# ── weights of fewer bits ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("weights", ROUNDED)
@torch.inference_mode()
def test_all_layers_are_rounded_but_not_a_head_whose_logits_would_tie(weights):
    model, rounded = tiny_model(), tiny_model()
    assert prepare(rounded, weights=weights).weights == weights
    assert set(linears(rounded)) <= {rounded.lm_head}
    ties = KERNELS[weights].results is torch.bfloat16
    for name, layer in rounded.named_modules():
        if isinstance(layer, PackedLinear):
            original = model.get_submodule(name).weight
            assert torch.equal(layer.weight, original) == (ties and name == "lm_head")
            original.data.copy_(layer.weight)
    ids = torch.tensor([text(40)])
    expected = model(ids).logits
    assert (rounded(ids).logits - expected).abs().max() < 0.2 * expected.abs().max()


def stored_in(dtype, **changes):
    """A model in float32 whose weights were stored in another type."""
    model = tiny_model(**changes)
    for parameter in model.parameters():
        parameter.data.copy_(parameter.to(dtype))
    return model


@pytest.fixture
def narrow_is_faster(monkeypatch):
    """Trials find that products of float16 take less time, or more."""
    real = fast.try_out

    def decide(faster):
        def tried(form, group, stopwatch):
            seconds = 1.0 if (form.kernel is Float16) == faster else 2.0
            return replace(real(form, group, stopwatch), packed=seconds, plain=3.0)

        monkeypatch.setattr(fast, "try_out", tried)

    return decide


def kernels_of(model):
    return {type(layer.product._kernel) for layer in packed_layers(model)}


@needs_float16
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_weights_that_float16_holds_are_read_as_such_where_that_is_faster(narrow_is_faster, dtype):
    for faster, kernel, name in ((True, Float16, "float16"), (False, Packed, "auto")):
        narrow_is_faster(faster)
        model, ours = stored_in(dtype), stored_in(dtype)
        assert prepare(ours) == Preparation(True, ragged=True, weights=name)
        assert kernels_of(ours) == {kernel}
        for name, layer in ours.named_modules():
            if isinstance(layer, PackedLinear):
                assert torch.equal(layer.weight, model.get_submodule(name).weight)
        ids = torch.tensor([text(40)])
        assert torch.allclose(ours(ids).logits, model(ids).logits, atol=2e-4)


@needs_float16
def test_weights_of_more_digits_keep_them(narrow_is_faster):
    narrow_is_faster(True)
    model = stored_in(torch.bfloat16)
    layer = model.model.layers[1].self_attn.k_proj
    layer.weight.data[3, 4] = 1 / 3
    kept = layer.weight.clone()
    assert prepare(model).weights == "float16"
    packed = model.model.layers[1].self_attn.k_proj
    assert type(packed.product._kernel) is Packed and torch.equal(packed.weight, kept)
    assert kernels_of(model) == {Packed, Float16}


@needs_float16
def test_float16_gives_way_where_only_float32_is_exact(monkeypatch, narrow_is_faster):
    narrow_is_faster(True)
    tried = fast.try_out

    def inexact(form, group, stopwatch):
        trial = tried(form, group, stopwatch)
        return replace(trial, exact_rows=None) if form.kernel is Float16 else trial

    monkeypatch.setattr(fast, "try_out", inexact)
    model = stored_in(torch.bfloat16)
    assert prepare(model, exact=True).exact and kernels_of(model) == {Packed}


@needs_float16
@pytest.mark.skipif("bfloat16" not in ROUNDED, reason="no products of bfloat16 here")
def test_a_head_that_float16_holds_is_read_as_such_beside_layers_of_fewer_bits(narrow_is_faster):
    narrow_is_faster(True)
    model = stored_in(torch.bfloat16)
    assert prepare(model, weights="bfloat16").weights == "bfloat16"
    assert type(model.lm_head.product._kernel) is Float16


def test_weights_that_cannot_be_rounded_are_an_error(monkeypatch):
    monkeypatch.setattr(fast, "why_not", lambda weight, kernel: "there is no such product")
    with pytest.raises(UnsupportedModelError, match="weights cannot be int4 here: there is no such product"):
        prepare(tiny_model(), weights="int4")


# ── bit by bit ────────────────────────────────────────────────────────────────────────────────────────────────────


class Twins:
    """One model run in all ways at once, and token by token."""

    def __init__(self, model, seed):
        self.model, self.rng = model, random.Random(seed)
        self.vocabulary = range(3, 48)

    def tokens(self, count):
        return self.rng.choices(self.vocabulary, k=count)

    def threads(self):
        torch.set_num_threads(self.rng.choice([1, 2, 5]))

    def together(self, prefix, nodes, others):
        """Logits of the nodes when the prefix is read in pieces, in a batch with other texts."""
        self.threads()
        start = 0
        while start < len(prefix):
            step = self.rng.choice([1, 5, 64, 1000])
            self.model.read("a", prefix[start : start + step])
            start += step
        batch = {"a": nodes}
        for other in range(others):
            self.model.read(other, self.tokens(self.rng.randint(1, 90)))
            batch[other] = random_nodes(self.rng, self.rng.randint(1, 9))
        keys = self.rng.sample(list(batch), k=len(batch))
        scores = self.model.extend(keys, [batch[key] for key in keys])
        self._forget(keys)
        return scores[keys.index("a")].logits

    def one_by_one(self, prefix, path):
        """Logits [V] after the path, each of its tokens decoded alone, after the prefix was read at once."""
        self.threads()
        self.model.read("b", prefix)
        for token in path:
            (score,) = self.model.extend(["b"], [Nodes.chain([token])])
            self.model.keep("b", [0])
        self._forget(["b"])
        return score.logits[0]

    def _forget(self, keys):
        for key in keys:
            self.model.release(key)
        for row in self.model._rows.held:  # nothing may be reused from the other twin
            row.forget(0)
            row.tokens.clear()

    def differing(self, rounds, longest, widths=range(1, 10)):
        """In how many rounds some node does not have the bits of plain decoding."""
        threads, count = torch.get_num_threads(), 0
        try:
            for number in range(rounds):
                prefix, width = self.tokens(self.rng.randint(1, longest)), self.rng.choice(widths)
                tree = random_nodes(self.rng, width)
                nodes = Nodes(tree.tokens, tree.parents if number % 2 else tuple(range(-1, width - 1)))
                logits = self.together(prefix, nodes, others=self.rng.choice([0, 0, 7]))
                node = self.rng.randrange(width)
                path = [nodes.tokens[i] for i in path_to(node, nodes.parents)]
                count += not torch.equal(logits[node], self.one_by_one(prefix, path))
        finally:
            torch.set_num_threads(threads)
        return count


def prepared(family, *, exact, weights="auto", **changes):
    longer = {"n_positions": 128} if family == "gpt2" else {}
    model = tiny_model(family, **longer, **changes)
    preparation = prepare(model, exact=exact, weights=weights)
    assert preparation.exact is exact
    return CachedModel(model, ragged=preparation.ragged)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_token_has_the_bits_of_plain_decoding(family):
    assert Twins(prepared(family, exact=True), seed=family).differing(24, longest=40) == 0


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
def test_a_pass_without_padding_gives_what_a_padded_one_gives(family, exact):
    ragged = prepared(family, exact=exact)
    assert ragged.ragged
    padded = CachedModel(ragged.model)
    rng = random.Random(family)
    for _ in range(6):
        texts = [[rng.randrange(3, 48) for _ in range(rng.randint(1, 60))] for _ in range(4)]
        nodes = [random_nodes(rng, rng.randint(1, 9)) for _ in texts]
        keys, taps = rng.sample(range(4), 3), (0, 1, ragged.layers)
        scores = []
        for model in (ragged, padded):
            for key, tokens in enumerate(texts):
                model.catch_up(key, tokens)
            scores.append(model.extend(keys, [nodes[key] for key in keys], taps))
        for one, other in zip(*scores, strict=True):
            for ours, theirs in ((one.logits, other.logits), (one.features, other.features)):
                assert torch.equal(ours, theirs) if exact else torch.allclose(ours, theirs, atol=1e-4)


def test_other_families_keep_their_padding():
    assert not prepare(tiny_model("gpt2")).ragged


@pytest.mark.parametrize("weights", ROUNDED)
def test_a_model_with_rounded_weights_is_as_exact(weights):
    model = prepared("llama", exact=True, weights=weights, **FULL_SHAPE)
    assert Twins(model, seed=weights).differing(8, longest=300) == 0


@needs_float16
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_that_float16_holds_is_as_exact(family, monkeypatch):
    monkeypatch.setattr(fast, "_wide", lambda form: form)  # also where a tiny one is no faster with it
    longer = {"n_positions": 128} if family == "gpt2" else {}
    model = stored_in(torch.bfloat16, family=family, **longer)
    preparation = prepare(model, exact=True)
    assert Float16 in kernels_of(model)
    assert Twins(CachedModel(model, ragged=preparation.ragged), seed=family).differing(12, longest=40) == 0


def test_capped_scores_are_as_exact():
    model = tiny_gemma2()
    assert prepare(model, exact=True).exact and model.config._attn_implementation.startswith("truedraft-exact")
    assert Twins(CachedModel(model), seed=3).differing(12, longest=90) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_without_exactness_some_width_differs(family):
    assert Twins(prepared(family, exact=False), seed=family).differing(12, longest=40) > 0


def test_it_holds_in_the_shape_of_a_real_model_and_in_long_texts():
    model = prepared("llama", exact=True, **FULL_SHAPE)
    assert Twins(model, seed=1).differing(12, longest=700, widths=range(1, 25)) == 0


def test_it_holds_across_every_boundary_of_a_block():
    """Trees whose slots lie on both sides of a multiple of 192 columns, and of other likely blocks."""
    model = prepared("llama", exact=True, max_position_embeddings=1024)
    twins = Twins(model, seed=2)
    for length in (31, 63, 127, 180, 185, 190, 191, 192, 250, 255, 256, 380, 383, 384, 511, 572, 575):
        prefix, nodes = twins.tokens(length), random_nodes(twins.rng, 14)
        logits = twins.together(prefix, nodes, others=0)
        for node in (0, 7, 13):
            path = [nodes.tokens[i] for i in path_to(node, nodes.parents)]
            assert torch.equal(logits[node], twins.one_by_one(prefix, path)), length
