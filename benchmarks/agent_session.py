"""An agent at work on the same files, turn after turn: tokens per pass as the shared indexes fill.

    python benchmarks/agent_session.py                                         # the files that ship, about half an hour
    python benchmarks/agent_session.py --data copy_heavy.jsonl --category code_fix
    python benchmarks/agent_session.py --files 2 --turns 3 --tokens 48 --json session.json

Every turn asks for each of the files once more, with another wish, in a request of its own: nothing of the turns before
is in its prompt. What a turn's answers share with those of earlier turns only a drafter that remembers them can know.
All arms answer a request one after another, in an order that rotates; the first turn fills the indexes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from drafters import answer, arms, line, warm_up
from rich.console import Console
from rich.progress import track
from rich.table import Table

from truedraft.bench.runs import in_turn
from truedraft.bench.tasks import read_prompts
from truedraft.build import load

ARMS = ["ngram", "suffix", "suffix:share=true", "recycle", "recycle:share=true", "merge:share=true"]

WISHES = (
    "Write out the whole file.",
    "Add a docstring as well, and write out the whole file.",
    "Use clearer names for variables, and write out the whole file.",
    "Add type hints as well, and write out the whole file.",
    "Check the arguments first, and write out the whole file.",
    "Add a short comment above each step, and write out the whole file.",
    "Make it shorter where you can, and write out the whole file.",
    "Add one example of its use at the end, and write out the whole file.",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--data", default="copy", help="a shipped set or a JSON-lines file of code to edit")
    parser.add_argument("--category", default=None, help="only rows of this category")
    parser.add_argument("--arms", nargs="+", default=ARMS, help="the first, none, is always there")
    parser.add_argument("--files", type=int, default=5)
    parser.add_argument("--turns", type=int, default=len(WISHES))
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    console = Console()
    files = [row.text for row in read_prompts(args.data, limit=args.files, category=args.category)]
    models = dict(arms(load(args.model, drafter="none", batch=1), args.arms, console))
    warm_up(models.values())
    turns = [turn(models, files, number, args.tokens) for number in track(range(args.turns), "turns", console=console)]
    console.print(table(turns))
    if args.json:
        args.json.write_text(json.dumps({"files": len(files), "turns": turns}, indent=1) + "\n", encoding="utf-8")
    return int(any(arm["differing"] for each in turns for arm in each.values()))


def turn(models: dict[str, Any], files: list[str], number: int, tokens: int) -> dict[str, Any]:
    """Per arm, over all files."""
    rows: dict[str, list[Any]] = {name: [] for name in models}
    wish = WISHES[number % len(WISHES)]
    for place, text in enumerate(files):
        for name in in_turn(list(models), number + place):
            rows[name].append(answer(models[name], f"{text}\n\n{wish}", tokens, 0.0))
    return {name: line(each, rows["none"], greedy=True) for name, each in rows.items()}


def table(turns: list[dict[str, Any]]) -> Table:
    shown = Table(title="tokens per pass (speedup) by turn")
    shown.add_column("")
    for number in range(len(turns)):
        shown.add_column(f"{number + 1}", justify="right")
    for name in turns[0]:
        cells = (f"{each[name]['tokens_per_pass']:.2f} ({each[name]['speedup']:.2f})" for each in turns)
        shown.add_row(name, *cells)
    return shown


if __name__ == "__main__":
    sys.exit(main())
