"""A run on disk, so that it goes on bit for bit where it was: weights, optimiser, place in the data, best result.

The settings of the run are stored with it, its draft vocabulary included. Another run cannot go on from it by mistake:
the first setting that differs is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from truedraft.errors import CorruptModelError, ParameterError
from truedraft.training.writing import write_whole

__all__ = ["Progress", "load_checkpoint", "save_checkpoint"]

_PARTS = ("settings", "net", "optimizer", "progress")


@dataclass
class Progress:
    """Where a run is. epoch, batch: the next batch of the data. best: tokens per pass, at step `best_step`.

    stale: examinations since then.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float = 0.0
    best_step: int = 0
    stale: int = 0


def save_checkpoint(
    path: Path, *, net: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, settings: dict[str, Any]
) -> None:
    """Write a checkpoint; it takes the place of an earlier one only when it is complete.

    Raises `ParameterError` where it cannot be written.
    """
    parts = {
        "settings": settings,
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": dict(vars(progress)),
    }
    write_whole(path, lambda part: torch.save(parts, part))


def load_checkpoint(
    path: Path, *, net: torch.nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> Progress:
    """Put a checkpoint into net and optimiser. Raises `CorruptModelError` for a damaged or incomplete file and
    `ParameterError` for the run of other settings.
    """
    try:
        parts = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises whatever its zip reader or unpickler met
        raise CorruptModelError(f"{path} cannot be read: {str(error).splitlines()[0][:80]}") from error
    if missing := [name for name in _PARTS if name not in parts]:
        raise CorruptModelError(f"{path} is no whole checkpoint: it lacks {', '.join(missing)}")
    for name, value in settings.items():
        if parts["settings"].get(name) != value:
            was = str(parts["settings"].get(name))[:60]
            raise ParameterError(
                f"{path} is of a run with {name} {was}, not {str(value)[:60]}: resume with its settings, "
                "or choose another folder"
            )
    net.load_state_dict(parts["net"])
    optimizer.load_state_dict(parts["optimizer"])
    return Progress(**parts["progress"])
