"""The engine against transformers on one machine: tokens per second in one run, arms interleaved prompt by prompt.

    python benchmarks/engine.py                 # the full table, about half an hour on two cores
    python benchmarks/engine.py --prompts 4     # a quick look
    python benchmarks/engine.py --json out.json
    python benchmarks/engine.py --gguf FILE     # beside llama.cpp and OpenVINO GenAI, where they are installed

Every arm decodes the same prompts greedily to the same number of tokens (end tokens ignored), the arms take turns
within each prompt in an order that rotates, and every ratio is the median over prompts of the ratio within a prompt.
All arms' token ids are compared with plain decoding's; the run fails if an arm of this package differs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rivals import rivals

from truedraft.bench.runs import in_turn
from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import load
from truedraft.core import Shape, Timings
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed


@dataclass
class Arm:
    """One way to decode a prompt: ids in, new ids out; and what it took."""

    name: str
    run: Callable[[list[int]], tuple[int, ...]]
    seconds: list[float] = field(default_factory=list)
    ids: list[tuple[int, ...]] = field(default_factory=list)

    def take(self, prompt: list[int]) -> None:
        start = time.perf_counter()
        ids = self.run(prompt)
        self.seconds.append(time.perf_counter() - start)
        self.ids.append(ids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, default=20, help="prompts of each task")
    parser.add_argument("--tokens", type=int, default=128, help="tokens an answer")
    parser.add_argument("--weights", default="auto", help="of our target: float16, bfloat16, int8 or int4 round them")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--gguf", type=Path, default=None, help="the model as other engines read it, see rivals.py")
    parser.add_argument("--json", default=None, help="write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    console = Console()
    fast = load(args.model, drafter="ngram", weights=args.weights)
    plain = without_drafter(fast)
    reference = reference_model(fast)
    threads = torch.get_num_threads()
    others = rivals(args.gguf, fast.facts.tokenizer, args.tokens, threads) if args.gguf else {}
    report: dict[str, Any] = {
        "model": args.model,
        "weights": args.weights,
        "tokens": args.tokens,
        "prompts": args.prompts,
        "threads": threads,
        "torch": torch.__version__,
        "tasks": {},
    }
    failed = False
    for task in ("free", "copy"):
        prompts = [list(ids_of(fast.facts, row.text)) for row in read_prompts(task, limit=args.prompts)]
        arms = [
            Arm("transformers", lambda ids: generate(reference, ids, args.tokens)),
            Arm("transformers prompt lookup", lambda ids: generate(reference, ids, args.tokens, lookup=10)),
            Arm("truedraft plain", lambda ids: ours(plain, ids, args.tokens)),
            Arm("truedraft ngram", lambda ids: ours(fast, ids, args.tokens)),
            *(Arm(name, run) for name, run in others.items()),
        ]
        interleave(arms, prompts, f"{task} prompts")
        report["tasks"][task] = summarise(arms, args.tokens)
        failed |= not report["tasks"][task]["truedraft ngram"]["identical_to_plain"]
        console.print(table(task, report["tasks"][task]))
    report["batch"] = batch_ratio(plain, args.tokens, prompts=8)
    report["outside_the_forward"] = overhead(fast, args.tokens)
    console.print(f"batch 8 over batch 1, plain, total tokens/s: {report['batch']['ratio']:.2f}x")
    for name, share in report["outside_the_forward"].items():
        console.print(f"share of the rounds spent outside the model's forward, {name}: {share:.1%}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    if failed:
        console.print("ngram's token ids differ from plain decoding's", style="bold red")
    return int(failed)


def without_drafter(model: Model) -> Model:
    """Plain decoding on the same target."""
    return replace(model, decoder=replace(model.decoder, drafter=NoDrafter(), policy=Fixed(Shape(0))))


def reference_model(model: Model) -> Any:
    """The same weights as plain transformers loads them."""
    from transformers import AutoModelForCausalLM

    from truedraft.models import resolve

    return AutoModelForCausalLM.from_pretrained(resolve(model.name), dtype=torch.float32).eval()


def generate(model: Any, ids: list[int], tokens: int, *, lookup: int | None = None) -> tuple[int, ...]:
    """transformers' greedy generate; lookup: its prompt lookup with that many tokens a round."""
    inputs = torch.tensor([ids])
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    if lookup:
        options |= {"prompt_lookup_num_tokens": lookup}
    with torch.inference_mode():
        output = model.generate(inputs, attention_mask=torch.ones_like(inputs), pad_token_id=0, **options)
    return tuple(output[0, len(ids) :].tolist())


