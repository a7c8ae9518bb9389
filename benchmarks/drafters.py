"""All drafters in one table: acceptance by position, tokens per pass, cost of a draft step, speed over plain decoding.

    python benchmarks/drafters.py --out runs/drafters.jsonl                              # the prompts that ship
    python benchmarks/drafters.py --out runs/drafters.jsonl --data FOLDER --prompts 10   # vicuna, Spec-Bench, code
    python benchmarks/drafters.py --out runs/drafters.jsonl --data FOLDER --seconds 600  # go on for ten minutes
    python benchmarks/drafters.py --out runs/half.jsonl --weights float16 --data FOLDER   # one file a kind of weights
    python benchmarks/drafters.py --out runs/drafters.jsonl --report --json table.json   # tables of what is there

All arms answer a prompt before the next prompt begins, in an order that rotates, on the same weights with a cache of
their own. Every answer is a line of --out; what is there already is not run again, so a run can be stopped and
continued. An arm is a drafter's name and options, such as merge, merge:tree=32 or model:draft_model=FOLDER; the default
is every drafter of the catalogue that loads without options. Of drafters that share, the order of prompts matters.

speedup is plain decoding's seconds a token over the arm's, without each answer's first round, which reads the prompt;
whole includes it. Both are ratios of totals over the prompts that all arms have answered. c is the seconds of one level
of drafting over those of one plain pass, again without first rounds. At temperature 0 the token ids are compared with
plain decoding's.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from truedraft.bench.runs import in_turn
from truedraft.bench.tasks import TaskPrompt, read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import DRAFTERS, Kit, Options, assemble, load, parse_shape
from truedraft.errors import TruedraftError
from truedraft.model import Model
from truedraft.verify.auto import rule_named

PLAIN = "none"
SPEC_BENCH = ("translation", "summarization", "qa", "math_reasoning", "rag")
CODE = ("code_edit", "code_fix")
POSITIONS = 5

Row = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A prompt of a task."""

    task: str
    prompt: TaskPrompt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a line an answer is appended to this file")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="auto", help="of the target: float16, bfloat16, int8 or int4 round them")
    parser.add_argument("--arms", nargs="+", default=None, help="the first, none, is always there")
    parser.add_argument("--data", type=Path, default=None, help="folder of vicuna_bench, spec_bench and copy_heavy")
    parser.add_argument("--tasks", nargs="+", default=None, help="only these")
    parser.add_argument("--prompts", type=int, default=5, help="of each task")
    parser.add_argument("--longest", type=int, default=4000, help="characters; longer prompts are left out")
    parser.add_argument("--tokens", type=int, default=128, help="most tokens an answer")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.6])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no prompt after so many")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--json", type=Path, default=None, help="write the table to this file")
    args = parser.parse_args()

    console = Console()
    if not args.report:
        run(args, console)
    rows = read(args.out)
    report = {title: summary(rows, tasks, temperature) for title, tasks, temperature in groups(rows)}
    for title, lines in report.items():
        console.print(table(title, lines))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    differing = [
        f"{title}: {name}" for title, lines in report.items() for name, line in lines.items() if line["differing"]
    ]
    for each in differing:
        console.print(f"not all token ids are plain decoding's: {each}", style="bold red")
    return int(bool(differing))


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


def run(args: argparse.Namespace, console: Console) -> None:
    """Answer what is not answered yet, until the time is up."""
    if args.threads:
        torch.set_num_threads(args.threads)
    end = time.monotonic() + args.seconds
    base = load(args.model, drafter=PLAIN, batch=1, weights=args.weights)
    models = dict(arms(base, args.arms, console))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = {key(row) for row in read(args.out)}
    warm_up(models.values())
    with args.out.open("a", encoding="utf-8") as file:
        for turn, (temperature, question) in enumerate(work(args)):
            for name in in_turn(list(models), turn):
                row = {
                    "task": question.task,
                    "id": question.prompt.id,
                    "temperature": temperature,
                    "arm": name,
                    "tokens": args.tokens,
                }
                if time.monotonic() > end:
                    return
                if key(row) not in done:
                    row |= answer(models[name], question.prompt.text, args.tokens, temperature)
                    file.write(json.dumps(row) + "\n")
                    file.flush()


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("task", "id", "temperature", "arm", "tokens"))


