"""The default model writes the same greedy ids as transformers, whatever drafts; `benchmarks/identity.py` in small."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from truedraft.bench.tasks import read_prompts
from truedraft.build import load, redraft
from truedraft.core import Shape
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.models import DEFAULT, resolve
from truedraft.planning.fixed import Fixed

pytestmark = pytest.mark.real

TOKENS = 48
ARMS = {
    "none": (NoDrafter, Shape(0)),
    "ngram chain": (NgramDrafter, Shape.chain(8)),
    "ngram tree": (NgramDrafter, Shape(6, width=3, nodes=12)),
}


@pytest.fixture(scope="module")
def model():
    return load(DEFAULT, drafter="none")


@pytest.fixture(scope="module")
def prompts(model):
    rows = [*read_prompts("copy", limit=2), *read_prompts("free", limit=1)]
    render = model.facts.tokenizer.apply_chat_template
    return [
        list(render([{"role": "user", "content": row.text}], add_generation_prompt=True, return_dict=False))
        for row in rows
    ]


@pytest.fixture(scope="module")
def expected(prompts):
    reference = AutoModelForCausalLM.from_pretrained(resolve(DEFAULT, offline=True), dtype=torch.float32).eval()
    options = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
    texts = []
    for ids in prompts:
        inputs = torch.tensor([ids])
        output = reference.generate(inputs, attention_mask=torch.ones_like(inputs), **options)
        texts.append(tuple(output[0, len(ids) :].tolist()))
    return texts


def decode(model, arm, prompts, *, batch=1, **options):
    make, shape = ARMS[arm]
    fast = replace(model, batch=batch, decoder=replace(model.decoder, drafter=make(), policy=Fixed(shape)))
    return fast.generate(prompts, max_new_tokens=TOKENS, min_new_tokens=TOKENS, **options)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("arm", ARMS)
def test_greedy_ids_are_those_of_transformers(model, prompts, expected, arm, batch):
    results = decode(model, arm, prompts, batch=batch)
    assert [result.token_ids for result in results] == expected
    assert (sum(result.statistics.accepted for result in results) > 0) == (arm != "none")


@pytest.mark.parametrize("drafter", ["merge", "cascade", "layer-skip"])
def test_so_are_those_that_drafters_by_name_write(model, prompts, expected, drafter):
    named = redraft(model, drafter=drafter, batch=3)
    results = named.generate(prompts, max_new_tokens=TOKENS, min_new_tokens=TOKENS)
    assert [result.token_ids for result in results] == expected
    assert sum(result.statistics.accepted for result in results) > 0


@pytest.mark.parametrize("arm", ARMS)
def test_every_emitted_token_has_the_very_same_probability_where_passes_are_exact(model, prompts, arm):
    if not model.exact:
        pytest.skip(f"passes are not exact on this machine: {'; '.join(model.notes)}")
    plain = decode(model, "none", prompts, logprobs=3)
    fast = decode(model, arm, prompts, batch=3, logprobs=3)
    assert [result.logprobs for result in fast] == [result.logprobs for result in plain]
