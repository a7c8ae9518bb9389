"""What weights of fewer bits bring and cost: tokens a second, plain and drafted, and how near the model stays.

    python benchmarks/rounded.py                              # about 5 minutes
    python benchmarks/rounded.py --prompts 2 --tokens 48 --json rounded.json

All arms take turns on every prompt, greedy, ends ignored. Nearness is measured on the texts that the model writes in
float32, given to each of the others token by token: how often its likeliest token is the same, and the mean divergence
KL(p || p') in nats. Drafted text is compared with the same target's plain text, and has to be equal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from truedraft.bench.runs import in_turn
from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import load, redraft
from truedraft.model import Model
from truedraft.targets.cached import Nodes

WEIGHTS = ("auto", "float16", "bfloat16", "int8", "int4")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--drafter", default="merge")
    parser.add_argument("--prompts", type=int, default=4, help="prompts of each task")
    parser.add_argument("--tokens", type=int, default=96, help="tokens an answer")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    args = parser.parse_args()

    console, plain = Console(), {name: load(args.model, drafter="none", weights=name, batch=1) for name in WEIGHTS}
    arms = {(name, "none"): model for name, model in plain.items()}
    arms |= {(name, args.drafter): redraft(model, drafter=args.drafter) for name, model in plain.items()}
    report: dict[str, Any] = {"model": args.model, "exact": {name: model.exact for name, model in plain.items()}}
    wrong = False
    for task in ("free", "copy"):
        prompts = [list(ids_of(plain["auto"].facts, row.text)) for row in read_prompts(task, limit=args.prompts)]
        runs = taken(arms, prompts, args.tokens)
        report[task] = summary(runs, plain, prompts, args.drafter)
        console.print(table(task, report[task], args.drafter))
        wrong |= any(not each["same text"] for each in report[task].values())
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if wrong:
        console.print("drafted text differs from plain text of the same target", style="bold red")
    return int(wrong)


def taken(arms: dict[Any, Model], prompts: list[list[int]], tokens: int) -> dict[Any, list[Any]]:
    """By arm: (tokens a second after the prompt, rounds, ids) of every prompt."""
    runs: dict[Any, list[Any]] = {name: [] for name in arms}
    for turn, prompt in enumerate(track([prompts[0], *prompts], "prompts")):
        for name in in_turn(list(arms), turn):
            start = time.perf_counter()
            result = arms[name].generate(prompt, max_new_tokens=tokens, ignore_eos=True)
            seconds = time.perf_counter() - start
            if turn:  # the first one warms up
                runs[name].append((tokens / seconds, result.statistics.rounds, result.token_ids))
    return runs


def summary(runs: Any, plain: dict[str, Model], prompts: list[list[int]], drafter: str) -> dict[str, Any]:
    """Medians and nearness by weights."""
    texts = [(prompt, list(ids)) for prompt, (_, _, ids) in zip(prompts, runs["auto", "none"], strict=True)]
    expected = [log_laws(plain["auto"], *text) for text in texts]
    found = {}
    for name, model in plain.items():
        laws = [log_laws(model, *text) for text in texts]
        agreed = torch.cat([(p.argmax(-1) == q.argmax(-1)).float() for p, q in zip(expected, laws, strict=True)])
        away = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in zip(expected, laws, strict=True)])
        speed = {arm: statistics.median(run[0] for run in runs[name, arm]) for arm in ("none", drafter)}
        rounds = sum(run[1] for run in runs[name, drafter])
        emitted = sum(len(run[2]) for run in runs[name, drafter])
        found[name] = {
            "plain": speed["none"],
            "drafted": speed[drafter],
            "tokens per pass": emitted / rounds,
            "agreement": float(agreed.mean()),
            "divergence": float(away.mean()),
            "same text": [run[2] for run in runs[name, "none"]] == [run[2] for run in runs[name, drafter]],
        }
    return found


def log_laws(model: Model, prompt: list[int], answer: list[int]) -> Tensor:
    """log p [n, V] of every token of the answer."""
    target: Any = model.decoder.target
    target.model.catch_up("text", prompt[:-1])
    (scores,) = target.model.extend(["text"], [Nodes.chain([prompt[-1], *answer[:-1]])])
    target.model.release("text")
    return torch.log_softmax(scores.logits.double(), -1)


def table(task: str, found: dict[str, Any], drafter: str) -> Table:
    titles = (
        "weights",
        "plain tok/s",
        f"{drafter} tok/s",
        "tokens per pass",
        "same likeliest token",
        "KL, nats",
        "equal",
    )
    shown = Table(*titles, title=f"{task} prompts")
    for name, each in found.items():
        speeds = [f"{each[key]:.1f} ({each[key] / found['auto'][key]:.2f}x)" for key in ("plain", "drafted")]
        nearness = f"{each['agreement']:.1%}", f"{each['divergence']:.4f}", "yes" if each["same text"] else "NO"
        shown.add_row(name, *speeds, f"{each['tokens per pass']:.2f}", *nearness)
    return shown


if __name__ == "__main__":
    sys.exit(main())
