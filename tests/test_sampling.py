"""Sampling parameters against transformers' own processors, and the laws of dice and branches."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from truedraft.core import Tree
from truedraft.dice import RandomDice
from truedraft.errors import ParameterError, UnsupportedModelError
from truedraft.rows import one_hot
from truedraft.sampling import ParameterSampler, SamplingParameters

VOCABULARY = 12


def sampler(prompt_length=2, vocabulary=VOCABULARY, end_tokens=(), **parameters):
    return ParameterSampler.make(
        SamplingParameters(**parameters), prompt_length=prompt_length, vocabulary=vocabulary, end_tokens=end_tokens
    )


def distribution(logits, history, **options):
    return sampler(**options).branch(history).distribution(logits)


def logits(seed=0, size=VOCABULARY):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    top_k=st.sampled_from([0, 1, 3, 50]),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repetition=st.sampled_from([0.5, 1.0, 1.7]),
    bias=st.sampled_from([{}, {5: 3.0}, {1: -4.0, 3: 1.5, 7: 2.0}]),
)
def test_agrees_with_transformers(seed, temperature, top_k, top_p, min_p, repetition, bias):
    """Their own processors, in the order in which `generate` calls them."""
    history = [3, 5, 5, 1]
    theirs = LogitsProcessorList()
    if bias:
        theirs.append(SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()}))
    theirs += [RepetitionPenaltyLogitsProcessor(repetition), TemperatureLogitsWarper(temperature)]
    if top_k:
        theirs.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        theirs.append(TopPLogitsWarper(top_p))
    if min_p:
        theirs.append(MinPLogitsWarper(min_p))
    expected = theirs(torch.tensor([history]), logits(seed)[None].clone())[0].softmax(0)
    ours = distribution(
        logits(seed),
        history,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition,
        logit_bias=bias,
    )
    assert torch.allclose(ours, expected, atol=1e-12)


def test_a_wide_vocabulary_with_flat_logits_takes_the_full_sort():
    flat = torch.zeros(5000, dtype=torch.float64)
    p = distribution(flat, [0], vocabulary=5000, temperature=1.0, top_p=0.9)
    assert int((p > 0).sum()) in (4500, 4501)  # the crossing token is a matter of rounding


def test_temperature_zero_is_one_hot_and_ignores_truncation():
    p = distribution(logits(), [1], temperature=0, top_k=3, top_p=0.2)
    assert torch.equal(p, one_hot(int(logits().argmax()), p))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"logit_bias": {5: 2.0}},
        {"repetition_penalty": 4.0, "presence_penalty": 2.0, "frequency_penalty": 1.0},
        {"bad_words": ((3, 4), (7,)), "min_new_tokens": 5, "end_tokens": (8, 9)},
        {"vocabulary": 6},
        {"temperature": 1e-40},
    ],
    ids=str,
)
def test_the_only_token_that_can_follow_a_node_is_that_of_its_row(options):
    tree, seen = Tree((5, 3, 4, 3, 9), (-1, 0, 1, 0, 2)), set()
    for seed in range(40):
        rows = torch.stack([logits(seed * 10 + node) for node in range(len(tree))])
        chosen = sampler(**options).distributions([2, 7, 5], tree, rows)
        greedy = sampler(**options).distributions([2, 7, 5], tree, rows)
        for node in (4, 0, 2, 1, 3):
            assert chosen.only(node) == int(greedy[node].argmax()) and greedy[node].max() == 1
            seen.add(chosen.only(node))
    assert len(seen) > 3


def test_a_row_has_no_only_token_where_others_may_follow_or_a_processor_keeps_count():
    tree, rows = Tree((5, 3), (-1, 0)), torch.stack([logits(0), logits(1)])
    for options in ({"temperature": 0.1}, {"processors": (lambda ids, scores: scores,)}):
        p = sampler(**options).distributions([2, 5], tree, rows)
        assert p.only(0) is None and p.only(1) is None


def test_rows_of_one_token_are_windows_on_one_and_nobody_may_write_to_them():
    like = torch.zeros(VOCABULARY + 1)  # a size of its own: what is done here concerns no other test
    rows = [one_hot(token, like) for token in range(len(like))]
    assert torch.equal(torch.stack(rows), torch.eye(len(like)))
    assert len({row.untyped_storage().data_ptr() for row in rows}) == 1
    with torch.inference_mode():
        rows[3][4] = 0.5
        with pytest.raises(AssertionError, match="wrote to a row"):
            one_hot(3, like)
    assert torch.equal(one_hot(0, like), torch.eye(len(like))[0]), "and the next one is whole again"


def test_the_order_is_that_of_transformers_generate():
    """Which calls their processors in the order of this list; a model's configuration is all it asks of the model."""
    config = GenerationConfig(do_sample=True, temperature=0.7, top_k=5, top_p=0.9, min_p=0.01, repetition_penalty=1.7)
    config.sequence_bias, config.bad_words_ids = [[[5], 3.0], [[4], -1.0]], [[6]]
    config._eos_token_tensor = torch.tensor([8])
    config.min_new_tokens = 3
    model = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False))
    model._merge_criteria_processor_list = lambda default, custom: default
    theirs = GenerationMixin._get_logits_processor(model, config, input_ids_seq_length=4)
    history = [3, 5, 5, 4]
    options = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.7}
    options |= {"logit_bias": {5: 3.0, 4: -1.0}, "bad_words": ((6,),), "min_new_tokens": 3, "end_tokens": (8,)}
    for seed in range(20):
        expected = theirs(torch.tensor([history]), logits(seed)[None].clone())[0].softmax(0)
        ours = distribution(logits(seed), history, prompt_length=4, **options)
        assert torch.allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-30, 1e-39, 1e-50, 5e-324])
