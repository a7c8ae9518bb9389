"""`truedraft find-layers`: which of a model's layers should draft for all of them, and whether that pays here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from truedraft.bench.tasks import read_prompts
from truedraft.build import load
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.drafters import layer_search
from truedraft.drafters.layer_search import Greedy, measure_costs
from truedraft.drafters.layer_skip import LayerSet, format_layers
from truedraft.drafters.warm import owner_of
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.models import DEFAULT
from truedraft.outputs import require_file
from truedraft.targets.torch_target import TorchTarget

__all__ = ["find_layers"]

_SHOWN = 8


def find_layers(
    model: opt.ModelName = DEFAULT,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    prompts: Annotated[str, typer.Option("--prompts", help="copy, free, or a JSON-lines file.")] = "free",
    count: Annotated[int, typer.Option("--count", help="How many prompts.")] = 8,
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens of each answer.")] = 64,
    least: Annotated[int, typer.Option("--least", help="Fewest layers to try.")] = 2,
    out: Annotated[Path | None, typer.Option("--out", help="Write the best set to this file, for --layers.")] = None,
    json_: opt.Json = False,
) -> int:
    """Find the layers with which a model drafts best for itself; exit code 1 if none of the sets pays."""
    for name, value in (("count", count), ("tokens", tokens), ("least", least)):
        if value < 1:
            raise ParameterError(f"{name} is {value}: expected at least 1")
    if out is not None:
        require_file("out", out)
    console = Console(stderr=json_, highlight=False)
    with RichProgress(console) as progress:
        loaded = load(
            model, progress=progress, drafter="ngram", dtype=dtype, device=device, threads=threads, offline=offline
        )
    texts = [_answered(loaded, row.text, tokens) for row in read_prompts(prompts, limit=count)]
    target: Any = loaded.decoder.target
    assert isinstance(target, TorchTarget)
    costs = measure_costs(target.model)
    with console.status("leaving out layers") as status:
        found = layer_search.find_layers(
            target.model.model, texts, costs, least=least, told=lambda each: status.update(_words(each))
        )
    owner = owner_of(target.model.model.config, loaded.facts.tokenizer)
    if out is not None:
        _write(out, {owner: found[0].to_json()})
    if json_:
        print(json.dumps({"owner": owner, "passes": costs.passes, "sets": [each.to_json() for each in found]}))
    else:
        _print(found, console)
    return 0 if (found[0].speedup or 0.0) > 1 else 1


def _answered(model: Model, text: str, tokens: int) -> Greedy:
    """The model's greedy answer to a prompt."""
    prompt: Any = [{"role": "user", "content": text}] if getattr(model.facts.tokenizer, "chat_template", None) else text
    with model.stream(prompt, max_new_tokens=tokens, ignore_eos=True) as stream:
        for _ in stream:
            pass
    return Greedy((*stream.prompts[0], *stream.result.token_ids), len(stream.prompts[0]))


def _write(path: Path, sets: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(sets, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"out is {str(path)!r}: cannot write there ({error.strerror})") from error


def _words(found: LayerSet) -> str:
    return f"{len(found.layers)} layers: agreement {found.agreement:.2f}, {found.speedup:.2f}x"


def _print(found: list[LayerSet], console: Console) -> None:
    table = Table()
    for heading in ("layers", "", "draft tokens", "agreement", "tokens per pass", "c", "speedup"):
        table.add_column(heading, justify="left" if heading == "layers" else "right")
    for each in found[:_SHOWN]:
        figures = f"{each.agreement:.3f}", f"{each.tokens_per_pass:.2f}", f"{each.cost:.2f}", f"{each.speedup:.2f}x"
        table.add_row(format_layers(each.layers), str(len(each.layers)), str(each.draft_tokens), *figures)
    console.print(table)
    if (found[0].speedup or 0.0) > 1:
        console.print(f"--drafter layer-skip --layers {format_layers(found[0].layers)} pays", style="bold green")
    else:
        console.print("layer skip cannot pay here: no set saves more than its drafts cost", style="bold yellow")