def work(args: argparse.Namespace) -> Iterator[tuple[float, Question]]:
    """Prompts of all tasks in turn, so that every beginning is a fair sample."""
    tasks = [list(each) for name, each in questions(args) if args.tasks is None or name in args.tasks]
    for place in range(args.prompts):
        for temperature in args.temperatures:
            yield from ((temperature, task[place]) for task in tasks if place < len(task))


def questions(args: argparse.Namespace) -> Iterator[tuple[str, Iterable[Question]]]:
    """Every task's prompts in a fixed random order."""
    if args.data is None:
        sources = {name: read_prompts(name) for name in ("free", "copy")}
    else:
        spec = read_prompts(args.data / "spec_bench.jsonl")
        code = read_prompts(args.data / "copy_heavy.jsonl")
        sources = {"vicuna": read_prompts(args.data / "vicuna_bench.jsonl")}
        sources |= {name: [row for row in spec if row.category == name] for name in SPEC_BENCH}
        sources["mt_bench"] = [row for row in spec if row.category not in SPEC_BENCH]
        sources |= {name: [row for row in code if row.category == name] for name in CODE}
    for name, rows in sources.items():
        fitting = [row for row in rows if len(row.text) <= args.longest]
        random.Random(0).shuffle(fitting)
        yield name, [Question(name, row) for row in fitting]


def arms(base: Model, wanted: Sequence[str] | None, console: Console) -> Iterator[tuple[str, Model]]:
    """The models to compare; those that cannot be loaded are told and left out."""
    names = list(DRAFTERS) if wanted is None else [PLAIN, *(name for name in wanted if name != PLAIN)]
    for name in names:
        try:
            yield name, arm(base, name)
        except TruedraftError as error:
            console.print(f"without {name}: {error}", style="dim")


def arm(base: Model, name: str) -> Model:
    """A model with its own cache and drafter on the weights of another."""
    drafter, _, settings = name.partition(":")
    given = dict(part.split("=", 1) for part in settings.split(",") if part)
    options = Options.of({"drafter": drafter, "batch": 1, **{each: parsed(value) for each, value in given.items()}})
    target: Any = base.decoder.target
    own = target.model.fork()
    kit = Kit(options, own, base.facts)
    shape = parse_shape(options.draft_tokens, options.tree)
    return replace(assemble(kit, rule_named(options.rule), shape, name=base.name), batch=1)


def parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def warm_up(models: Iterable[Model]) -> None:
    for model in models:
        model.generate("One, two, three, one, two,", max_new_tokens=8)


def answer(model: Model, text: str, tokens: int, temperature: float) -> Row:
    """One answer and what it took."""
    return answer_ids(model, ids_of(model.facts, text), tokens, temperature)


def answer_ids(model: Model, prompt: Sequence[int], tokens: int, temperature: float) -> Row:
    """The same for token ids; end tokens are ignored, so that all answers are equally long."""
    options = {"max_new_tokens": tokens, "temperature": temperature, "seed": 0, "ignore_eos": True}
    levels, drafting, first = 0, 0.0, None
    start = time.perf_counter()
    with model.stream(prompt, **options) as stream:
        for chunk in stream:
            if first is None:
                first, after_first = chunk.round.emitted, time.perf_counter()
            else:
                levels += max(chunk.round.draft.tree.depth)
                drafting += chunk.round.timings.draft
        seconds = time.perf_counter() - start
        counts, ids = stream.result.statistics, stream.result.token_ids
    return {
        "seconds": seconds,
        "decode_seconds": seconds - (after_first - start),
        "decode_tokens": len(ids) - (first or 0),
        "emitted": counts.emitted,
        "rounds": counts.rounds,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "levels": levels,
        "tried": counts.tried,
        "hits": counts.hits,
        "draft_seconds": drafting,
        "target_seconds": counts.timings.target,
        "prompt_tokens": len(stream.prompts[0]),
        "ids": ids,
    }


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, Collection[str], float]]:
    """Title, tasks and temperature of every table: each task alone, and Spec-Bench's six together."""
    for temperature in sorted({row["temperature"] for row in rows}):
        tasks = sorted({row["task"] for row in rows if row["temperature"] == temperature})
        for task in tasks:
            yield f"{task} T={temperature:g}", [task], temperature
        if set(tasks) >= {*SPEC_BENCH, "mt_bench"}:
            yield f"spec_bench T={temperature:g}", [*SPEC_BENCH, "mt_bench"], temperature