def test_a_tiny_temperature_neither_overflows_nor_becomes_nan(temperature, dtype):
    p = distribution(logits().to(dtype) * 1e6, [1], temperature=temperature)
    assert torch.equal(p, one_hot(int(logits().argmax()), p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("top_p", [1e-30, 1e-50, 5e-324])
@pytest.mark.parametrize("row", [logits(), torch.zeros(VOCABULARY), torch.zeros(5000)], ids=["apart", "equal", "wide"])
def test_a_tiny_top_p_keeps_one_of_the_likeliest(row, top_p, dtype):
    p = distribution(row.to(dtype), [1], vocabulary=len(row), temperature=1, top_p=top_p)
    assert sorted(p.unique().tolist()) == [0, 1] and p.sum() == 1 and row[p.argmax()] == row.max()


def test_presence_and_frequency_penalties_count_the_output_only():
    history = [7, 7, 4, 4, 9]  # prompt 7 7, output 4 4 9
    p = distribution(torch.zeros(VOCABULARY).double(), history, temperature=1, presence_penalty=1, frequency_penalty=2)
    relative = (p / p[0]).log()
    assert relative[4] == pytest.approx(-5) and relative[9] == pytest.approx(-3) and relative[7] == pytest.approx(0)


def test_every_node_counts_its_own_drafted_tokens():
    tree = Tree((0, 4, 4, 4, 5), (-1, 0, 1, 2, 1))  # 0 - 4 - 4 - 4, and 5 beside the second 4
    mine = sampler(prompt_length=1, temperature=1, frequency_penalty=1)
    p = mine.distributions([0], tree, torch.zeros(5, VOCABULARY))
    penalties = [float((p[node][4] / p[node][0]).log()) for node in range(5)]
    assert penalties == pytest.approx([0, -1, -2, -3, -1], abs=1e-6)
    assert float((p[4][5] / p[4][0]).log()) == pytest.approx(-1, abs=1e-6)


def test_logit_bias_and_bans():
    assert distribution(logits(), [1], temperature=1, logit_bias={3: -math.inf})[3] == 0
    assert distribution(logits(), [1], logit_bias={3: 100}).argmax() == 3
    assert distribution(logits(), [1, 2], temperature=1, bad_words=((2, 5), (6,)))[[5, 6]].tolist() == [0, 0]
    assert distribution(logits(), [2, 1], temperature=1, bad_words=((2, 5),))[5] > 0
    assert distribution(logits(), [1], temperature=1, bad_words=((1, 2, 5),))[5] > 0


def test_end_tokens_wait_for_the_minimum_length():
    options = {"temperature": 1, "min_new_tokens": 2, "end_tokens": (8,)}
    assert distribution(logits(), [0, 0, 1], **options)[8] == 0
    assert distribution(logits(), [0, 0, 1, 1], **options)[8] > 0


def test_padding_ids_are_never_emitted():
    p = distribution(torch.zeros(VOCABULARY), [1], vocabulary=9, temperature=1)
    assert p[9:].sum() == 0 and p[:9].sum() == pytest.approx(1)


def test_inputs_are_left_alone():
    row = logits()
    before = row.clone()
    distribution(row, [3, 4], vocabulary=9, temperature=1, repetition_penalty=2, logit_bias={1: 5}, bad_words=((2,),))
    assert torch.equal(row, before)


class Recorder:
    """A processor that remembers the last token of every call, and bans a token it saw an odd number of times."""

    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        self.seen.append(int(input_ids[0, -1]))
        return scores


def test_stateful_processors_see_each_lineage_in_order_and_forget_rejected_nodes():
    mine = sampler(prompt_length=1, temperature=1, processors=(Recorder(),))
    tree = Tree((0, 4, 5, 6), (-1, 0, 0, 2))
    p = mine.distributions([0], tree, torch.zeros(4, VOCABULARY))
    _ = p[3], p[1]
    assert p.branch(3).settled[0].seen == [0, 5, 6]
    assert p.branch(1).settled[0].seen == [0, 4]
    assert mine.settle(p, 2).processors[0].seen == [0, 5]
    assert mine.processors[0].seen == []


def test_a_processor_that_cannot_be_copied_is_refused():
    class Stubborn(Recorder):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    with pytest.raises(ParameterError, match="Stubborn"):
        sampler(processors=(Stubborn(),))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e39),
        ("repetition_penalty", 1e-39),
        ("presence_penalty", math.inf),
        ("presence_penalty", -1e39),
        ("frequency_penalty", -1e39),
        ("min_new_tokens", -1),
        ("logit_bias", {1: math.inf}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: 1e39}),
        ("logit_bias", {1: -1e39}),
        ("logit_bias", {99: 1.0}),
        ("bad_words", ((),)),
        ("bad_words", ((99,),)),
    ],
)
def test_absurd_parameters_name_themselves(name, value):
    with pytest.raises(ParameterError, match=name):
        sampler(**{name: value})


