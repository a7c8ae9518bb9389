"""A small model cut out of a target: it is the target's own layers, it learns, and it drafts by its folder."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.folders import bytes_tokenizer
from tests.tiny import FAMILIES, tiny_model
from tests.training.helpers import TAPS, answers, featured
from truedraft.errors import ParameterError, VocabularyError
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


def plan_of(folder, **changes):
    course = Course(steps=40, tokens=60, rate=3e-3, warmup=2, examine_every=40, checkpoint_every=40)
    return replace(Plan("model", folder, folder, folder, "tiny", course, vocabulary=0, layers=(0, 2)), **changes)


def rows_of(target):
    return Rows(tuple(featured(answers(12), target)), tuple(featured(answers(4, seed=1), target)))


def test_no_layers_are_not_the_usual_ones(tmp_path):
    target = Teacher(tiny_model(), TAPS)
    with pytest.raises(ParameterError, match="layers"):
        prepare(plan_of(tmp_path, layers=()), target, rows_of(target))


@pytest.mark.parametrize(("vocabulary", "size"), [(0, 47), (0, 49), (24, 24)])
def test_a_small_model_of_other_tokens_is_refused(tmp_path, vocabulary, size):
    target = Teacher(tiny_model(), TAPS)
    tiny_model(vocab_size=size).save_pretrained(tmp_path / "other")
    with pytest.raises(VocabularyError, match=f"says {size} tokens, and the target 48"):
        prepare(plan_of(tmp_path, vocabulary=vocabulary, start=tmp_path / "other"), target, rows_of(target))


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_model_is_whole_whenever_writing_the_next_one_ends(tmp_path, monkeypatch, fault):
    student = Student(pruned(tiny_model(), (0, 2)), tokenizer=bytes_tokenizer())
    student.save(tmp_path / "best")
    before = {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()}

    def ended(folder, **options):
        for name in before:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"half")
        raise fault

    with monkeypatch.context() as patch, pytest.raises(type(fault)):
        patch.setattr(student.model, "save_pretrained", ended)
        student.save(tmp_path / "best")
    assert {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()} == before
    student.save(tmp_path / "best", dtype=torch.bfloat16)
    assert {each.dtype for each in load_file(tmp_path / "best" / "model.safetensors").values()} == {torch.bfloat16}
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


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
    rows, plan = rows_of(target), plan_of(tmp_path)
    trainer = prepare(plan, target, rows).trainer
    losses = [report.loss for report in trainer.run()]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    small = load_model(tmp_path / "last").model
    assert small.config.num_hidden_layers == 2 and len(load_tokenizer(tmp_path / "last")) == len(bytes_tokenizer())
    assert torch.equal(small.get_input_embeddings().weight, target.embedding_matrix.bfloat16().float())
    again = prepare(replace(plan, start=tmp_path / "last", folder=tmp_path / "again"), target, rows)
    assert next(again.trainer.run()).loss < 0.8 * losses[0]