def summary(rows: Sequence[Row], tasks: Collection[str], temperature: float) -> dict[str, Row]:
    """Per arm, over the prompts of these tasks that every arm has answered."""
    by_arm: dict[str, dict[Any, Row]] = defaultdict(dict)
    for row in rows:
        if row["task"] in tasks and row["temperature"] == temperature:
            by_arm[row["arm"]][row["task"], row["id"], row["tokens"]] = row
    common = set.intersection(*(set(each) for each in by_arm.values()))
    answered = {name: [each[one] for one in sorted(common)] for name, each in by_arm.items()}
    if not common or PLAIN not in answered:
        return {}
    plain = answered[PLAIN]
    return {name: line(each, plain, greedy=temperature == 0) for name, each in answered.items()}


def line(rows: Sequence[Row], plain: Sequence[Row], *, greedy: bool) -> Row:
    """One arm against plain decoding."""
    total = {name: sum(row[name] for row in rows) for name in rows[0] if isinstance(rows[0][name], int | float)}
    tried, hits = (columns(row[name] for row in rows) for name in ("tried", "hits"))
    hits += [0] * (len(tried) - len(hits))
    a_pass = per(plain, "decode_seconds", "decode_tokens")
    return {
        "prompts": len(rows),
        "tokens_per_pass": total["emitted"] / total["rounds"],
        "acceptance_by_position": [hit / count for hit, count in zip(hits, tried, strict=True) if count],
        "acceptance_rate": total["accepted"] / total["drafted"] if total["drafted"] else 0.0,
        "drafted_per_pass": total["drafted"] / total["rounds"],
        "c": total["draft_seconds"] / total["levels"] / a_pass if total["levels"] else 0.0,
        "tokens_per_second": total["decode_tokens"] / total["decode_seconds"],
        "speedup": a_pass / per(rows, "decode_seconds", "decode_tokens"),
        "whole": sum(row["seconds"] for row in plain) / total["seconds"],
        "differing": sum(row["ids"] != other["ids"] for row, other in zip(rows, plain, strict=True)) if greedy else 0,
    }


def per(rows: Sequence[Row], seconds: str, tokens: str) -> float:
    return sum(row[seconds] for row in rows) / sum(row[tokens] for row in rows)


def columns(lists: Iterable[Sequence[int]]) -> list[int]:
    """Sums by place."""
    sums: list[int] = []
    for each in lists:
        sums += [0] * (len(each) - len(sums))
        for place, value in enumerate(each):
            sums[place] += value
    return sums


def table(title: str, lines: dict[str, Row]) -> Table:
    prompts = next(iter(lines.values()))["prompts"] if lines else 0
    shown = Table(title=f"{title}, {prompts} prompts")
    headings = ("", "acceptance by position", "tokens/pass", "nodes", "c", "tokens/s", "speedup", "whole")
    for heading in headings:
        shown.add_column(heading, justify="right" if heading else "left")
    for name, row in sorted(lines.items(), key=lambda pair: -pair[1]["speedup"]):
        rates = " ".join(f"{rate:.2f}"[1:] if rate < 1 else "1" for rate in row["acceptance_by_position"][:POSITIONS])
        shown.add_row(
            name,
            rates,
            f"{row['tokens_per_pass']:.2f}",
            f"{row['drafted_per_pass']:.1f}",
            f"{row['c']:.3f}",
            f"{row['tokens_per_second']:.1f}",
            f"{row['speedup']:.2f}x",
            f"{row['whole']:.2f}x",
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
