"""Training on a device has all tensors of an operation there; held on a device that is not there.

Numbers stay on the CPU. A tensor that is moved to the device or made on it is marked by its storage, and so is all that
is computed from it. An operation on marked and unmarked tensors together, which a GPU would refuse, is noted.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from tests.tiny import tiny_model
from tests.training.helpers import TAPS, answers, featured, write
from truedraft.training.course import Course
from truedraft.training.features import FeatureKind, compute_features
from truedraft.training.prepare import Plan, Rows, prepare
from truedraft.training.recipes import RECIPES
from truedraft.training.teacher import Teacher
from truedraft.training.together import Stages, train_together

DEVICE = torch.device("cuda")


class Marks:
    """The tensors on the device, and what it refused."""

    def __init__(self):
        self.refused = []
        self._storages = {}  # kept, so that no other one is taken for one of them

    def add(self, tensor):
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return tensor

    def __contains__(self, tensor):
        return tensor.untyped_storage()._cdata in self._storages


class Names(TorchFunctionMode):
    """Calls in which a device is named or asked for."""

    def __init__(self, marks):
        super().__init__()
        self.marks = marks

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function == torch.Tensor.device.__get__:
            return DEVICE if args[0] in self.marks else function(*args)
        if function is torch.Tensor.cpu:
            return self.moved(args[0], "cpu")
        if function is torch.Tensor.to:
            said = [*args[1:], *kwargs.values()]
            device = next((each for each in said if isinstance(each, torch.device | str)), None)
            if device is not None:
                dtype = next((each for each in said if isinstance(each, torch.dtype)), None)
                return self.moved(args[0] if dtype is None else args[0].to(dtype), device)
        device = kwargs.pop("device", None)
        made = function(*args, **kwargs)
        return made if device is None else self.moved(made, device)

    def moved(self, tensor, device):
        is_there = torch.device(device) == DEVICE
        if (tensor in self.marks) == is_there:
            return tensor
        with _disable_current_modes():
            copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return self.marks.add(copy) if is_there else copy


class Operations(TorchDispatchMode):
    """What is computed: where its results are, and whether all that it reads is in one place."""

    def __init__(self, marks):
        super().__init__()
        self.marks = marks

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        results = operation(*args, **(kwargs or {}))
        places = {each in self.marks for each in read if each.dim() > 0}
        if operation is torch.ops.aten.copy_.default:
            return results  # between devices, and into what was there
        picks = operation is torch.ops.aten.index.Tensor and args[0] in self.marks  # by places that are on the CPU
        if len(places) > 1 and not picks:
            self.marks.refused.append(f"{operation} of {[(each.shape, each in self.marks) for each in read]}")
        if places != {False} and any(each in self.marks for each in read):
            for each in tree_leaves(results):
                if isinstance(each, torch.Tensor):
                    self.marks.add(each)
        return results


@pytest.mark.parametrize("kind", RECIPES)
def test_a_run_keeps_the_tensors_of_an_operation_on_one_device(kind, tmp_path):
    marks, here = Marks(), Teacher(tiny_model("qwen3"), TAPS)
    rows = Rows(tuple(featured(answers(8), here)), tuple(featured(answers(3, seed=1), here)))
    course = Course(steps=2, tokens=40, warmup=1, examine_every=1, checkpoint_every=1)
    plan = Plan(kind, tmp_path, tmp_path, tmp_path / "run", "tiny", course, vocabulary=24, taps=TAPS[:3], noise=0.1)
    with Names(marks), Operations(marks):
        teacher = Teacher(tiny_model("qwen3").to(DEVICE), TAPS)
        trainer = prepare(plan, teacher, rows).trainer
        losses = [report.loss for report in trainer.run()]
        assert trainer.resume()
        assert all(parameter in marks for parameter in trainer.net.parameters())
        assert not any(row.features in marks for row in rows.training)
        if kind == "medusa":
            stages = Stages(1, 1, tokens=40)
            train_together(teacher.model, trainer.net, rows.training, stages, told=lambda standing: None)
    assert marks.refused == [] and len(losses) == 2
    alone = prepare(Plan(**{**vars(plan), "folder": tmp_path / "alone"}), here, rows).trainer
    assert losses == [report.loss for report in alone.run()]


def test_features_are_computed_there_and_kept_here(tmp_path):
    marks, shard = Marks(), write(tmp_path / "shard-00000.jsonl", answers(3))
    kind = FeatureKind("tiny", 1, TAPS, 32, 64)
    with Names(marks), Operations(marks):
        teacher = Teacher(tiny_model().to(DEVICE), TAPS)
        assert teacher.features(torch.tensor([[1, 2, 3]])) in marks
        compute_features(teacher, shard, tmp_path / "there", kind=kind, report=lambda tokens: None)
    assert marks.refused == []
    compute_features(Teacher(tiny_model(), TAPS), shard, tmp_path / "here", kind=kind, report=lambda tokens: None)
    files = [tmp_path / place / "shard-00000.npy" for place in ("here", "there")]
    assert files[0].read_bytes() == files[1].read_bytes()
