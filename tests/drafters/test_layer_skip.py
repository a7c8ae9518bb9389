"""Layer skip: texts that do not change, early exits, the search and what it predicts, sets in files."""

from __future__ import annotations

import itertools
import json
from importlib import resources

import pytest
import torch

from tests.drafters.helpers import make
from tests.tiny import tiny_model
from truedraft import build
from truedraft.core import Shape
from truedraft.decode import Decoder
from truedraft.drafters import layer_search
from truedraft.drafters.layer_search import Costs, Greedy, find_layers, measure_costs, rounds_of
from truedraft.drafters.layer_skip import LayerSet, format_layers, layer_skip, parse_layers, shipped_layers
from truedraft.drafters.none import NoDrafter
from truedraft.drafters.warm import owner_of
from truedraft.errors import CorruptModelError, ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify import target_only
from truedraft.verify.auto import rule_named

V = 48
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7], [9], list(range(10, 40))]
SETS = [(0,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
SHAPES = [Shape.chain(3), Shape.tree(2, 2, 1), Shape(4, 3, 9)]


def model_of(layers, shape, *, rule=target_only.RULE, batch=1):
    target = CachedModel(tiny_model(seed=1, dtype=torch.float64))
    drafter = NoDrafter() if layers is None else layer_skip(target, layers, vocabulary=V)
    decoder = Decoder(TorchTarget(target), drafter, rule, Fixed(shape))
    return Model(decoder, Facts(vocabulary=V, context_length=128), batch=batch)


def texts(results):
    return [result.token_ids for result in results]


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layers", SETS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_text_is_plain_decodings(layers, shape, batch):
    settings = {"each": [{"max_new_tokens": count} for count in (30, 7, 22, 1)], "repetition_penalty": 1.2}
    plain = texts(model_of(None, Shape(0)).generate(PROMPTS, **settings))
    assert texts(model_of(layers, shape, batch=batch).generate(PROMPTS, **settings)) == plain


@pytest.mark.parametrize("layers", [(0, 1), (0, 2)], ids=str)
@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(2, 2)], ids=str)
def test_a_sampled_text_does_not_depend_on_its_neighbours(layers, shape):
    options = {"temperature": 0.9, "max_new_tokens": 20, "seed": 5}
    rule = rule_named("auto")
    together = model_of(layers, shape, rule=rule, batch=4).generate(PROMPTS, **options)
    alone = [model_of(layers, shape, rule=rule).generate(prompt, **options) for prompt in PROMPTS]
    assert texts(together) == texts(alone)