def ours(model: Model, ids: list[int], tokens: int) -> tuple[int, ...]:
    return model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens).token_ids


def interleave(arms: Sequence[Arm], prompts: Sequence[list[int]], label: str) -> None:
    """All arms on every prompt, in an order that rotates from prompt to prompt; one prompt to warm up."""
    for arm in arms:
        arm.run(prompts[0][:32])
    for place, prompt in enumerate(track(prompts, description=label)):
        for arm in in_turn(arms, place):
            arm.take(prompt)


def summarise(arms: Sequence[Arm], tokens: int) -> dict[str, Any]:
    """Per arm: tokens/s, the median ratios to plain transformers and to our plain decoding, and equality of ids."""
    theirs, plain = arms[0], next(arm for arm in arms if arm.name == "truedraft plain")
    return {
        arm.name: {
            "tokens_per_second": statistics.median(tokens / seconds for seconds in arm.seconds),
            "vs_transformers": ratio(theirs, arm),
            "vs_plain": ratio(plain, arm),
            "vs_plain_total": sum(plain.seconds) / sum(arm.seconds),
            "vs_plain_worst": min(a / b for a, b in zip(plain.seconds, arm.seconds, strict=True)),
            "identical_to_plain": arm.ids == plain.ids,
            "seconds": arm.seconds,
        }
        for arm in arms
    }


def ratio(base: Arm, arm: Arm) -> float:
    return statistics.median(a / b for a, b in zip(base.seconds, arm.seconds, strict=True))


def table(task: str, rows: dict[str, Any]) -> Table:
    shown = Table(title=f"{task} prompts, greedy, batch 1")
    for heading in ("", "tokens/s", "vs transformers", "vs our plain", "total vs plain", "same ids as plain"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, row in rows.items():
        shown.add_row(
            name,
            f"{row['tokens_per_second']:.1f}",
            f"{row['vs_transformers']:.2f}x",
            f"{row['vs_plain']:.2f}x",
            f"{row['vs_plain_total']:.2f}x",
            "yes" if row["identical_to_plain"] else "no",
        )
    return shown


def batch_ratio(plain: Model, tokens: int, *, prompts: int) -> dict[str, float]:
    """Total tokens/s of a batch over one prompt after another; medians of three alternating repeats."""
    rows = [ids_of(plain.facts, row.text) for row in read_prompts("free", limit=prompts)]
    rates: dict[int, list[float]] = {1: [], prompts: []}
    for _ in range(3):
        for batch, seen in rates.items():
            model = replace(plain, batch=batch)
            start = time.perf_counter()
            model.generate(rows, max_new_tokens=tokens, min_new_tokens=tokens)
            seen.append(prompts * tokens / (time.perf_counter() - start))
    one, many = (statistics.median(seen) for seen in rates.values())
    return {"batch_1": one, f"batch_{prompts}": many, "ratio": many / one}


def overhead(fast: Model, tokens: int) -> dict[str, float]:
    """Share of the rounds' time that is not the target's model forward.

    The forward is timed by hooks on the model itself, so what the target does around it counts as overhead too.
    """
    shares = {}
    for name, model in (("plain", without_drafter(fast)), ("ngram", fast)):
        seconds, total = 0.0, Timings()
        clock = ForwardClock(model.decoder.target)
        for row in read_prompts("copy", limit=3):
            result = model.generate(ids_of(fast.facts, row.text), max_new_tokens=tokens, min_new_tokens=tokens)
            total += result.statistics.timings
        seconds = clock.stop()
        shares[name] = 1 - seconds / total.total
    return shares


class ForwardClock:
    """Adds up the time between the entry and the exit of a model's forward."""

    def __init__(self, target: Any) -> None:
        self._seconds, self._start, self._inside = 0.0, 0.0, 0
        # Reading a prompt runs the decoder alone, without the head.
        self._hooks = [
            hook
            for module in (target.model.model, target.model.model.get_decoder())
            for hook in (module.register_forward_pre_hook(self._enter), module.register_forward_hook(self._leave))
        ]

    def _enter(self, *_: Any) -> None:
        if self._inside == 0:
            self._start = time.perf_counter()
        self._inside += 1

    def _leave(self, *_: Any) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._seconds += time.perf_counter() - self._start

    def stop(self) -> float:
        for hook in self._hooks:
            hook.remove()
        return self._seconds


if __name__ == "__main__":
    sys.exit(main())
