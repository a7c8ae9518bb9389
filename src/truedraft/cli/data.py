"""`truedraft data`: a model's own answers to prompts, to train a drafter on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from truedraft.build import load
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.drafters.warm import owner_of
from truedraft.errors import ParameterError
from truedraft.models import DEFAULT, resolve
from truedraft.outputs import require_folder
from truedraft.targets.load import load_model
from truedraft.training.answers import Author, Task, statistics, write_answers
from truedraft.training.rows import read_prompts
from truedraft.training.teacher import Teacher

__all__ = ["data"]


def data(
    prompts: Annotated[Path, typer.Argument(help="Prompts, a JSON object a line: prompt, messages or turns.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the shards; an interrupted run goes on there.")],
    model: opt.ModelName = DEFAULT,
    temperature: Annotated[list[float] | None, typer.Option("--temperature", "-t", help="Repeat: in turns.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the first prompt; each one's is one more.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first so many prompts.")] = None,
    max_new_tokens: opt.MaxNewTokens = 256,
    longest: Annotated[int, typer.Option("--longest", help="Prompts of more tokens are left out.")] = 400,
    shard: Annotated[int, typer.Option("--shard", help="Prompts a file.")] = 256,
    batch: opt.Batch = 64,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    given: Annotated[bool, typer.Option("--given", help="Keep the answers that the file has.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A broken row is an error.")] = False,
) -> int:
    """Have the model answer prompts; tokens, temperature and seed of every answer are kept."""
    if limit is not None and limit < 1:
        raise ParameterError(f"limit is {limit}: expected at least 1")
    task = Task(tuple(temperature or [0.0]), seed, max_new_tokens, longest, shard)
    require_folder("out", out)
    console = Console(highlight=False)
    rows, broken = read_prompts(prompts, strict=strict, given=given)
    if broken.count:
        console.print(str(broken), markup=False, soft_wrap=True)
    rows = rows[:limit]
    with RichProgress(console) as progress:
        weights = _fingerprint(resolve(model, progress=progress, offline=offline))
        options = {"dtype": dtype, "device": device, "threads": threads, "offline": offline}
        loaded = load(model, progress=progress, drafter="none", batch=batch, exact=False, **options)
    target: Any = loaded.decoder.target
    owner = owner_of(target.model.model.config, loaded.facts.tokenizer)
    author = Author(owner, weights, str(target.model.dtype).removeprefix("torch."))
    began = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        bar = bars.add_task("answers", total=len(rows))
        left_out = write_answers(loaded, rows, out, task, author=author, report=lambda count: bars.advance(bar, count))
    found = statistics(out, seconds=time.perf_counter() - began)
    console.print(
        f"{found['rows']} answers of {found['answer_tokens']} tokens in {out}; {left_out} prompts left out as too long",
        soft_wrap=True,
        markup=False,
    )
    return 0


def _fingerprint(folder: Path) -> int:
    """Of a model's weights as they are in its folder: one that is to answer has layers replaced by faster ones."""
    return Teacher(load_model(folder, dtype="bfloat16", device="cpu").model, ()).fingerprint
