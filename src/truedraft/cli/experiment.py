"""`truedraft experiment`: whole experiments with one command, and the page of what they found."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from truedraft.bench.arms import Arm, Order
from truedraft.bench.charts import require_png
from truedraft.bench.findings import findings
from truedraft.bench.forecast import drafter_of
from truedraft.bench.grid import PLAIN, Load, Setting, loads_of, require_positive
from truedraft.bench.profiling import Grid
from truedraft.bench.report import Report
from truedraft.bench.runs import Journal
from truedraft.build import load
from truedraft.cli import options as opt
from truedraft.cli.lists import fractions_of, integers_of
from truedraft.cli.measuring import Fleet, about, extras_of, here, measured, run, show, warnings_of
from truedraft.cli.progress import RichProgress
from truedraft.cli.prompts import prompts_of
from truedraft.drafters.heads import shipped_head
from truedraft.drafters.warm import owner_of
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.models import DEFAULT
from truedraft.outputs import require_file, require_folder
from truedraft.planning.profile import Profile
from truedraft.targets.torch_target import TorchTarget

__all__ = ["experiment"]

_HEAD = "eagle3"
_ARMS = (PLAIN, Setting("ngram", 5), Setting(_HEAD, 5), Setting(_HEAD))
_FULL = 200
"""Prompts of each load in the full experiment."""


def experiment(
    name: Annotated[str, typer.Argument(help="copy-vs-free")],
    model: opt.ModelName = DEFAULT,
    copy: Annotated[str, typer.Option("--copy", help="Prompts whose answers repeat them.")] = "copy",
    free: Annotated[str, typer.Option("--free", help="Open questions.")] = "free",
    prompts: Annotated[int, typer.Option("--prompts", help="Prompts of each load.")] = _FULL,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Cut longer prompts.")] = 512,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Most tokens of a text.")] = 128,
    batches: Annotated[str, typer.Option("--batches", help="Texts at once.")] = "1,4,16,64",
    temperatures: Annotated[str, typer.Option("--temperatures", help="0 is greedy.")] = "0,0.6",
    repeats: Annotated[int, typer.Option("--repeats", help="Times that all is run.")] = 1,
    head: Annotated[str | None, typer.Option("--head", help="Folder of an EAGLE-3 head.")] = None,
    profile: opt.ProfileFile = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the results; a run is resumed there.")] = Path(
        "experiment"
    ),
    page: Annotated[Path | None, typer.Option("--page", help="Write the page here, its plots to pictures/.")] = None,
    exact: opt.Exact = None,
    threads: opt.Threads = None,
    offline: opt.Offline = False,
) -> int:
    """Compare copying with free writing: no drafter, n-grams and a head, over batch sizes and temperatures."""
    if name != "copy-vs-free":
        raise ParameterError(f"experiment is {name!r}: expected copy-vs-free")
    require_positive(prompts=prompts, prompt_tokens=prompt_tokens, tokens=tokens, repeats=repeats)
    loads = loads_of(("copy", "free"), integers_of("batches", batches), fractions_of("temperatures", temperatures))
    require_folder("out", out)
    if page is not None:
        require_file("page", page)
    console = Console(highlight=False)
    with RichProgress(console) as progress:
        plain = load(model, progress=progress, drafter="none", exact=exact, threads=threads, offline=offline)
    fleet, notes = (
        Fleet(plain, extras_of([setting.drafter for setting in _ARMS], head=head, offline=offline)),
        list[str](),
    )
    arms = _arms(fleet, plain, head, notes)
    texts = {
        name: next(iter(prompts_of(plain.facts, [source], count=prompts, most=prompt_tokens).values()))
        for name, source in (("copy", copy), ("free", free))
    }
    known = Profile.load(profile) if profile is not None else _profile(plain, fleet, arms, loads, out, console)
    most = max(map(len, texts.values()))
    if most < _FULL:
        notes.append(f"scaled down: {most} prompts a load, {_FULL} in the full experiment")
    facts = about(
        plain,
        texts,
        files=[model, head],
        prompts=most,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        copy=copy,
        free=free,
        head=head,
    )
    order = Order((), (), tokens)
    journal = Journal(out / "journal.jsonl", facts)
    run(texts, loads, lambda _: arms, order, repeats=repeats, journal=journal, console=console)
    report = Report(facts | here(plain), journal.lines, warnings_of(texts, loads, order, repeats), known)
    report.write(out, plots=_can_plot())
    notes.append(f"prompts of {Path(copy).name} and {Path(free).name}, the first {prompt_tokens} tokens of longer ones")
    command = (
        f"truedraft experiment copy-vs-free -m {model} --prompts {prompts} --prompt-tokens {prompt_tokens} -n {tokens} "
        f"--batches {batches} --temperatures {temperatures} --repeats {repeats}"
    ) + _told(copy="" if copy == "copy" else copy, free="" if free == "free" else free, head=head, threads=threads)
    if exact is not None:
        command += " --exact" if exact else " --no-exact"
    _write(report, page or out / "findings.md", out, {"command": command, "notes": notes})
    show(report, console)
    return 1 if report.mismatches else 0


def _arms(fleet: Fleet, plain: Model, head: str | None, notes: list[str]) -> list[Arm]:
    """All, or where no head is named and none ships for the model, those without one, and a note of it.

    Whatever else is wrong with a head is raised: the experiment was asked for with it.
    """
    if head is not None or _ships_head(plain):
        return [fleet.arm(setting) for setting in _ARMS]
    notes.append(
        f"without {_HEAD}: no head ships for {plain.name}; train one with truedraft train {_HEAD}, or name its folder "
        "with --head"
    )
    return [fleet.arm(setting) for setting in _ARMS if setting.drafter != _HEAD]


def _ships_head(plain: Model) -> bool:
    target = plain.decoder.target
    assert isinstance(target, TorchTarget)
    return shipped_head(owner_of(target.model.model.config, plain.facts.tokenizer), _HEAD) is not None


def _profile(plain: Model, fleet: Fleet, arms: list[Arm], loads: list[Load], out: Path, console: Console) -> Profile:
    """The profile of an earlier try in the same folder, or a new one that reaches to the largest batch."""
    file = out / "profile.json"
    batches = tuple(sorted({1, *(load.batch for load in loads)}))
    drafters = dict.fromkeys(drafter_of(arm.name) for arm in arms)
    if file.exists():
        found = Profile.load(file)
        is_its = found.model.get("name") == plain.name and set(batches) <= set(found.batches)
        if is_its and all(map(found.knows, drafters)):
            return found
    context = min(128, (plain.facts.context_length or 4096) // 2)
    grid = Grid((context,), batches, (1, 2, 3, 6, 9, 17), tokens=6 * max(batches), repeats=3)
    models = {name: fleet.model(Setting(name)) for name in drafters}
    with console.status("measuring the machine") as status:
        found = measured(models, grid, told=lambda step: status.update(f"measuring {step}"))
    found.save(file)
    return found


def _told(**options: Any) -> str:
    """Options as they are typed, those that were given."""
    return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in options.items() if value)


def _can_plot() -> bool:
    try:
        require_png()
    except ParameterError:
        return False
    return True


def _write(report: Report, page: Path, out: Path, said: dict[str, Any]) -> None:
    """The page, and its plots in a folder beside it."""
    folder = page.parent / "pictures"
    pictures = {}
    try:
        for picture in sorted(out.glob("*.png")):
            folder.mkdir(parents=True, exist_ok=True)
            name = f"copy-vs-free-{picture.stem.replace('.', '')}.png"
            shutil.copyfile(picture, folder / name)
            pictures[picture.stem] = f"pictures/{name}"
        text = findings(report, title="Copying and free writing", pictures=pictures, **said)
        page.write_text(text, "utf-8")
    except OSError as error:
        raise ParameterError(f"page is {str(page)!r}: cannot write there ({error.strerror})") from error
