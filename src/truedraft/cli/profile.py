"""`truedraft profile`: what passes and drafts cost on this machine, kept in a small file for planning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from truedraft.bench.profiling import Grid
from truedraft.build import load, redraft
from truedraft.cli import options as opt
from truedraft.cli.lists import integers_of, names_of
from truedraft.cli.measuring import extras_of, measured
from truedraft.cli.progress import RichProgress
from truedraft.models import DEFAULT
from truedraft.outputs import require_file
from truedraft.planning.profile import Profile

__all__ = ["profile"]


def profile(
    out: Annotated[Path | None, typer.Argument(help="File to write the profile to.")] = None,
    model: opt.ModelName = DEFAULT,
    drafters: Annotated[
        str, typer.Option("--drafters", help="Drafters to time, with commas between.")
    ] = "ngram,suffix,recycle",
    draft_model: opt.DraftModel = None,
    head: opt.Head = None,
    contexts: Annotated[str, typer.Option("--contexts", help="Tokens of context.")] = "128,1024",
    batches: Annotated[str, typer.Option("--batches", help="Texts in a pass.")] = "1,2,4,8,16,32",
    widths: Annotated[str, typer.Option("--widths", help="New tokens a text.")] = "1,2,3,5,9,17,33",
    tokens: Annotated[int, typer.Option("--tokens", help="Most tokens of a pass.")] = 256,
    repeats: Annotated[int, typer.Option("--repeats", help="Times that every point is measured.")] = 7,
    dtype: opt.Dtype = "auto",
    weights: opt.Weights = "auto",
    device: opt.Device = "auto",
    exact: opt.Exact = None,
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    json_: opt.Json = False,
) -> int:
    """Measure what a pass over n tokens costs here, what drafters cost, and where verification stops being free."""
    if out is not None:
        require_file("profile", out)
    grid = Grid(
        tuple(integers_of("contexts", contexts)),
        tuple(integers_of("batches", batches)),
        tuple(integers_of("widths", widths)),
        tokens,
        repeats,
    )
    names = names_of(drafters)
    extras_of(names, head=head, draft_model=draft_model)  # what no drafter uses is said before anything is loaded
    console = Console(stderr=True, highlight=False)
    options: dict[str, Any] = {
        "dtype": dtype,
        "weights": weights,
        "device": device,
        "exact": exact,
        "threads": threads,
        "offline": offline,
    }
    with RichProgress(console) as progress:
        loaded = load(model, progress=progress, drafter="none", **options)
    models = {"none": loaded}
    for name, extras in extras_of(names, head=head, draft_model=draft_model, **options).items():
        models[name] = redraft(loaded, drafter=name, **extras)
    with console.status("measuring") as status:
        found = measured(models, grid, told=lambda step: status.update(f"measuring {step}"))
    if out is not None:
        found.save(out)
    if json_:
        print(json.dumps(found.to_json()))
    else:
        _print(found, Console(highlight=False))
    return 0


def _print(found: Profile, console: Console) -> None:
    machine = found.machine
    console.print(
        f"{found.model['name']} on {machine['device']}, {machine['threads']} threads: "
        f"{machine['bandwidth'] / 1e9:.0f} GB/s, {machine['peak'] / 1e9:.0f} GFLOP/s"
    )
    for context in found.contexts:
        widths = sorted({point.width for point in found.passes})
        table = Table("batch", *(f"n = {width}" for width in widths), title=f"ms a pass, {context} tokens of context")
        cells = {(p.batch, p.width): p.seconds for p in found.passes if p.context == context}
        for batch in found.batches:
            row = (cells.get((batch, width)) for width in widths)
            table.add_row(str(batch), *("" if seconds is None else f"{1e3 * seconds:.1f}" for seconds in row))
        console.print(table)
        console.print(f"ridge: {found.ridge(context):.1f} tokens in a pass; up to there verification is free")
    for cost in found.drafting:
        console.print(
            f"outside the pass, {cost.drafter} at batch {cost.batch}: {1e3 * cost.fixed:.2f} ms a round "
            f"and {1e3 * cost.step:.2f} ms a drafted token"
        )
