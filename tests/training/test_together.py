"""Heads and target together: stage 1 leaves the target as it is, stage 2 moves it a little and says so."""

import copy

import pytest
import torch

from tests.folders import bytes_tokenizer
from tests.tiny import tiny_model
from tests.training.helpers import TAPS, answers, featured
from truedraft.errors import ParameterError
from truedraft.nets.medusa import MedusaConfig, MedusaNet
from truedraft.targets.load import load_model
from truedraft.training.teacher import Teacher
from truedraft.training.together import Stages, save_pair, train_together


@pytest.fixture
def model():
    return tiny_model()


def trained(model, stages, tmp_path=None):
    """The heads, and what was told of every step."""
    rows = featured(answers(8), Teacher(model, TAPS))
    net = MedusaNet(MedusaConfig.like(model.config, heads=2), generator=torch.Generator().manual_seed(0))
    net.copy_output(model.get_output_embeddings().weight)
    told = []
    train_together(model, net, rows, stages, told=told.append)
    return net, told


def test_stage_one_leaves_the_target_as_it_is(model):
    before = copy.deepcopy(model.state_dict())
    _, told = trained(model, Stages(alone=30, together=0, tokens=80, rate=3e-3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert sum(each.heads for each in told[-5:]) < 0.9 * sum(each.heads for each in told[:5])
    assert max(each.moved for each in told) < 1e-3 and [each.step for each in told] == list(range(1, 31))


def test_stage_two_moves_the_target_but_keeps_it_near(model):
    before = copy.deepcopy(model.state_dict())
    _, told = trained(model, Stages(alone=10, together=40, tokens=80, rate=3e-3, target_rate=1e-3, weight=1.0))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert "model.layers.0.mlp.up_proj.weight" in changed
    assert not changed & {"model.embed_tokens.weight", "lm_head.weight"}
    assert told[9].moved < 1e-3 < told[-1].moved < 1.0
    assert sum(each.heads for each in told[-5:]) < 0.8 * sum(each.heads for each in told[:5])


def test_the_target_is_held_by_what_it_was():
    moved = []
    for weight in (0.05, 5.0):
        _, told = trained(tiny_model(), Stages(2, 25, tokens=80, rate=1e-3, target_rate=1e-3, weight=weight))
        moved.append(told[-1].moved)
    assert moved[0] < moved[1]


def test_the_second_loss_is_the_sum_of_the_means_of_the_heads(model):
    """KL + weight * sum_j 0.8^j (mean over the answer's tokens of head j's loss): no head weighs less in company."""
    row = featured(answers(1, prompt=8, answer=9), Teacher(model, TAPS))[0]
    net = MedusaNet(MedusaConfig.like(model.config, heads=3), generator=torch.Generator().manual_seed(0))
    net.copy_output(model.get_output_embeddings().weight)
    found = {name: torch.zeros_like(each) for name, each in net.named_parameters()}
    hooks = [
        each.register_hook(lambda gradient, name=name: found[name].add_(gradient))
        for name, each in net.named_parameters()
    ]
    with torch.no_grad():
        states = model.model(row.tokens[None]).last_hidden_state[0]
    before = copy.deepcopy(net)
    train_together(model, net, [row], Stages(0, 1, weight=0.2), told=lambda standing: None)
    for hook in hooks:
        hook.remove()
    said = before.logits(before(states[:, None]))  # [T, K, V]: head j at token t says token t + 2 + j
    begin, end = row.prompt_length, len(row)
    loss = sum(
        0.8**head
        * torch.nn.functional.cross_entropy(said[begin - 2 - head : end - 2 - head, head], row.tokens[begin:end])
        for head in range(3)
    )
    (0.2 * loss).backward()
    for name, each in before.named_parameters():
        torch.testing.assert_close(found[name], each.grad, rtol=1e-4, atol=1e-6)


def test_a_step_that_would_ruin_the_weights_is_not_taken(model):
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ParameterError, match="step 2 was not taken"):
        trained(model, Stages(1, 3, tokens=80, weight=float("inf")))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_pair_is_written_and_says_what_it_is(model, tmp_path):
    net, _ = trained(model, Stages(1, 1, tokens=80))
    save_pair(model, net, tmp_path, tokenizer=bytes_tokenizer())
    target = load_model(tmp_path / "target").model
    assert "not those of the model" in target.config.truedraft["changed"]
    assert torch.equal(target.model.norm.weight, model.model.norm.weight)
    assert "changed_target" in MedusaNet.load(tmp_path / "heads").notes
