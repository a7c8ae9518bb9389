"""`truedraft train`: a drafter for a model, from the model's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.drafters.layer_skip import parse_layers
from truedraft.drafters.vocabulary import check_vocabulary
from truedraft.drafters.warm import owner_of
from truedraft.errors import ParameterError
from truedraft.models import DEFAULT, resolve
from truedraft.nets.eagle3 import usual_taps
from truedraft.nets.medusa import MedusaNet
from truedraft.outputs import require_folder
from truedraft.targets.load import load_model, load_tokenizer
from truedraft.training.course import Course
from truedraft.training.features import are_missing
from truedraft.training.loop import Report
from truedraft.training.prepare import Plan, Prepared, Rows, collect, prepare
from truedraft.training.processes import Process, in_turn, this_process
from truedraft.training.rows import read_prompts
from truedraft.training.show import describe, sample
from truedraft.training.teacher import Teacher
from truedraft.training.together import Stages, Standing, check_together, save_pair, train_together

__all__ = ["train"]

_DATA, _RUN = "Data", "Run"


def train(
    kind: Annotated[str, typer.Argument(help="eagle3, eagle1, medusa, mtp or model.")],
    data: Annotated[Path, typer.Option("--data", help="Folder of answers (see `truedraft data`).")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run: checkpoint, log, best head.")],
    model: opt.ModelName = DEFAULT,
    features: Annotated[Path | None, typer.Option("--features", help="Folder of features; data/features.")] = None,
    vocabulary: Annotated[int, typer.Option("--vocabulary", help="Tokens that the head can say; 0: all.")] = 8192,
    count: Annotated[Path | None, typer.Option("--count", help="Prompts whose tokens are likely as well.")] = None,
    unroll: Annotated[int | None, typer.Option("--unroll", help="Draft steps, or Medusa heads.")] = None,
    loss: Annotated[str | None, typer.Option("--loss", help="Such as 'state + 0.1*cross-entropy'.")] = None,
    decay: Annotated[float | None, typer.Option("--decay", help="Weight of a step to that of the one before.")] = None,
    noise: Annotated[float | None, typer.Option("--noise", help="Width of noise on the states read.")] = None,
    taps: Annotated[list[int] | None, typer.Option("--tap", help="A layer that EAGLE-3 reads; repeat.")] = None,
    layers: Annotated[str | None, typer.Option("--layers", help="Of kind model: 0,1,2,28,29.")] = None,
    longest: Annotated[int, typer.Option("--longest", help="Rows are cut to so many tokens.")] = 1024,
    prompts: Annotated[
        bool | None, typer.Option("--prompts/--answers-only", help="Learn prompts as well, as usual but with --joint.")
    ] = None,
    held_out: Annotated[int, typer.Option("--held-out", help="Most texts that are examined.")] = 64,
    limit: Annotated[int | None, typer.Option("--limit", help="Most rows of answers.")] = None,
    steps: Annotated[int, typer.Option("--steps", help="Of the optimiser.", rich_help_panel=_RUN)] = 1000,
    rate: Annotated[float, typer.Option("--rate", help="Peak learning rate.", rich_help_panel=_RUN)] = 6e-4,
    warmup: Annotated[int, typer.Option("--warmup", help="Steps up to the peak.", rich_help_panel=_RUN)] = 20,
    final: Annotated[float, typer.Option("--final", help="Last rate over peak.", rich_help_panel=_RUN)] = 0.05,
    batch: Annotated[int, typer.Option("--batch", help="Tokens of a batch.", rich_help_panel=_RUN)] = 2048,
    accumulate: Annotated[int, typer.Option("--accumulate", help="Batches a step.", rich_help_panel=_RUN)] = 1,
    clip: Annotated[float, typer.Option("--clip", help="Longest gradient.", rich_help_panel=_RUN)] = 1.0,
    weight_decay: Annotated[float, typer.Option("--weight-decay", rich_help_panel=_RUN)] = 0.0,
    bfloat16: Annotated[bool, typer.Option("--bf16", help="Products in bfloat16.", rich_help_panel=_RUN)] = False,
    examine_every: Annotated[int, typer.Option("--examine-every", help="Steps.", rich_help_panel=_RUN)] = 100,
    checkpoint_every: Annotated[int, typer.Option("--checkpoint-every", help="Steps.", rich_help_panel=_RUN)] = 100,
    patience: Annotated[
        int, typer.Option("--patience", help="Examinations without gain; 0: none.", rich_help_panel=_RUN)
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", rich_help_panel=_RUN)] = 0,
    joint: Annotated[
        int, typer.Option("--joint", help="Medusa-2: so many steps of heads and target after those of heads alone.")
    ] = 0,
    target_rate: Annotated[float, typer.Option("--target-rate", help="Of the target with --joint.")] = 2e-5,
    init_from: Annotated[Path | None, typer.Option("--init-from", help="A head to go on from.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if there is one.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show a row, train nothing.")] = False,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    offline: opt.Offline = False,
) -> int:
    """Train a drafter. Under torchrun every process takes its share of each step, on a GPU of its own if on any."""
    if not dry_run:
        require_folder("out", out)
    if threads is not None:
        if threads < 1:
            raise ParameterError(f"threads is {threads}: expected at least 1")
        torch.set_num_threads(threads)
    course = Course(
        steps=steps,
        rate=rate,
        warmup=warmup,
        final=final,
        tokens=batch,
        accumulate=accumulate,
        clip=clip,
        decay=weight_decay,
        bfloat16=bfloat16,
        examine_every=examine_every,
        checkpoint_every=checkpoint_every,
        patience=patience,
        seed=seed,
    )
    plan = Plan(
        kind,
        data,
        features or data / "features",
        out,
        "",
        course,
        vocabulary=vocabulary,
        steps=unroll,
        loss=loss,
        decay=decay,
        noise=noise,
        taps=tuple(taps) if taps else None,
        longest=longest,
        prompts=not joint if prompts is None else prompts,
        held_out=held_out,
        limit=limit,
        start=init_from,
        layers=None if layers is None else parse_layers(layers),
    )
    if are_missing(plan.answers, plan.features):
        require_folder("features", plan.features)
    console = Console(highlight=False)
    with this_process(device) as process:
        if joint:
            check_together(plan, joint, target_rate, resume=resume)
        run = _Run(model, plan, console, process, count=count, offline=offline)
        if joint:
            return run.go_together(joint, target_rate, resume=resume, dry_run=dry_run)
        return run.go(resume=resume, dry_run=dry_run)


class _Run:
    """A plan carried out, with what is said about it."""

    def __init__(
        self, model: str, plan: Plan, console: Console, process: Process, *, count: Path | None, offline: bool
    ) -> None:
        with RichProgress(console) as progress:
            self._folder = resolve(model, progress=progress, offline=offline)
        self._tokenizer = load_tokenizer(self._folder)
        self._console, self._process = console, process
        if plan.kind == "model" and plan.start is not None:
            self._check_small(plan.start)
        loaded: Any = load_model(self._folder, dtype="float32", device=process.device).model
        layers = loaded.config.get_text_config(decoder=True).num_hidden_layers
        taps = plan.taps or (usual_taps(layers) if layers > 5 or plan.kind == "eagle3" else ())
        self._teacher = Teacher(loaded, (*taps, layers), tokenizer=self._tokenizer)
        counts = None if count is None else self._counts(count)
        self._plan = replace(plan, owner=owner_of(loaded.config, self._tokenizer), counts=counts)

    def go(self, *, resume: bool, dry_run: bool) -> int:
        if not (dry_run or resume):
            self._refuse_another("checkpoint.pt", "go on with --resume, or name another folder")
        prepared = prepare(self._plan, self._teacher, self._rows())
        self._say(describe(self._plan, prepared))
        if dry_run:
            self._say(sample(prepared, self._tokenizer))
            return 0
        trainer = prepared.trainer
        if resume and trainer.resume():
            self._say(f"resumed at step {trainer.progress.step}")
        self._train(prepared)
        return 0

    def go_together(self, joint: int, target_rate: float, *, resume: bool, dry_run: bool) -> int:
        course = self._plan.course
        if not dry_run:
            self._refuse_another("target", "name another folder")
        prepared = prepare(self._plan, self._teacher, self._rows())
        self._say(describe(self._plan, prepared))
        if dry_run:
            self._say(sample(prepared, self._tokenizer))
            return 0
        net = prepared.trainer.net
        assert isinstance(net, MedusaNet)
        stages = Stages(
            course.steps,
            joint,
            course.rate,
            target_rate,
            tokens=course.tokens,
            bfloat16=course.bfloat16,
            seed=course.seed,
        )
        with self._bar("training", course.steps + joint) as advance:

            def told(standing: Standing) -> None:
                advance(1)
                if standing.step % course.examine_every == 0 or standing.step == course.steps + joint:
                    moved = f"target moved by {standing.moved:.4f} nats a token"
                    self._say(f"step {standing.step}: loss of the heads {standing.heads:.3f}, {moved}")

            train_together(self._teacher.model, net, prepared.rows.training, stages, told=told)
        save_pair(self._teacher.model, net, self._plan.folder, tokenizer=self._tokenizer)
        self._say(f"another target in {self._plan.folder / 'target'}, and its heads in {self._plan.folder / 'heads'}")
        return 0

    def _check_small(self, folder: Path) -> None:
        """A small model to go on from has to give token ids the meaning that the target gives them."""
        theirs = load_tokenizer(folder)
        if self._tokenizer is not None and theirs is not None:
            check_vocabulary(self._tokenizer, theirs)

    def _refuse_another(self, sign: str, advice: str) -> None:
        """A folder with a run in it is not written over."""
        if (self._plan.folder / sign).exists():
            raise ParameterError(f"{self._plan.folder} holds a run already: {advice}")

    def _counts(self, path: Path) -> torch.Tensor:
        """How often tokens come in the prompts of a file [V]."""
        counts = torch.zeros(self._teacher.output_size)
        for row in read_prompts(path)[0]:
            for message in row.messages:
                ids = torch.tensor(
                    self._tokenizer.encode(message["content"], add_special_tokens=False), dtype=torch.int64
                )
                counts.index_add_(0, ids, torch.ones(len(ids)))
        return counts

    def _rows(self) -> Rows:
        """All rows; features are computed by one process of a machine, and read by all."""
        teacher = self._teacher
        if self._plan.course.bfloat16:
            computing: Any = load_model(self._folder, dtype="bfloat16", device=self._process.device).model
            teacher = Teacher(computing, self._teacher.taps)

        def collected() -> Rows:
            with self._bar("features", None) as advance:
                return collect(self._plan, teacher, report=advance)

        return in_turn(self._process, collected)

    def _train(self, prepared: Prepared) -> None:
        course, trainer = self._plan.course, prepared.trainer
        try:
            with self._bar("training", course.steps, trainer.progress.step) as advance:
                for report in trainer.run():
                    advance(1)
                    if report.tally is not None:
                        self._say(_line(report))
        except KeyboardInterrupt:
            self._say(f"stopped at step {trainer.progress.step}; --resume goes on from the last checkpoint")
            raise
        best, folder = trainer.progress, self._plan.folder / "best"
        measured = (
            f"{best.best:.3f} tokens per pass" if best.best else "acceptance was not measured, the latest is kept"
        )
        self._say(f"best: {measured}, at step {best.best_step}, in {folder}")

    @contextmanager
    def _bar(self, what: str, total: int | None, done: int = 0) -> Iterator[Any]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        if self._process.rank or not self._console.is_terminal:
            yield lambda amount: None
            return
        with Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True) as bars:
            task = bars.add_task(what, total=total, completed=done)
            yield lambda amount: bars.advance(task, amount)

    def _say(self, text: str) -> None:
        if self._process.rank == 0:
            self._console.print(text, soft_wrap=True, markup=False)


def _line(report: Report) -> str:
    """What an examination found."""
    progress, tally = report.progress, report.tally
    assert tally is not None
    rates = " ".join(f"{rate:.3f}" for rate in tally.by_position)
    speed = progress.tokens / progress.seconds if progress.seconds else 0.0
    return (
        f"step {progress.step}: loss {report.loss:.3f}, acceptance {rates} (first of four {tally.near:.3f}), "
        f"{tally.tokens_per_pass:.3f} tokens per pass; {progress.tokens} tokens, {speed:.0f}/s"
    )
