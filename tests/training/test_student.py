"""A small model cut out of a target: it is the target's own layers, it learns, and it drafts by its folder."""

import pytest
import torch

from tests.folders import bytes_tokenizer
from tests.tiny import FAMILIES, tiny_model
from tests.training.helpers import TAPS, answers, featured
from truedraft.errors import ParameterError
from truedraft.targets.load import load_model, load_tokenizer
from truedraft.training.batches import collate
from truedraft.training.course import Course
from truedraft.training.prepare import Plan, Rows, prepare
from truedraft.training.student import Student, pruned, usual_layers
from truedraft.training.teacher import Teacher
from truedraft.training.unroll import unroll

TOKENS = torch.tensor([[1, 7, 9, 30, 4]])


@pytest.mark.parametrize("family", FAMILIES)
def test_all_layers_are_the_target_and_some_are_not(family):
    model = tiny_model(family)
    layers = model.config.num_hidden_layers
    with torch.no_grad():
        whole = pruned(model, range(layers))(TOKENS).logits
        assert torch.equal(whole, model(TOKENS).logits)
        assert not torch.allclose(pruned(model, (0, layers - 1))(TOKENS).logits, whole, atol=1e-3)


def test_the_layers_are_those_that_were_named():
    model = tiny_model("llama")
    small = pruned(model, (0, 2))
    for mine, theirs in ((0, 0), (1, 2)):
        weights = small.model.layers[mine].state_dict(), model.model.layers[theirs].state_dict()
        assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert small.config.num_hidden_layers == 2 and model.config.num_hidden_layers == 3


@pytest.mark.parametrize("layers", [(), (3,), (1, 0), (0, 0), (-1, 1)])
def test_layers_that_are_not_there(layers):
    with pytest.raises(ParameterError, match="layers"):
        pruned(tiny_model(), layers)


@pytest.mark.parametrize("layers", [1, 2, 3, 6, 30])
def test_usual_layers_are_there(layers):
    assert list(usual_layers(layers)) == sorted(set(usual_layers(layers))) and max(usual_layers(layers)) == layers - 1


def test_a_slot_holds_the_state_behind_the_next_token():
    target = Teacher(tiny_model(), TAPS)
    row = featured(answers(1), target)[0]
    states = unroll(Student(pruned(target.model, (0, 1, 2))), collate([row], (), 1))
    torch.testing.assert_close(states[0, :-1, 0], row.features[1:, -1].float(), rtol=1e-2, atol=2e-2)


def test_distillation_raises_agreement_and_the_folder_drafts(tmp_path):
    target = Teacher(tiny_model(), TAPS, tokenizer=bytes_tokenizer())
    rows = Rows(tuple(featured(answers(12), target)), tuple(featured(answers(4, seed=1), target)))
    course = Course(steps=40, tokens=60, rate=3e-3, warmup=2, examine_every=40, checkpoint_every=40)
    plan = Plan("model", tmp_path, tmp_path, tmp_path, "tiny", course, vocabulary=0, layers=(0, 2))
    trainer = prepare(plan, target, rows).trainer
    losses = [report.loss for report in trainer.run()]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    small = load_model(tmp_path / "last").model
    assert small.config.num_hidden_layers == 2 and len(load_tokenizer(tmp_path / "last")) == len(bytes_tokenizer())
    assert torch.equal(small.get_input_embeddings().weight, target.embedding_matrix.bfloat16().float())
    again = prepare(Plan(**{**vars(plan), "start": tmp_path / "last", "folder": tmp_path / "again"}), target, rows)
    assert next(again.trainer.run()).loss < 0.8 * losses[0]
