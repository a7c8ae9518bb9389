"""`truedraft fill-memory`: a file of what a model says, from its own answers, so that recycling starts warm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from truedraft.build import load
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.drafters.count_file import save_table
from truedraft.drafters.count_table import CountTable
from truedraft.drafters.replay import Exchange, ask_after_tokens, rare_contexts, replay
from truedraft.drafters.warm import owner_of
from truedraft.errors import ParameterError
from truedraft.models import DEFAULT
from truedraft.outputs import require_file
from truedraft.training.rows import read_answers

__all__ = ["fill_memory"]

_ANSWERS = "JSON-lines files with prompt_ids and answer_ids, such as truedraft answers writes."


def fill_memory(
    answers: Annotated[list[Path], typer.Argument(help=_ANSWERS)],
    out: Annotated[Path, typer.Option("--out", help="The file to write, for --memory.")],
    model: opt.ModelName = DEFAULT,
    most: Annotated[int | None, typer.Option("--most", help="Most answer tokens to read.")] = None,
    rows: Annotated[int, typer.Option("--rows", help="Contexts to remember; about 24 bytes each.")] = 1 << 18,
    rare: Annotated[bool, typer.Option("--rare", help="Keep long contexts that occur once.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens/--no-tokens", help="Ask what follows each token.")] = True,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    offline: opt.Offline = False,
) -> int:
    """Let a model read its own answers again and keep what it says, for --drafter recycle --memory FILE."""
    if rows < 4 or (most is not None and most < 1):
        raise ParameterError(f"rows is {rows} and most {most}: expected at least 4 and at least 1")
    require_file("out", out)
    console = Console(stderr=True, highlight=False)
    exchanges = list(_read(answers, most, console))
    with RichProgress(console) as progress:
        said = {"dtype": dtype, "device": device, "threads": threads, "offline": offline}
        loaded = load(model, progress=progress, drafter="none", exact=False, **said)
    target: Any = loaded.decoder.target
    table = CountTable(rows, target.model.vocab_size)
    total = sum(len(answer) for _, answer in exchanges)
    with console.status("reading") as status:
        replay(
            target.model,
            exchanges,
            table,
            without=() if rare else rare_contexts(exchanges),
            told=lambda tokens: status.update(f"{tokens:,} of {total:,} tokens, {len(table):,} contexts"),
        )
        if tokens:
            status.update("asking what follows each token")
            ask_after_tokens(target.model, exchanges[0][0], table)
    table.sightings = 0
    save_table(table, out, owner=owner_of(target.model.model.config, loaded.facts.tokenizer))
    print(f"{out}: {len(table)} contexts from {total} tokens, {out.stat().st_size} bytes")
    return 0


def _read(paths: list[Path], most: int | None, console: Console) -> list[Exchange]:
    """The exchanges of all files, up to so many tokens of answers."""
    found: list[Exchange] = []
    left = most
    for path in paths:
        rows, broken = read_answers(path)
        if broken.count:
            console.print(f"{path}: {broken}", style="dim")
        for row in rows:
            if left is not None and left <= 0:
                return found
            found.append((row.prompt_ids, row.answer_ids))
            left = None if left is None else left - len(row.answer_ids)
    return found
