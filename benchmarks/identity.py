"""Greedy identity: token ids of every drafter, shape and batch against transformers' own generate, in float32.

    python benchmarks/identity.py                               # 20 prompts x 128 tokens, every arm
    python benchmarks/identity.py --prompts 4 --tokens 64       # a quick look
    python benchmarks/identity.py --json identity.json

Where ids differ, the gap between the two best logits of transformers at the first differing token is reported: in
float32 a difference is legitimate only at a tie within rounding. The small model is the target's own first layers, so
that no second model is needed. The run fails if an arm differs where the gap is above --tie.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import load, redraft
from truedraft.core import Drafter, Shape
from truedraft.drafters.model import ModelDrafter
from truedraft.model import Model
from truedraft.models import resolve
from truedraft.planning.fixed import Fixed
from truedraft.targets.cached import CachedModel

_LAYERS_OF_DRAFT = 6

ARMS: tuple[tuple[str, Shape], ...] = (
    ("none", Shape(0)),
    ("ngram", Shape.chain(8)),
    ("ngram", Shape(6, width=3, nodes=12)),
    ("model", Shape.chain(4)),
    ("model", Shape.tree(3, 2, 1)),
    ("model", Shape(4, width=4, nodes=10)),
    ("suffix", Shape(16, width=4, nodes=16)),
    ("recycle", Shape(8, width=4, nodes=24)),
    ("merge", Shape(12, width=4, nodes=24)),
    ("cascade", Shape(12, width=4, nodes=16)),
    ("layer-skip", Shape.chain(3)),
    ("medusa", Shape.chain(3)),
    ("medusa", Shape(3, width=3, nodes=10)),
    ("eagle1", Shape.chain(4)),
    ("eagle2", Shape(5, width=4, nodes=12)),
    ("eagle3", Shape.chain(6)),
    ("eagle3", Shape(6, width=4, nodes=16)),
    ("mtp", Shape.chain(7)),
)
"""Drafters by the names that users give them, and shapes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--arms", nargs="+", default=[""], help="only drafters whose names begin so, such as eagle")
    parser.add_argument("--tie", type=float, default=1e-4, help="largest gap of two logits that counts as a tie")
    parser.add_argument("--json", default=None)
    args = parser.parse_args()

    console = Console()
    reference = plain_transformers(args.model)
    model = load(args.model, drafter="none")
    prompts = [list(ids_of(model.facts, text)) for text in texts(args.prompts)]
    console.print(f"transformers writes {len(prompts)} x {args.tokens} tokens")
    expected = [generate(reference, ids, args.tokens) for ids in prompts]
    rows, failed = [], False
    small = ModelDrafter(CachedModel(first_layers(reference)), vocabulary=reference.config.vocab_size)
    for kind, shape in [arm for arm in ARMS if arm[0].startswith(tuple(args.arms))]:
        name = f"{kind} {form(shape)}".strip()
        drafter = small if kind == "model" else redraft(model, drafter=kind).decoder.drafter
        for batch in args.batches:
            row = check(model, drafter, shape, prompts, expected, batch=batch)
            gaps = [gap(reference, prompts[place], expected[place], at) for place, at in row.pop("parted")]
            rows.append({"drafter": name, "batch": batch, **row, "parted_gaps": gaps})
            failed |= any(value > args.tie for value in gaps)
            console.print(rows[-1])
    console.print(table(rows))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"prompts": len(prompts), "tokens": args.tokens, "arms": rows}, file, indent=1)
    return int(failed)


def texts(count: int) -> list[str]:
    """Half open questions, half texts to copy and edit."""
    half = count // 2
    rows = [*read_prompts("copy", limit=half), *read_prompts("free", limit=count - half)]
    return [row.text for row in rows]


def plain_transformers(name: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(resolve(name), dtype=torch.float32).eval()


def generate(model: Any, ids: list[int], tokens: int) -> tuple[int, ...]:
    inputs = torch.tensor([ids])
    with torch.inference_mode():
        output = model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
    return tuple(output[0, len(ids) :].tolist())


def form(shape: Shape) -> str:
    """What a shape is called in tables."""
    if shape.branching:
        return f"tree {'x'.join(map(str, shape.branching))}"
    return f"{'chain' if shape.width == 1 else 'tree'} {shape.nodes}" if shape.nodes else ""


def first_layers(model: Any) -> Any:
    """The model's first layers and its head; the weights are shared."""
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = _LAYERS_OF_DRAFT
    with torch.device("meta"):
        small = type(model)(config)
    small.model.embed_tokens, small.lm_head = model.model.embed_tokens, model.lm_head
    small.model.layers = model.model.layers[:_LAYERS_OF_DRAFT]
    small.model.norm, small.model.rotary_emb = model.model.norm, model.model.rotary_emb
    return small.eval()


def check(
    model: Model,
    drafter: Drafter,
    shape: Shape,
    prompts: list[list[int]],
    expected: list[tuple[int, ...]],
    *,
    batch: int,
) -> dict[str, Any]:
    """Decode all prompts; where each text first parts from what is expected."""
    arm = replace(model, batch=batch, decoder=replace(model.decoder, drafter=drafter, policy=Fixed(shape)))
    tokens, start = len(expected[0]), time.perf_counter()
    results = arm.generate(prompts, max_new_tokens=tokens, min_new_tokens=tokens)
    seconds = time.perf_counter() - start
    parted = []
    for place, (result, ids) in enumerate(zip(results, expected, strict=True)):
        differing = [at for at, (a, b) in enumerate(zip(result.token_ids, ids, strict=True)) if a != b]
        if differing:
            parted.append((place, differing[0]))
    passes = sum(result.statistics.rounds for result in results)
    return {
        "identical": len(prompts) - len(parted),
        "of": len(prompts),
        "tokens_per_pass": len(prompts) * tokens / passes,
        "seconds": seconds,
        "parted": parted,
    }


@torch.inference_mode()
def gap(model: Any, prompt: list[int], output: tuple[int, ...], at: int) -> float:
    """Between the two best logits where a text parts."""
    logits = model(torch.tensor([[*prompt, *output[:at]]])).logits[0, -1]
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(title="greedy token ids against transformers generate, float32")
    for heading in ("drafter", "batch", "identical", "tokens/pass", "gaps where they part"):
        shown.add_column(heading, justify="left" if heading == "drafter" else "right")
    for row in rows:
        gaps = ", ".join(f"{value:.1e}" for value in row["parted_gaps"])
        identical = f"{row['identical']} of {row['of']}"
        shown.add_row(row["drafter"], str(row["batch"]), identical, f"{row['tokens_per_pass']:.2f}", gaps)
    return shown


if __name__ == "__main__":
    sys.exit(main())
