"""The processes of `torchrun`: who this one is, on which device it computes, and whose turn it is at the disk.

Alone or among others, a process computes on the device that was asked for; of several on GPUs each has its own. This
file refuses to know models.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as distributed

from truedraft.errors import ParameterError

__all__ = ["Place", "Process", "in_turn", "place_of", "this_process"]

T = TypeVar("T")

_PATIENCE = timedelta(days=7)
"""How long processes wait for each other: features of many answers take the first one hours."""


@dataclass(frozen=True)
class Place:
    """device: where a process computes. backend: how it talks to the others."""

    device: str
    backend: str


@dataclass(frozen=True)
class Process:
    """rank: the number among all processes; local: among those of this machine. device: where it computes."""

    rank: int = 0
    local: int = 0
    device: str = "cpu"


def place_of(said: str, *, local: int | None, gpus: int) -> Place:
    """The place of a process. said: the device by name, or "auto"; local: its number here, None for one alone; gpus:
    how many are here. Raises `ParameterError` where processes would share a GPU.
    """
    device = ("cuda" if gpus else "cpu") if said == "auto" else said
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return Place(device, "gloo")
    if local is None:
        return Place(device, "nccl")
    if number:
        raise ParameterError(f"device is {said!r}: expected cuda, of which every process of torchrun has its own")
    if local >= gpus:
        raise ParameterError(
            f"device is {said!r}, and there are {gpus} GPUs for {local + 1} processes or more: start one a GPU "
            "(--nproc-per-node), or take cpu"
        )
    return Place(f"cuda:{local}", "nccl")


@contextmanager
def this_process(device: str) -> Iterator[Process]:
    """This process among those of `torchrun`, which are joined as long as the context lasts; or the only one.

    device: as `place_of` reads it, with the same errors.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield Process(device=place_of(device, local=None, gpus=gpus).device)
        return
    local = int(os.environ["LOCAL_RANK"])
    place = place_of(device, local=local, gpus=gpus)
    if place.backend == "nccl":
        torch.cuda.set_device(local)
    distributed.init_process_group(place.backend, timeout=_PATIENCE)
    try:
        yield Process(distributed.get_rank(), local, place.device)
    finally:
        distributed.destroy_process_group()


def in_turn(process: Process, work: Callable[[], T], *, wait: Callable[[], object] | None = None) -> T:
    """What comes of work that leaves files: the first process does it, then the first one of every other machine, which
    may have a disk of its own, then all others, who find the files there. No two write the same file at the same time.

    wait: until all processes are there.
    """
    wait = wait or (distributed.barrier if distributed.is_initialized() else lambda: None)
    turn = 0 if process.rank == 0 else 1 if process.local == 0 else 2
    for _ in range(turn):
        wait()
    done = work()
    for _ in range(turn, 2):
        wait()
    return done
