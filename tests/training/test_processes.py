"""Which device a process computes on, whom it talks to how, and that no two processes write the same file at once."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as distributed

from truedraft.errors import ParameterError
from truedraft.training.processes import Place, Process, in_turn, place_of, this_process


@pytest.mark.parametrize(
    ("said", "local", "gpus", "place"),
    [
        ("auto", None, 0, Place("cpu", "gloo")),
        ("auto", None, 2, Place("cuda", "nccl")),
        ("auto", 1, 0, Place("cpu", "gloo")),
        ("auto", 1, 2, Place("cuda:1", "nccl")),
        ("cpu", 1, 2, Place("cpu", "gloo")),
        ("cuda", 0, 2, Place("cuda:0", "nccl")),
        ("cuda:1", None, 2, Place("cuda:1", "nccl")),
        ("mps", None, 0, Place("mps", "gloo")),
    ],
)
def test_the_backend_is_that_of_the_device_and_not_of_the_machine(said, local, gpus, place):
    assert place_of(said, local=local, gpus=gpus) == place


@pytest.mark.parametrize(
    ("said", "local", "gpus", "message"),
    [("cuda", 0, 0, "0 GPUs"), ("auto", 2, 2, "3 processes"), ("cuda:0", 1, 2, "has its own")],
)
def test_processes_do_not_share_a_gpu(said, local, gpus, message):
    with pytest.raises(ParameterError, match=message):
        place_of(said, local=local, gpus=gpus)


@pytest.mark.parametrize(("said", "backend", "device"), [("auto", "nccl", "cuda:1"), ("cpu", "gloo", "cpu")])
def test_processes_of_torchrun_wait_for_as_long_as_features_take(monkeypatch, said, backend, device):
    joined, chosen = [], []
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(distributed, "init_process_group", lambda *said, **more: joined.append((said, more)))
    monkeypatch.setattr(distributed, "get_rank", lambda: 3)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: joined.append("left"))
    with this_process(said) as process:
        assert process == Process(3, 1, device)
    assert chosen == [1] * (backend == "nccl")
    (said_backend, more), left = joined
    assert said_backend == (backend,) and left == "left"
    assert more["timeout"] >= timedelta(days=1)


def test_a_process_alone_joins_nobody(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with this_process("cpu") as process:
        assert process == Process(device="cpu") and not distributed.is_initialized()
        assert in_turn(process, lambda: 7) == 7


@pytest.mark.parametrize(("rank", "local", "before"), [(0, 0, 0), (4, 0, 1), (1, 1, 2), (5, 1, 2)])
def test_one_process_of_a_machine_writes_while_the_others_wait(rank, local, before):
    """The first of all, the first of every other machine, the others: each waits as often as anybody."""
    waits, seen = [], []
    done = in_turn(Process(rank, local), lambda: seen.append(len(waits)), wait=lambda: waits.append(1))
    assert done is None and seen == [before] and len(waits) == 2
