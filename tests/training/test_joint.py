"""A small target and its module, trained together and one after the other."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny import FAMILIES, tiny_model
from truedraft.core import Shape
from truedraft.decode import Decoder
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.nets.attention import Causal
from truedraft.nets.eagle1 import Eagle1Config
from truedraft.nets.mtp import MtpNet
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.training.joint import Lessons, foresight, train_from_scratch
from truedraft.verify import target_only

V = 48
TEXT = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6] * 40)


def fresh(seed=0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(FAMILIES["llama"](), attn_implementation="sdpa")
    net = MtpNet(Eagle1Config.like(model.config), generator=torch.Generator().manual_seed(seed))
    return model, net


def lessons(**changes):
    return Lessons(**{"steps": 60, "rate": 1e-2, "warmup": 5, "length": 32, "batch": 8, "ahead": 2, **changes})


@pytest.fixture(scope="module")
def trained():
    model, net = fresh()
    stands = []
    train_from_scratch(model, net, TEXT, lessons(), told=stands.append)
    return model.eval().requires_grad_(False), net.eval().requires_grad_(False), stands


def test_both_losses_fall(trained):
    _, _, stands = trained
    assert [stand.step for stand in stands] == list(range(60))
    assert stands[-1].main < 0.3 * stands[0].main and stands[-1].ahead < 0.5 * stands[0].ahead


def test_the_auxiliary_loss_becomes_a_drafter_that_changes_no_text(trained):
    model, net, _ = trained
    prompts = [TEXT[:9].tolist(), TEXT[4:30].tolist(), [7]]

    def texts(drafter, shape):
        decoder = Decoder(TorchTarget(CachedModel(model)), drafter, target_only.RULE, Fixed(shape))
        return Model(decoder, Facts(vocabulary=V), batch=2).generate(prompts, max_new_tokens=30)

    net.share(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    drafted = texts(EagleDrafter(net, layers=3), Shape.chain(2))
    assert [result.token_ids for result in drafted] == [result.token_ids for result in texts(NoDrafter(), Shape(0))]
    assert drafted[0].statistics.tokens_per_pass > 1.5


@pytest.mark.parametrize("together", [True, False])
def test_who_learns(together):
    model, net = fresh()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    start = net.eh_proj.weight.clone()
    train_from_scratch(model, net, TEXT, lessons(steps=2, together=together))
    same = all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert same is not together and not torch.equal(net.eh_proj.weight, start)


def test_the_target_hears_of_what_is_ahead():
    weights = []
    for weight in (0.0, 0.3):
        model, net = fresh()
        train_from_scratch(model, net, TEXT, lessons(steps=1, weight=weight))
        weights.append(model.model.layers[0].mlp.up_proj.weight.clone())
    assert not torch.equal(*weights)


def test_foresight_is_what_drafting_would_see():
    """Slot by slot: the module's chain behind a text, and the target's law at the same places."""
    model = tiny_model(seed=1, dtype=torch.float64)
    net = MtpNet(Eagle1Config.like(model.config), generator=torch.Generator().manual_seed(2)).double()
    rows = TEXT[:12][None]
    found = foresight(model, net, rows, 2)
    states = model(rows, output_hidden_states=True).hidden_states[-1]
    p = model(rows).logits.softmax(-1)[0]
    for step in range(2):
        overlaps, agreements = [], []
        for slot in range(12 - 1 - 2):
            chain = states[:, : slot + 1]
            for ahead in range(step + 1):
                count = slot + 1 + ahead
                out = net(chain, rows[:, 1 : count + 1], torch.arange(count)[None], Causal())
                chain = torch.cat((chain, out[:, -1:]), 1)
            q = net.logits(out[0, -1]).softmax(-1)
            overlaps.append(torch.minimum(q, p[slot + 1 + step]).sum())
            agreements.append(q.argmax() == p[slot + 1 + step].argmax())
        assert found.overlap[step] == pytest.approx(float(torch.stack(overlaps).mean()))
        assert found.agreement[step] == pytest.approx(float(torch.stack(agreements).double().mean()))
