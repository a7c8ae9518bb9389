"""Sampled text from a real network against its exact law: the joint law of the first three tokens, by chi-square.

Enumeration proves the rules; this proves that the whole engine (cache, masks, sampling parameters, drafters, batches)
hands them the right numbers. The network has eight tokens, so all 512 continuations have a probability that can be
computed by plain forward passes. 100,000 draws for every drafter, fewer for none; a right engine fails with probability
1e-6.
"""

from collections import Counter

import pytest
import torch
from scipy import stats

from tests import tiny
from truedraft.core import Law, Shape
from truedraft.decode import Decoder
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.sampling import ParameterSampler, SamplingParameters
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

VOCABULARY, LENGTH, DRAWS, FALSE_ALARM = 8, 3, 100_000, 1e-6
PROMPT = [3, 1, 4, 3, 1, 4, 3]
PARAMETERS = {
    "temperature": 1.0,
    "top_p": 0.95,
    "min_p": 0.02,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.4,
    "frequency_penalty": -0.3,
}


def network(seed):
    return tiny.tiny_model(seed=seed, vocab_size=VOCABULARY)


def exact_law(model):
    """Probability of every continuation, from plain forward passes."""
    sampler = ParameterSampler.make(SamplingParameters(**PARAMETERS), prompt_length=len(PROMPT), vocabulary=VOCABULARY)
    law = {(): 1.0}
    for _ in range(LENGTH):
        longer = {}
        for text, probability in law.items():
            history = [*PROMPT, *text]
            with torch.inference_mode():
                logits = model(torch.tensor([history])).logits[0, -1]
            for token, share in enumerate(sampler.branch(history).distribution(logits.double()).tolist()):
                longer[(*text, token)] = probability * share
        law = longer
    return law


def p_value(counts, law):
    """Of the chi-square test; texts that are expected fewer than five times are one bin."""
    draws = sum(counts.values())
    common = [text for text, probability in law.items() if probability * draws >= 5]
    rest = 1 - sum(law[text] for text in common)
    observed = [counts[text] for text in common] + [draws - sum(counts[text] for text in common)]
    expected = [law[text] * draws for text in common] + [rest * draws]
    if expected[-1] < 5:
        assert observed[-1] < 40
        observed, expected = observed[:-1], expected[:-1]
        expected = [value * sum(observed) / sum(expected) for value in expected]
    return stats.chisquare(observed, expected).pvalue


DRAFTS = {
    "none": (lambda: NoDrafter(), Shape(0)),
    "ngram tree": (lambda: NgramDrafter(floor=0), Shape(2, width=2, nodes=4)),
    "model chain": (lambda: drafter(Law.SAMPLED), Shape.chain(2)),
    "model tree": (lambda: drafter(Law.SAMPLED_WITHOUT_REPLACEMENT), Shape.tree(2, 1)),
}


def drafter(law):
    return ModelDrafter(CachedModel(network(1)), vocabulary=VOCABULARY, law=law)


@pytest.fixture
def remembered(monkeypatch):
    """What a sampler said of the same logits behind the same history is not computed again: it is the same numbers."""
    known, real = {}, ParameterSampler.distribution

    def distribution(sampler, logits, history, processors):
        said = sampler.prompt_length, tuple(history), logits.numpy().tobytes()
        if said not in known:
            known[said] = real(sampler, logits, history, processors)
        return known[said].clone()  # whoever writes to it writes to their own

    monkeypatch.setattr(ParameterSampler, "distribution", distribution)
    return known


def sample(target, make, shape, draws):
    decoder = Decoder(TorchTarget(CachedModel(target)), make(), rule_named("auto"), Fixed(shape))
    model = Model(decoder, Facts(VOCABULARY), batch=100)
    counts, accepted = Counter(), 0
    for start in range(0, draws, 1000):
        each = [{"seed": start + at} for at in range(1000)]
        for result in model.generate([PROMPT] * 1000, each=each, max_new_tokens=LENGTH, **PARAMETERS):
            counts[result.token_ids] += 1
            accepted += result.statistics.accepted
    return counts, accepted


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTS)
def test_three_tokens_follow_the_targets_joint_law(name, remembered):
    target = network(0)
    law = exact_law(target)
    assert sum(law.values()) == pytest.approx(1) and 0.0 in law.values()
    draws = DRAWS if name != "none" else 20_000  # plain decoding is what the others are held against
    counts, accepted = sample(target, *DRAFTS[name], draws)
    assert (accepted > draws / 20) == (name != "none")
    assert p_value(counts, law) > FALSE_ALARM
    assert all(law[text] > 0 for text in counts)
    assert len(remembered) < draws


def test_the_test_sees_a_small_bias():
    """Power: a law that is off by a total variation of 0.03 is refused at the same false-alarm rate."""
    law = exact_law(network(0))
    texts = [text for text, probability in law.items() if probability > 0]
    exact = torch.tensor([law[text] for text in texts], dtype=torch.float64)
    shifted = exact * torch.where(torch.arange(len(texts)) % 2 == 0, 1.06, 0.94)
    shifted /= shifted.sum()
    drawn = shifted.multinomial(DRAWS, replacement=True, generator=torch.Generator().manual_seed(0))
    counts = Counter(texts[index] for index in drawn.tolist())
    assert float((shifted - exact).abs().sum()) / 2 < 0.035
    assert p_value(counts, law) < FALSE_ALARM


def test_a_processor_may_write_to_what_it_is_given():
    """As many of transformers' own and of their users' do: the target's logits are nobody's to change."""

    def forbid(ids, scores):
        scores[:, scores[0].argmax()] = -torch.inf
        return scores

    target = TorchTarget(CachedModel(tiny.tiny_model()))
    facts = Facts(target.model.vocab_size)
    plain, drafted = (
        Model(Decoder(target, drafter, rule_named("auto"), Fixed(shape)), facts).generate(
            PROMPT, max_new_tokens=20, processors=[forbid], logprobs=2
        )
        for drafter, shape in ((NoDrafter(), Shape(0)), (NgramDrafter(floor=0), Shape(3, width=2, nodes=6)))
    )
    assert plain.token_ids == drafted.token_ids
    assert all(entry.logprob > -torch.inf for entry in plain.logprobs), "log-probabilities are the model's own"
    assert all(entry.top[1][0] == entry.token for entry in plain.logprobs), "the likeliest is forbidden at every place"
