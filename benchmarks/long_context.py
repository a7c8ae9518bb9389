"""What speculation costs and yields behind long contexts: passes over N nodes, drafters on prompts of up to 8k tokens.

    python benchmarks/long_context.py                                   # about twenty minutes on two cores
    python benchmarks/long_context.py --contexts 1000 --rounds 3 --prompts 1 --tokens 32
    python benchmarks/long_context.py --passes-only --json long.json

First table: milliseconds of one pass over trees of N nodes behind a context, and their ratio to one node. The keys and
values of the context are read once for all nodes, so the ratio grows far slower than N. Second table: texts to copy and
edit that stand at the end of a long prompt made of others; tokens per pass and speed against plain decoding, prompts
read beforehand, and the microseconds of a proposal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from drafters import answer_ids, arms, line, warm_up
from rich.console import Console
from rich.table import Table

from truedraft.bench.runs import in_turn
from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import load
from truedraft.model import Model
from truedraft.targets.cached import CachedModel, Nodes

KEY = "text"
NODES = (1, 2, 4, 8, 16, 32)
WIDTH = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[1000, 4000, 8000])
    parser.add_argument("--rounds", type=int, default=9, help="passes of each kind")
    parser.add_argument("--passes-only", action="store_true", help="leave out the second table")
    parser.add_argument("--arms", nargs="+", default=["ngram", "suffix", "merge"])
    parser.add_argument("--prompts", type=int, default=3, help="of each context")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    console = Console()
    base = load(args.model, drafter="none", batch=1)
    target: Any = base.decoder.target
    report: dict[str, Any] = {"passes": {}, "drafters": {}}
    for context in args.contexts:
        report["passes"][context] = passes(target.model, context, args.rounds)
    console.print(passes_table(report["passes"]))
    if not args.passes_only:
        models = dict(arms(base, args.arms, console))
        warm_up(models.values())
        for context in args.contexts:
            report["drafters"][context] = yields(models, context, args)
            console.print(yields_table(context, report["drafters"][context]))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def tree(nodes: int) -> Nodes:
    """A tree in which every node has up to three children."""
    return Nodes(tuple(5 + node for node in range(nodes)), tuple((node - 1) // WIDTH for node in range(nodes)))


def passes(model: CachedModel, context: int, rounds: int) -> dict[int, float]:
    """Median milliseconds by number of nodes; the context is cut where the model's own ends."""
    if model.context_length is not None:
        context = min(context, model.context_length - max(NODES))
    model.require(1, context + max(NODES))
    model.read(KEY, [3 + (31 * place) % 997 for place in range(context)])
    seconds: dict[int, list[float]] = {nodes: [] for nodes in NODES}
    for _ in range(rounds + 1):
        for nodes in NODES:
            start = time.perf_counter()
            model.extend([KEY], [tree(nodes)])
            seconds[nodes].append(time.perf_counter() - start)
            model.rewind(KEY, context)
    model.release(KEY)
    return {nodes: 1000 * statistics.median(each[1:]) for nodes, each in seconds.items()}


def yields(models: dict[str, Model], context: int, args: argparse.Namespace) -> dict[str, Any]:
    """Per arm, on prompts of about so many tokens."""
    rows: dict[str, list[Any]] = {name: [] for name in models}
    prompts = long_prompts(next(iter(models.values())), context, args.prompts, args.tokens)
    for place, prompt in enumerate(prompts):
        for name in in_turn(list(models), place):
            rows[name].append(answer_ids(models[name], prompt, args.tokens, 0.0))
    plain = rows["none"]
    found = {name: line(each, plain, greedy=True) for name, each in rows.items()}
    for name, each in rows.items():
        rounds = sum(row["rounds"] - 1 for row in each)  # the first one reads the prompt
        found[name]["us_per_proposal"] = 1e6 * sum(row["draft_seconds"] for row in each) / max(1, rounds)
        found[name]["prompt_tokens"] = statistics.fmean(row["prompt_tokens"] for row in each)
    return found


def long_prompts(model: Model, context: int, count: int, tokens: int) -> list[list[int]]:
    """Prompts that end with a text to edit, behind as many others as fit."""
    limit = model.facts.context_length
    room = context if limit is None else min(context, limit - tokens - 1)
    texts = [row.text for row in read_prompts("copy")]
    prompts = []
    for place in range(count):
        question = texts[place % len(texts)]
        before = [texts[(place + 1 + each) % len(texts)] for each in range(10 * len(texts))]
        best = list(ids_of(model.facts, question))
        for length in range(1, len(before)):
            longer = list(ids_of(model.facts, "\n\n".join([*before[:length], question])))
            if len(longer) > room:
                break
            best = longer
        prompts.append(best)
    return prompts


def passes_table(figures: dict[int, dict[int, float]]) -> Table:
    shown = Table(title="one pass over a tree: milliseconds, and in passes of one node")
    shown.add_column("context", justify="right")
    for nodes in NODES:
        shown.add_column(f"{nodes}", justify="right")
    for context, row in figures.items():
        shown.add_row(f"{context}", *(f"{row[nodes]:.0f} ({row[nodes] / row[1]:.2f})" for nodes in NODES))
    return shown


def yields_table(context: int, figures: dict[str, Any]) -> Table:
    shown = Table(title=f"about {context} tokens of prompt")
    for heading in ("", "prompt", "tokens/pass", "speedup", "us/proposal", "same ids"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, row in figures.items():
        shown.add_row(
            name,
            f"{row['prompt_tokens']:.0f}",
            f"{row['tokens_per_pass']:.2f}",
            f"{row['speedup']:.2f}x",
            f"{row['us_per_proposal']:.0f}",
            "no" if row["differing"] else "yes",
        )
    return shown


if __name__ == "__main__":
    main()
