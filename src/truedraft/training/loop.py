"""The training loop: batches in, steps of the optimiser, examinations, checkpoints, until acceptance stops rising.

One process or several (`torchrun`): every process has its own batches of a step, the gradients are added up over all,
and each guess weighs the same wherever it was. This file refuses to know kinds of heads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed

from truedraft.errors import ParameterError
from truedraft.training.acceptance import Tally
from truedraft.training.batches import Order, collate, supervised
from truedraft.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from truedraft.training.course import Course, rate_at
from truedraft.training.features import Row
from truedraft.training.learn import Lesson, examine, learn
from truedraft.training.record import Record
from truedraft.training.scaling import EvenInputs
from truedraft.training.unroll import Net
from truedraft.training.writing import writing

__all__ = ["Material", "Report", "Trainer", "require_finite"]

_BETAS = (0.9, 0.95)


@dataclass(frozen=True)
class Material:
    """What is learned, and what is examined. columns: the taps of the rows that the head reads. unroll: steps J.

    begin: the first token of every row that is guessed; None is where its answer begins.
    """

    rows: Sequence[Row]
    held_out: Sequence[Row]
    columns: tuple[int, ...]
    unroll: int
    begin: int | None = None

    def guesses(self, row: Row) -> int:
        """How many guesses of a row are supervised."""
        begin = row.prompt_length if self.begin is None else self.begin
        return sum(map(len, supervised(len(row), begin, self.unroll)))


@dataclass(frozen=True)
class Report:
    """What a step came to. tally: of the held-out texts, where the step examined them."""

    progress: Progress
    loss: float
    rate: float
    gradient: float
    tally: Tally | None = None


def require_finite(step: int, loss: float, gradient: float) -> None:
    """Raise `ParameterError` where the loss or the length of the gradient is none: the step would ruin all weights."""
    if not (math.isfinite(loss) and math.isfinite(gradient)):
        raise ParameterError(
            f"step {step} was not taken, with a loss of {loss} and a gradient of length {gradient}: begin again at a "
            "lower rate, from what was saved before, which is as it was"
        )


@dataclass
class Trainer:
    """A run in a folder: checkpoint.pt, log.csv, and heads, the latest in `last`, the best so far in `best`.

    settings: whatever a resumed run must have in common with this one, besides the number of processes. notes: what
    heads say of themselves besides steps, tokens and acceptance. clock: seconds.
    """

    net: Net
    material: Material
    lesson: Lesson
    course: Course
    folder: Path
    inputs: EvenInputs
    settings: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.progress = Progress()
        parameters = [each for each in self.net.parameters() if each.requires_grad]
        self._parameters = parameters
        self._optimizer = torch.optim.AdamW(
            parameters, lr=self.course.rate, betas=_BETAS, weight_decay=self.course.decay, fused=True
        )
        self._order = Order(tuple(map(len, self.material.rows)), self.course.tokens, self.course.seed)
        self._guesses = [self.material.guesses(row) for row in self.material.rows]
        parallel = distributed.is_available() and distributed.is_initialized()
        self._rank, self._world = (distributed.get_rank(), distributed.get_world_size()) if parallel else (0, 1)
        self._settings = {**self.settings, "processes": self._world}

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"

    def resume(self) -> bool:
        """Go on from the folder's checkpoint; False if there is none yet."""
        if not self._checkpoint.is_file():
            return False
        self.progress = load_checkpoint(
            self._checkpoint, net=self.net, optimizer=self._optimizer, settings=self._settings
        )
        return True

    def run(self) -> Iterator[Report]:
        """Steps until the end, a report each. Stopping in between loses what came after the last checkpoint.

        Raises `ParameterError` where a loss or gradient is no number any more, and where files cannot be written.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        record = Record(self.folder / "log.csv", step=self.progress.step) if self._rank == 0 else None
        batches = self._batches()
        while self.progress.step < self.course.steps and not self._is_stale:
            began = self.clock()
            report = self._step([next(batches) for _ in range(self._world * self.course.accumulate)])
            self.progress.seconds += self.clock() - began
            if self._is_due(self.course.examine_every):
                report = self._examined(report)
            if record is not None:
                record.write(_line(report))
                if self._is_due(self.course.checkpoint_every) or self._is_stale:
                    self.save()
            yield report

    def save(self) -> None:
        """Write the checkpoint, and the head."""
        self._save_head("last")
        save_checkpoint(
            self._checkpoint,
            net=self.net,
            optimizer=self._optimizer,
            progress=self.progress,
            settings=self._settings,
        )

    def _save_head(self, name: str) -> None:
        progress = self.progress
        counts = {"steps": progress.step, "training_tokens": progress.tokens}
        best = {"best_tokens_per_pass": progress.best} if progress.best else {}
        self.net.notes = {**self.net.notes, **self.notes, **counts, **best}
        with self.inputs.written(), writing(self.folder / name):
            self.net.save(self.folder / name, dtype=torch.bfloat16)

    def examine(self) -> Tally:
        """Acceptance on the held-out texts; all of them are greedy."""
        rows = self.material.held_out
        order = Order(tuple(map(len, rows)), self.course.tokens)
        tally = Tally.empty(self.material.unroll)
        with self._precision():
            for places in order.epoch(0):
                batch = collate([rows[place] for place in places], self.material.columns, self.material.unroll)
                tally += examine(self.net, batch.to(self._device))
        return tally

    @property
    def _is_stale(self) -> bool:
        return 0 < self.course.patience <= self.progress.stale

    def _is_due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.progress.step == self.course.steps

    @property
    def _device(self) -> torch.device:
        return next(self.net.parameters()).device

    def _precision(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.course.bfloat16)

    def _batches(self) -> Iterator[list[int]]:
        """From the place where the run is, on and on; the place moves with them."""
        while True:
            epoch = self._order.epoch(self.progress.epoch)
            while self.progress.batch < len(epoch):
                self.progress.batch += 1
                yield epoch[self.progress.batch - 1]
            self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0

    def _step(self, group: Sequence[Sequence[int]]) -> Report:
        """One step of the optimiser, on a group of batches of which every process has its share."""
        places = [place for batch in group for place in batch]
        scale = 1 / sum(self._guesses[place] for place in places)
        generator = torch.Generator().manual_seed(
            (self.course.seed * 1_000_003 + self.progress.step) * self._world + self._rank
        )
        loss = 0.0
        for batch in group[self._rank :: self._world]:
            rows = [self.material.rows[place] for place in batch]
            together = collate(rows, self.material.columns, self.material.unroll, begin=self.material.begin)
            with self._precision():
                loss += learn(self.net, together.to(self._device), self.lesson, scale=scale, generator=generator)
        loss = self._added_up(loss)
        rate = rate_at(self.progress.step, self.course)
        gradient = self._move(rate, loss)
        self.progress.step += 1
        self.progress.tokens += sum(self._order.lengths[place] for place in places)
        return Report(self.progress, loss, rate, gradient)

    def _added_up(self, loss: float) -> float:
        """Loss and gradients of all processes."""
        if self._world == 1:
            return loss
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)
        together = torch.tensor(loss, dtype=torch.float64, device=self._device)
        distributed.all_reduce(together)
        return float(together)

    def _move(self, rate: float, loss: float) -> float:
        """One step down; returns the length of the gradient before it was clipped."""
        length = torch.nn.utils.clip_grad_norm_(self._parameters, self.course.clip)
        require_finite(self.progress.step + 1, loss, float(length))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(length)

    def _examined(self, report: Report) -> Report:
        """The report with acceptance; the best head is kept, or the latest where nothing tells one from another."""
        if not self.material.held_out:
            self.progress.best_step = self.progress.step
            if self._rank == 0:
                self._save_head("best")
            return report
        tally = self.examine()
        self.notes |= _measured(tally)
        if tally.tokens_per_pass > self.progress.best:
            self.progress.best, self.progress.best_step, self.progress.stale = (
                tally.tokens_per_pass,
                self.progress.step,
                0,
            )
            if self._rank == 0:
                self._save_head("best")
        else:
            self.progress.stale += 1
        return Report(self.progress, report.loss, report.rate, report.gradient, tally)


def _measured(tally: Tally) -> dict[str, Any]:
    """What a head says of an examination. Medusa's drafter chooses its trees by `head_accuracies`."""
    return {
        "held_out_acceptance": [round(rate, 4) for rate in tally.by_position],
        "head_accuracies": [[round(rate, 5) for rate in rates] for rates in tally.by_rank],
    }


def _line(report: Report) -> dict[str, object]:
    """A report for the log."""
    progress, tally = report.progress, report.tally
    line: dict[str, object] = {
        "step": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 2),
        "loss": f"{report.loss:.5f}",
        "rate": f"{report.rate:.3e}",
        "gradient": f"{report.gradient:.4f}",
    }
    if tally is not None:
        line |= {
            "tokens_per_pass": f"{tally.tokens_per_pass:.4f}",
            "near": f"{tally.near:.4f}",
            "acceptance": " ".join(f"{rate:.4f}" for rate in tally.by_position),
        }
    return line
