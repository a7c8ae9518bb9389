"""`truedraft bench`: drafters, shapes and rules on a load of one's own, against plain decoding and other engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from transformers import AutoModelForCausalLM

from truedraft.bench.against import TransformersArm, transformers_arms
from truedraft.bench.arms import Arm, Order
from truedraft.bench.charts import require_png
from truedraft.bench.endpoint import EndpointArm, served_model
from truedraft.bench.grid import Load, loads_of, require_positive, settings_of
from truedraft.bench.machine import clock_of
from truedraft.bench.report import Report
from truedraft.bench.runs import Journal
from truedraft.build import load
from truedraft.build.options import USERS
from truedraft.cli import options as opt
from truedraft.cli.lists import fractions_of, integers_of, names_of
from truedraft.cli.measuring import Fleet, about, extras_of, here, run, show, warnings_of
from truedraft.cli.progress import RichProgress
from truedraft.cli.prompts import prompts_of
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.models import DEFAULT, resolve
from truedraft.outputs import require_folder
from truedraft.planning.profile import Profile
from truedraft.targets.torch_target import TorchTarget

__all__ = ["bench"]

_GRID, _LOAD = "What to compare", "Under what load"


def bench(
    model: opt.ModelName = DEFAULT,
    drafters: Annotated[str, typer.Option("--drafters", "-d", help="With commas.", rich_help_panel=_GRID)] = "ngram",
    draft_model: opt.DraftModel = None,
    head: Annotated[str | None, typer.Option("--head", help="Folder of a head.", rich_help_panel=_GRID)] = None,
    draft_tokens: Annotated[
        str | None, typer.Option("--draft-tokens", "-k", help="Lengths of chains: 2,4,8", rich_help_panel=_GRID)
    ] = None,
    trees: Annotated[str | None, typer.Option("--trees", help="Trees: 3x2x1,16", rich_help_panel=_GRID)] = None,
    rules: Annotated[str, typer.Option("--rules", help="Acceptance rules.", rich_help_panel=_GRID)] = "auto",
    policies: Annotated[
        str, typer.Option("--policies", help="fixed, and auto: what pays by past rounds.", rich_help_panel=_GRID)
    ] = "fixed",
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", help="And draft tokens by batch: [[1, 4, 5], [5, 99, 0]]", rich_help_panel=_GRID),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="transformers: its own generation too.", rich_help_panel=_GRID)
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Address of another engine's server.", rich_help_panel=_GRID)
    ] = None,
    tasks: Annotated[
        str, typer.Option("--tasks", help="copy, free, or JSON-lines files.", rich_help_panel=_LOAD)
    ] = "copy,free",
    category: Annotated[
        str | None, typer.Option("--category", help="Only prompts of this one.", rich_help_panel=_LOAD)
    ] = None,
    prompts: Annotated[int, typer.Option("--prompts", help="Prompts of each task.", rich_help_panel=_LOAD)] = 8,
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", help="Cut longer prompts.", rich_help_panel=_LOAD)
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Most tokens of a text.", rich_help_panel=_LOAD)] = 64,
    fixed_length: Annotated[
        bool, typer.Option("--fixed-length", help="Write on past a text's own end.", rich_help_panel=_LOAD)
    ] = False,
    batches: Annotated[str, typer.Option("--batches", help="Texts at once: 1,4,16", rich_help_panel=_LOAD)] = "1",
    temperatures: Annotated[
        str, typer.Option("--temperatures", help="0 is greedy: 0,0.6", rich_help_panel=_LOAD)
    ] = "0",
    repeats: Annotated[int, typer.Option("--repeats", help="Times that all is run.", rich_help_panel=_LOAD)] = 3,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Of this machine: drafters bet by it, and every cell is foretold.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the results; a run is resumed there.")] = Path("bench"),
    plots: Annotated[bool, typer.Option("--plots", help="Draw PNG files too (needs Matplotlib).")] = False,
    exact: opt.Exact = None,
    dtype: opt.Dtype = "auto",
    weights: opt.Weights = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    json_: opt.Json = False,
) -> int:
    """Measure drafters on your own load; exit code 1 if greedy texts differ from plain decoding's."""
    require_positive(prompts=prompts, prompt_tokens=prompt_tokens, tokens=tokens, repeats=repeats)
    sizes, degrees = integers_of("batches", batches), fractions_of("temperatures", temperatures)
    loads_of(names_of(tasks), sizes, degrees)  # what is no list of loads is said before anything is loaded
    require_folder("out", out)
    if plots:
        require_png()
    if against not in (None, "transformers"):
        raise ParameterError(f"against is {against!r}: expected transformers")
    names = names_of(drafters)
    # Alone with --against it is the assistant of theirs.
    drafting = None if against is not None and not set(names) & set(USERS["draft_model"]) else draft_model
    extras_of(names, head=head, draft_model=drafting)  # what no drafter uses is said before anything is loaded
    settings = settings_of(
        names,
        draft_tokens=integers_of("draft_tokens", draft_tokens) if draft_tokens else (),
        trees=names_of(trees or ""),
        rules=names_of(rules),
        policies=[*("" if name == "fixed" else name for name in names_of(policies)), *([schedule] if schedule else [])],
    )
    console = Console(stderr=json_, highlight=False)
    known = None if profile is None else Profile.load(profile)
    with RichProgress(console) as progress:
        plain = load(
            model,
            progress=progress,
            drafter="none",
            exact=exact,
            dtype=dtype,
            weights=weights,
            device=device,
            threads=threads,
            offline=offline,
        )
    loading = {"dtype": dtype, "weights": weights, "device": device, "offline": offline, "profile": profile}
    fleet = Fleet(plain, extras_of(names, head=head, draft_model=drafting, **loading), known)
    own: list[Arm] = [fleet.arm(setting) for setting in settings]
    others: list[Arm] = (
        [] if endpoint is None else [EndpointArm(endpoint.rstrip("/"), served_model(endpoint.rstrip("/")))]
    )
    theirs = [] if against is None else _transformers(plain, model, draft_model, offline)
    texts = prompts_of(plain.facts, names_of(tasks), count=prompts, category=category, most=prompt_tokens)
    loads = loads_of(list(texts), sizes, degrees)
    order = Order((), (), tokens, fixed_length=fixed_length)
    facts = about(
        plain,
        texts,
        files=[model, draft_model, head, profile],
        dtype=dtype,
        weights=weights,
        device=device,
        tasks=list(texts),
        prompts=prompts,
        tokens=tokens,
        fixed_length=fixed_length,
        category=category,
        prompt_tokens=prompt_tokens,
        draft_model=draft_model,
        head=head,
        endpoint=endpoint,
        settings=[str(setting) for setting in settings],
    )
    journal = Journal(out / "journal.jsonl", facts)

    def arms(load_: Load) -> list[Arm]:
        return [*own, *(arm for arm in theirs if not arm.options or load_.batch == 1), *others]

    run(texts, loads, arms, order, repeats=repeats, journal=journal, console=console)
    warnings = warnings_of(texts, loads, order, repeats)
    if theirs and weights != "auto":
        warnings.append(f"transformers multiplies by the weights as they are stored, not by {weights} ones")
    report = Report(facts | here(plain), journal.lines, warnings, known)
    report.write(out, plots=plots)
    if json_:
        print(json.dumps(report.to_json()))
    else:
        show(report, console)
        console.print(f"report: {out / 'report.html'}", markup=False, soft_wrap=True)
    return 1 if report.mismatches else 0


def _transformers(plain: Model, model: str, draft_model: str | None, offline: bool) -> list[TransformersArm]:
    """The arms of transformers, on the same weights as it loads them itself, in the same type and place."""
    target = plain.decoder.target
    assert isinstance(target, TorchTarget)
    dtype, device = target.model.dtype, target.model.device

    def loaded(name: str) -> Any:
        found: Any = AutoModelForCausalLM.from_pretrained(resolve(name, offline=offline), dtype=dtype)
        return found.to(device).eval()

    assistant = None if draft_model is None else loaded(draft_model)
    return transformers_arms(loaded(model), assistant=assistant, clock=clock_of(device))