def test_hopeless_logits_are_errors_not_nan():
    with pytest.raises(ParameterError, match="every token"):
        distribution(logits(), [1], logit_bias={token: -math.inf for token in range(VOCABULARY)})
    with pytest.raises(UnsupportedModelError, match="nan"):
        distribution(logits() * math.nan, [1])
    for wrong in (math.nan, math.inf):
        with pytest.raises(ParameterError, match=f"{wrong} of a logit"):
            distribution(logits(), [1], processors=(lambda ids, scores, wrong=wrong: scores + wrong,))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), zeros=st.sets(st.integers(0, 7), max_size=7))
def test_categorical_never_draws_a_zero(seed, zeros):
    weights = torch.rand(8, generator=torch.Generator().manual_seed(seed))
    weights[list(zeros)] = 0
    dice = RandomDice(seed)
    assert all(dice.categorical(weights) not in zeros for _ in range(50))


def test_categorical_follows_its_weights():
    dice, weights, draws = RandomDice(3), torch.tensor([0.1, 0.0, 0.6, 0.3]), 40_000
    counts = torch.tensor([dice.categorical(weights) for _ in range(draws)]).bincount(minlength=4)
    expected = weights * draws
    chi_square = float(((counts - expected) ** 2 / expected.clamp(min=1e-9))[expected > 0].sum())
    assert counts[1] == 0 and chi_square < 35  # 2 degrees of freedom: beyond 35 with probability 2.5e-8


def test_seeds_make_streams():
    one, same, other = RandomDice(7), RandomDice(7), RandomDice(8)
    draws = [[dice.coin(0.5) for _ in range(64)] for dice in (one, same, other)]
    assert draws[0] == draws[1] != draws[2]
    unseeded = [tuple(RandomDice().coin(0.5) for _ in range(64)) for _ in range(4)]
    assert all(a != b for a, b in pairwise(unseeded))
    assert RandomDice(0).coin(1.0) and not RandomDice(0).coin(0.0)


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({}, True),
        ({"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1}, True),
        ({"bad_words": ((1, 2),), "min_new_tokens": 4}, True),
        ({"repetition_penalty": 1.1}, False),
        ({"presence_penalty": -0.5}, False),
        ({"frequency_penalty": 0.5}, False),
        ({"logit_bias": {3: 1.0}}, False),
        ({"processors": (lambda ids, logits: logits,)}, False),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_who_keeps_the_order_of_logits(settings, keeps):
    sampler = ParameterSampler.make(SamplingParameters(**settings), prompt_length=0, vocabulary=9)
    assert sampler.keeps_order is keeps