@pytest.mark.parametrize("rule", ["token", "block", "greedy-draft", "traversal", "coupled"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_drafts_are_drawn_as_the_rule_asks(rule, temperature):
    made = build.load(tiny_model(), drafter="layer-skip", layers="0,1", rule=rule)
    plain = build.load(tiny_model(), drafter="none", rule=rule)
    options = {"temperature": temperature, "max_new_tokens": 20, "seed": 5}
    found, expected = (model.generate(PROMPTS[0], **options) for model in (made, plain))
    assert found.statistics.drafted > 0
    if temperature == 0 or rule == "coupled":
        assert found.token_ids == expected.token_ids


def test_all_layers_are_always_right():
    result = model_of((0, 1, 2), Shape.chain(3)).generate(PROMPTS[0], max_new_tokens=40)
    assert result.statistics.acceptance_rate == 1


@pytest.mark.parametrize("layers", [(0, 1), (0, 2)], ids=str)
def test_nothing_of_a_draft_stays_in_the_targets_rows(layers):
    target = CachedModel(tiny_model(seed=1, dtype=torch.float64))
    decoder = Decoder(
        TorchTarget(target), layer_skip(target, layers, vocabulary=V), target_only.RULE, Fixed(Shape.tree(2, 2))
    )
    sessions = [make(prompt, vocabulary=V, max_new_tokens=25) for prompt in PROMPTS[:2]]
    for step in decoder.run(sessions, batch=2):
        for session, _ in step:
            if session.finish is None:
                known = target.cached(session)
                assert known == len(session.tokens) - 1
                target.rewind(session, known)
    plain = texts(model_of(None, Shape(0)).generate(PROMPTS[:2], max_new_tokens=25))
    assert [tuple(session.output) for session in sessions] == plain


# ── the search ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rounds_of_a_text():
    right, wrong = True, False
    assert rounds_of([right] * 6, 2) == 2
    assert rounds_of([wrong] * 5, 4) == 5
    assert rounds_of([right, wrong, right, right], 4) == 2
    assert rounds_of([right, right, right, wrong, wrong], 1) == 3
    assert rounds_of([], 3) == 0


def greedy_texts():
    plain = model_of(None, Shape(0)).generate(PROMPTS, max_new_tokens=30)
    return [Greedy((*prompt, *result.token_ids), len(prompt)) for prompt, result in zip(PROMPTS, plain, strict=True)]


EVEN = Costs((1.0, 1.1, 1.2, 1.3, 1.4), (0.4, 0.7, 1.0))


def test_the_search_predicts_what_decoding_does():
    model = tiny_model(seed=1, dtype=torch.float64)
    found = find_layers(model, greedy_texts(), EVEN)
    assert [len(each.layers) for each in found if each.layers] and found[0].speedup == max(f.speedup for f in found)
    for each in found:
        results = model_of(each.layers, Shape.chain(each.draft_tokens)).generate(PROMPTS, max_new_tokens=30)
        rounds = sum(result.statistics.rounds for result in results)
        assert 120 / rounds == pytest.approx(each.tokens_per_pass)
        expected = each.tokens_per_pass / (EVEN.passes[each.draft_tokens] + each.draft_tokens * each.cost)
        assert each.speedup == pytest.approx(expected)


def test_a_layer_that_does_nothing_is_left_out_first():
    model = tiny_model(seed=1, dtype=torch.float64)
    layer = model.model.layers[1]
    for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
        projection.weight.zero_()
    texts_ = []
    target = CachedModel(model)
    for prompt in PROMPTS:
        decoder = Decoder(TorchTarget(target), NoDrafter(), target_only.RULE, Fixed(Shape(0)))
        result = Model(decoder, Facts(vocabulary=V), batch=1).generate(prompt, max_new_tokens=20)
        texts_.append(Greedy((*prompt, *result.token_ids), len(prompt)))
    told = []
    found = find_layers(model, texts_, EVEN, told=told.append)
    assert told[0].layers == (0, 2) and told[0].agreement == 1
    assert found[0].layers == (0, 2)


def test_costs_grow_from_one_layer_to_all():
    ticks = itertools.count()
    costs = measure_costs(CachedModel(tiny_model()), context=20, repeats=1, clock=lambda: float(next(ticks)))
    assert len(costs.passes) == layer_search._LONGEST + 1 and len(costs.draft) == 3
    assert costs.passes[0] == costs.draft[-1] == 1


# ── sets in words and files ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("text", "layers"), [("0", (0,)), ("0-3,7,9-10", (0, 1, 2, 3, 7, 9, 10)), ("2, 4", (2, 4))])
def test_layers_are_read_and_written(text, layers):
    assert parse_layers(text) == layers
    assert parse_layers(format_layers(layers)) == layers


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "1.5", "0-3,9-7"])
def test_what_names_no_layers_is_refused(text):
    with pytest.raises(ParameterError, match="layers"):
        parse_layers(text)


def test_a_set_is_found_by_its_owner(tmp_path):
    path = tmp_path / "layers.json"
    best = LayerSet((0, 1, 5), 3, 0.5, 0.25, 1.6, 0.9)
    path.write_text(json.dumps({"mine": best.to_json()}))
    assert shipped_layers("mine", path) == best
    assert shipped_layers("another's", path) is None
    assert shipped_layers("mine", tmp_path / "none.json") is None
    for damaged in ("{", "[]", '{"mine": {"layers": "0"}}', '{"mine": {"layers": "a", "draft_tokens": 3}}'):
        path.write_text(damaged)
        with pytest.raises(CorruptModelError, match=r"layers\.json"):
            shipped_layers("mine", path)


def test_sets_that_ship_are_those_of_their_models():
    owners = json.loads(resources.files("truedraft.drafters").joinpath("tables", "layers.json").read_text("utf-8"))
    assert owners
    for owner in owners:
        found = shipped_layers(owner)
        assert found is not None and found.speedup is not None
        assert max(found.layers) < int(owner.split("-")[1].split("x")[0])


@pytest.mark.parametrize(("speedup", "said"), [(0.9, True), (1.2, False), (None, False)])
def test_a_set_that_cannot_pay_is_said_when_loading(tmp_path, speedup, said):
    model = tiny_model()
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({owner_of(model.config, None): LayerSet((0, 2), 2, speedup=speedup).to_json()}))
    loaded = build.load(model, drafter="layer-skip", layers=path)
    assert any("cannot pay" in note for note in loaded.notes) == said
    drafts = loaded.decoder.drafter.propose([make([3, 4], vocabulary=V)], [Shape.chain(2)])
    assert len(drafts[0]) == 2
