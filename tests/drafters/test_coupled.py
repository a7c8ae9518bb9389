"""A model that drafts with the target's own noise: seeded text that no drafter changes, and bets that meet it."""

import pytest

from tests.tiny import tiny_model
from truedraft.core import Law, Shape
from truedraft.decode import Decoder
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

PROMPTS = [[3, 1, 4, 1, 5], [2, 7, 1], [9, 9, 9, 9], [5]]
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "max_new_tokens": 24}
VOCABULARY = 48


def texts(drafter, shape, *, batch=1, **options):
    decoder = Decoder(TorchTarget(CachedModel(tiny_model())), drafter, rule_named("coupled"), Fixed(shape))
    each = [{"seed": seed} for seed in range(len(PROMPTS))]
    return Model(decoder, Facts(VOCABULARY), batch=batch).generate(PROMPTS, each=each, **{**SAMPLED, **options})


def model(seed, law=Law.COUPLED):
    return ModelDrafter(CachedModel(tiny_model(seed=seed)), vocabulary=VOCABULARY, law=law)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("shape", [Shape.chain(1), Shape.chain(4), Shape.tree(2, 2), Shape.tree(3, 1, 1)], ids=str)
def test_seeded_text_does_not_depend_on_the_drafter(shape, batch):
    plain = [result.token_ids for result in texts(NoDrafter(), Shape(0))]
    for drafter in (model(0), model(1), model(1, law=None), NgramDrafter(floor=0)):
        assert [result.token_ids for result in texts(drafter, shape, batch=batch)] == plain


def test_the_target_itself_is_always_right_with_shared_noise_and_seldom_without():
    shared = texts(model(0), Shape.chain(3))
    assert all(result.statistics.acceptance_rate == 1 for result in shared)
    apart = texts(model(0, law=Law.SAMPLED), Shape.chain(3))
    assert sum(result.statistics.accepted for result in apart) < sum(result.statistics.accepted for result in shared)


def test_greedy_sessions_choose():
    assert all(result.statistics.acceptance_rate == 1 for result in texts(model(0), Shape.chain(3), temperature=0))
