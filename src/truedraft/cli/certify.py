"""`truedraft certify`: evidence that a drafter, a rule and sampling parameters leave the target's text as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from truedraft.bench.tasks import read_prompts
from truedraft.build import load
from truedraft.certify.checks import Examination, examine, names
from truedraft.certify.report import Certificate
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.models import DEFAULT
from truedraft.outputs import require_file
from truedraft.request import Parameters
from truedraft.verify.mutants import mutant_named

__all__ = ["certify"]


def certify(
    model: opt.ModelName = DEFAULT,
    drafter: opt.DrafterName = opt.DEFAULT_DRAFTER,
    draft_model: opt.DraftModel = None,
    translate: opt.Translate = None,
    draft_tokens: opt.DraftTokens = None,
    tree: opt.TreeShape = None,
    share: opt.Share = False,
    memory: opt.Memory = None,
    layers: opt.Layers = None,
    head: opt.Head = None,
    rule: opt.RuleName = "auto",
    dtype: opt.Dtype = "auto",
    weights: opt.Weights = "auto",
    device: opt.Device = "auto",
    exact: opt.Exact = None,
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    prompts: Annotated[str, typer.Option("--prompts", help="copy, free, or a JSON-lines file.")] = "copy",
    count: Annotated[int, typer.Option("--count", help="How many prompts.")] = 6,
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens of each compared text.")] = 64,
    draws: Annotated[int, typer.Option("--draws", help="Draws for the test of the first tokens' law.")] = 2000,
    temperature: opt.Temperature = 1.0,
    top_p: opt.TopP = 1.0,
    min_p: opt.MinP = 0.0,
    repetition_penalty: opt.RepetitionPenalty = 1.0,
    mutant: Annotated[str | None, typer.Option("--mutant", help="Examine this known fault instead.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report to this file as a page.")] = None,
    json_: opt.Json = False,
) -> int:
    """Examine losslessness on your own model; exit code 1 if it is refuted."""
    for name, value, least in (("count", count, 1), ("tokens", tokens, 1), ("draws", draws, 100)):
        if value < least:
            raise ParameterError(f"{name} is {value}: expected at least {least}")
    if html is not None:
        require_file("html", html)
    fault = None if mutant is None else mutant_named(mutant)
    rows = read_prompts(prompts, limit=count)
    console = Console(stderr=json_, highlight=False)
    with RichProgress(console) as progress:
        loaded = load(
            model,
            progress=progress,
            drafter=drafter,
            draft_model=draft_model,
            translate=translate,
            draft_tokens=draft_tokens,
            tree=tree,
            share=share,
            memory=memory,
            layers=layers,
            head=head,
            rule=rule,
            dtype=dtype,
            weights=weights,
            device=device,
            exact=exact,
            threads=threads,
            offline=offline,
        )
    parameters = Parameters(
        temperature=temperature, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty, max_new_tokens=tokens
    )
    texts = [_prompt(loaded, row.text) for row in rows]
    what = Examination(loaded, texts, parameters, tokens=tokens, draws=draws, mutant=fault)
    certificate = _watched(what, console)
    if html is not None:
        _write(html, certificate)
    if json_:
        print(json.dumps(certificate.to_json(), ensure_ascii=False))
    else:
        _print(certificate, console)
    return 0 if certificate.lossless else 1


def _prompt(model: Model, text: str) -> Any:
    if getattr(model.facts.tokenizer, "chat_template", None):
        return [{"role": "user", "content": text}]
    return text


def _watched(what: Examination, console: Console) -> Certificate:
    """Run the checks behind a bar that names them."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed} of {task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=len(list(names())))
        done = -1

        def told(name: str) -> None:
            nonlocal done
            done += 1
            progress.update(task, description=name, completed=done)

        return examine(what, told=told)


def _write(path: Path, certificate: Certificate) -> None:
    try:
        path.write_text(certificate.to_html(), encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"html is {str(path)!r}: cannot write there ({error.strerror})") from error


def _print(certificate: Certificate, console: Console) -> None:
    table = Table(title=" · ".join(f"{name} {value}" for name, value in certificate.subject.items()))
    for heading in ("check", "outcome", "finding", "s"):
        table.add_column(heading, justify="right" if heading == "s" else "left")
    styles = {True: "green", False: "bold red", None: "dim"}
    for check in certificate.checks:
        style = styles[check.passed]
        table.add_row(check.name, f"[{style}]{check.outcome}[/]", check.finding, f"{check.seconds:.1f}")
    console.print(table)
    console.print(certificate.verdict, style="bold green" if certificate.lossless else "bold red")
