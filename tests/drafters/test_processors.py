"""Logits processors that allow little: whatever a drafter bets, they are not asked about what they forbade."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from transformers import PrefixConstrainedLogitsProcessor

from tests.drafters.test_translation import OURS, THEIRS, translation
from tests.drafters.test_translation import PROMPTS as WORDS
from tests.nets.heads import KINDS, some_ids, tiny_head
from tests.tiny import tiny_model
from truedraft.core import Shape
from truedraft.decode import Decoder
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.medusa import MedusaDrafter
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

V, DRAFTED = 48, 30
TARGET = tiny_model(seed=1, dtype=torch.float64, eos_token_id=None)
SMALL = tiny_model("qwen2", seed=2, dtype=torch.float64, num_hidden_layers=2)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 3, 1, 4, 1, 5, 9, 3, 1, 4]
SHAPES = [Shape.chain(3), Shape.tree(3, 2, 1), Shape(4, 3, 9)]
OUTSIDE = sorted(set(range(V)) - set(some_ids(V, DRAFTED).ids.tolist()))
"""Tokens that no head with a reduced vocabulary drafts."""


def head_of(kind):
    net = tiny_head(kind, TARGET, draft=DRAFTED, dtype=torch.float64)
    return MedusaDrafter(net, layers=3) if kind == "medusa" else EagleDrafter(net, layers=3)


DRAFTERS = {
    "model": lambda: ModelDrafter(CachedModel(SMALL), vocabulary=V),
    "ngram": lambda: NgramDrafter(floor=0.0),
    **{kind: lambda kind=kind: head_of(kind) for kind in KINDS},
}


def written(drafter, shape, prompts, *, target=TARGET, vocabulary=V, **options):
    """Texts with all that a trace asks for, and how much was drafted for them."""
    decoder = Decoder(TorchTarget(CachedModel(target)), drafter, rule_named("auto"), Fixed(shape), trace=True)
    results = Model(decoder, Facts(vocabulary=vocabulary), batch=len(prompts)).generate(
        prompts, max_new_tokens=16, seed=3, **options
    )
    return [result.token_ids for result in results], sum(result.statistics.drafted for result in results)


def assert_unchanged(drafter, shape, prompts=(PROMPT, [8, 9, 7]), **options):
    """No error, and a greedy text that is plain decoding's."""
    texts, drafted = written(drafter, shape, list(prompts), **options)
    assert drafted > 0
    if not options.get("temperature"):
        assert texts == written(NoDrafter(), Shape(0), list(prompts), **options)[0]


def steps_by_one(prompt: int) -> PrefixConstrainedLogitsProcessor:
    """Every token is one more than the one before, in thirds; there is no answer behind a text that breaks this."""

    def allowed(_, text):
        output = text[prompt - 1 :].tolist()
        if any((before + 1) % 3 != after % 3 for before, after in pairwise(output)):
            return []  # transformers' processor raises `ValueError`
        return [token for token in range(V) if token % 3 == (output[-1] + 1) % 3]

    return PrefixConstrainedLogitsProcessor(allowed, 1)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_processor_is_not_asked_behind_what_it_forbade(name, shape, temperature):
    processors = [steps_by_one(len(PROMPT))]
    assert_unchanged(DRAFTERS[name](), shape, (PROMPT,), processors=processors, temperature=temperature)


class Outside:
    """Every third token comes from outside the draft vocabulary."""

    def __call__(self, ids, scores):
        if ids.shape[1] % 3 == 0:
            kept = torch.full_like(scores, -torch.inf)
            kept[:, OUTSIDE] = scores[:, OUTSIDE]
            return kept
        return scores


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_where_a_head_knows_no_token_that_is_allowed_it_falls_silent(kind, shape, temperature):
    assert_unchanged(head_of(kind), shape, processors=[Outside()], temperature=temperature)


@pytest.mark.parametrize("settings", [{}, {"repetition_penalty": 1.3}, {"temperature": 0.8}], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
@pytest.mark.parametrize("nothing", [torch.nan, torch.inf, -torch.inf])
def test_a_head_that_says_no_numbers_ends_nobodys_text(kind, shape, settings, nothing):
    drafter, rounds = head_of(kind), iter(range(1000))
    real = drafter._logits
    drafter._logits = lambda outputs: real(outputs).fill_(nothing) if next(rounds) % 2 else real(outputs)
    assert_unchanged(drafter, shape, **settings)


class Forced:
    """Every other token is a certain one, whatever the model said, as transformers' forced tokens are."""

    def __init__(self, token):
        self.token = token

    def __call__(self, ids, scores):
        if ids.shape[1] % 2:
            return scores
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.token] = 0
        return forced


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_token_that_only_the_target_has_may_be_forced(shape, temperature):
    size = len(OURS)
    target = tiny_model(seed=1, dtype=torch.float64, vocab_size=size, eos_token_id=None, bos_token_id=None)
    small = tiny_model("qwen2", seed=2, dtype=torch.float64, vocab_size=len(THEIRS), eos_token_id=None)
    drafter = ModelDrafter(CachedModel(small), vocabulary=size, translation=translation())
    forced = Forced(OURS.get_vocab()["abc"])
    options = {"target": target, "vocabulary": size, "processors": [forced], "temperature": temperature}
    assert_unchanged(drafter, shape, WORDS[:2], **options)


def test_what_stands_behind_a_forbidden_token_is_traced_as_impossible():
    seen = []

    class Forbidding:
        """Forbids 5, and keeps the texts that it is asked about."""

        def __call__(self, ids, scores):
            seen.append(ids[0].tolist())
            scores[:, 5] = -torch.inf
            return scores

        def __deepcopy__(self, memo):
            return self

    prompt = [5, 6, 7, 8, 5, 6, 7, 8]
    decoder = Decoder(
        TorchTarget(CachedModel(TARGET)), NgramDrafter(floor=0.0), rule_named("auto"), Fixed(Shape.chain(3)), trace=True
    )
    model = Model(decoder, Facts(vocabulary=V))
    record = next(model.stream(prompt, max_new_tokens=8, temperature=1.0, seed=0, processors=[Forbidding()])).round
    assert record.draft.tree.tokens == (8, 5, 6, 7)
    assert record.p == (None, 0.0, 0.0, 0.0)
    assert seen == [prompt]
