"""Packed layers compute what the layers did that they replace, and nothing is computed or kept twice."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tests.tiny import FAMILIES, tiny_model
from truedraft.targets.kernels import why_not
from truedraft.targets.packed import PackedLinear, Product, joined, linears, pack, siblings

pytestmark = pytest.mark.skipif(why_not(torch.zeros(1)) is not None, reason="no packed products here")


def layer(inputs, outputs, *, bias=True, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs, bias=bias)


def packed_group(*layers):
    """The packed forms of sibling layers, as `pack` makes them."""
    parent = nn.Sequential(*copy.deepcopy(layers))
    pack(parent, list(parent), Product(*joined(list(parent))))
    return list(parent)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 5), (64, 96), (100, 37), (256, 64)])
def test_a_product_is_that_of_the_layer(inputs, outputs, bias):
    original = layer(inputs, outputs, bias=bias)
    product = Product(original.weight, original.bias)
    for count in (1, 2, 3, 8, 33):
        x = torch.randn(count, inputs)
        assert torch.allclose(product(x), original(x), atol=1e-5)
    assert torch.equal(product.weight(), original.weight)


@pytest.mark.parametrize("shape", [(5, 16), (1, 16), (2, 3, 16), (1, 1, 1, 16), (0, 16), (2, 0, 16)])
@pytest.mark.parametrize("rows", [1, 4])
def test_leading_dimensions_are_kept_however_few_rows_there_are(shape, rows):
    original = layer(16, 8)
    product = Product(original.weight, original.bias, rows=rows)
    x = torch.randn(shape)
    assert product(x).shape == (*shape[:-1], 8)
    assert torch.allclose(product(x), original(x), atol=1e-6)


def test_an_input_may_be_a_view_with_gaps():
    original = layer(16, 8)
    product = Product(original.weight, original.bias, rows=4)
    for x in (torch.randn(3, 40)[:, 5:21], torch.randn(16, 3).t(), torch.randn(9, 40)[:, 5:21]):
        assert torch.allclose(product(x), original(x), atol=1e-6)


def test_few_rows_are_computed_as_the_first_of_more():
    """What padding is for: a product that is given its least number of rows has the bits of a padded one."""
    original = layer(24, 16)
    product, x = Product(original.weight, original.bias, rows=4), torch.randn(4, 24)
    padded = Product(original.weight, original.bias)(torch.cat([x[:1], torch.zeros(3, 24)]))
    assert torch.equal(product(x[:1]), padded[:1])


# ── siblings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_siblings_give_what_each_layer_gave():
    layers = [layer(16, outputs, seed=outputs) for outputs in (8, 4, 12)]
    x = torch.randn(2, 3, 16)
    for original, packed in zip(layers, packed_group(*layers), strict=True):
        assert isinstance(packed, PackedLinear)
        assert (packed.in_features, packed.out_features) == (16, original.out_features)
        assert torch.equal(packed.weight, original.weight) and torch.equal(packed.bias, original.bias)
        assert torch.allclose(packed(x), original(x), atol=1e-6)


def test_siblings_multiply_once_and_then_let_go(monkeypatch):
    calls = []
    monkeypatch.setattr(Product, "__call__", lambda self, x, call=Product.__call__: calls.append(x) or call(self, x))
    one, other, last = packed_group(layer(16, 8), layer(16, 8), layer(16, 8))
    x = torch.randn(2, 16)
    for packed in (one, other, last):
        packed(x)
    assert len(calls) == 1
    calls.clear()
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("order", [[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]])
def test_siblings_are_right_in_any_order_and_with_any_tensor(order):
    layers = [layer(16, 8, seed=1), layer(16, 8, seed=2)]
    packed = packed_group(*layers)
    for seed, which in enumerate(order):
        x = torch.randn(3, 16, generator=torch.Generator().manual_seed(seed))
        for _ in range(2):
            assert torch.allclose(packed[which](x), layers[which](x), atol=1e-6)


def names_of_groups(model):
    names = {module: name for name, module in model.named_modules()}
    run = lambda: model(torch.tensor([[3, 4]]), use_cache=False)  # noqa: E731
    return {tuple(names[x].rpartition(".")[2] for x in group) for group in siblings(model, linears(model), run)}


def test_layers_that_read_the_same_tensor_are_found():
    assert names_of_groups(tiny_model("llama")) == {
        ("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",), ("lm_head",)
    }  # fmt: skip
    assert names_of_groups(tiny_model("gpt2")) == {("c_attn",), ("c_proj",), ("c_fc",), ("lm_head",)}
    alone = {("qkv_proj",), ("o_proj",), ("gate_up_proj",), ("down_proj",), ("lm_head",)}
    assert names_of_groups(tiny_model("phi3")) == alone


def test_only_layers_alike_and_called_once_are_siblings():
    one, other, biased, twice = layer(8, 8, bias=False), layer(8, 4, bias=False), layer(8, 8), layer(8, 8, bias=False)
    model, x = nn.ModuleList([one, other, biased, twice]), torch.randn(1, 8)

    def run(*calls):
        return lambda: [call(x) for call in calls]

    assert siblings(model, linears(model), run(one, other, x.add, twice)) == [[one, other, twice], [biased]]
    assert siblings(model, linears(model), run(one, biased)) == [[one], [other], [biased], [twice]]
    assert siblings(model, linears(model), run(one, twice, twice)) == [[one], [other], [biased], [twice]]
    assert siblings(model, linears(model), run(one, lambda x: other(x + 0))) == [[one], [other], [biased], [twice]]
    assert siblings(model, linears(model), run()) == [[one], [other], [biased], [twice]]
    assert not any(module._forward_pre_hooks for module in model)


# ── whole models ──────────────────────────────────────────────────────────────────────────────────────────────────


def pack_all(model):
    run = lambda: model(torch.tensor([[3, 4]]), use_cache=False)  # noqa: E731
    for group in siblings(model, linears(model), run):
        pack(model, group, Product(*joined(group)))
    return model


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_packed_model_gives_the_same_logits(family):
    model, packed = tiny_model(family), pack_all(tiny_model(family))
    assert not linears(packed)
    for count in (1, 2, 7, 30):
        ids = torch.arange(3, 3 + count)[None]
        assert torch.allclose(packed(ids).logits, model(ids).logits, atol=1e-4)


def test_the_original_weights_are_freed_except_what_the_embedding_shares():
    model = tiny_model("llama")
    tied = model.lm_head.weight
    assert tied is model.model.embed_tokens.weight
    others = [weakref.ref(layer.weight) for layer in linears(model) if layer.weight is not tied]
    held = linears(model)
    pack_all(model)
    gc.collect()
    assert held and all(weight() is None for weight in others)
    assert torch.equal(model.model.embed_tokens.weight, tied)
    assert torch.equal(model.lm_head.weight, tied)


def test_a_layer_in_two_places_is_replaced_in_both():
    shared = layer(8, 8)
    model = nn.ModuleDict({"one": shared, "other": nn.Sequential(shared)})
    pack(model, [shared], Product(*joined([shared])))
    assert model["one"] is model["other"][0] and isinstance(model["one"], PackedLinear)


def test_kinds_of_linear_layers_that_add_something_are_left_alone():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(Scaled(4, 4), nn.Linear(4, 4), Conv1D(4, 4))
    assert linears(model) == [model[1], model[2]]


def test_a_copy_of_a_packed_model_shares_its_products():
    model = pack_all(tiny_model("llama"))
    twin = copy.deepcopy(model)
    ids = torch.tensor([[3, 4, 5]])
    assert torch.equal(twin(ids).logits, model(ids).logits)
    assert twin.lm_head is not model.lm_head and twin.lm_head.product is model.lm_head.product
