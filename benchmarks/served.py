"""The same heads in a serving engine: accepted drafts by position in vLLM, beside ours on the same prompts.

    bash scripts/served                                    # makes the engine's environment first; about 5 minutes
    python benchmarks/served.py --engine .vllm/bin/python --heads eagle3 --prompts 4 --json served.json

Greedy chains over token ids of the shipped free-form prompts, ends ignored. Both count a position over all rounds that
drafted; a text's first round here drafts nothing, because a head reads the target's states first. The engine runs in
float32 in a process of its own, on the heads' folders as they ship.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import truedraft
from truedraft.bench.tasks import read_prompts
from truedraft.bench.texts import ids_of
from truedraft.build import redraft
from truedraft.drafters.heads import shipped_head
from truedraft.drafters.warm import owner_of
from truedraft.models import resolve

METHODS = {"eagle3": "eagle3", "eagle1": "eagle"}
"""Our names, and the engine's."""

ENGINE = r"""
import json, os, sys
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="WARNING")
from vllm import LLM, SamplingParams
asked = json.load(sys.stdin)
model = LLM(model=asked["target"], dtype="float32", max_model_len=1024, max_num_seqs=1, enforce_eager=True,
            disable_log_stats=False, enable_prefix_caching=False, speculative_config={
                "method": asked["method"], "model": asked["head"], "num_speculative_tokens": asked["draft_tokens"]})
said = model.generate([{"prompt_token_ids": ids} for ids in asked["prompts"]],
                      SamplingParams(temperature=0.0, max_tokens=asked["tokens"], ignore_eos=True))
counts = {"texts": [list(each.outputs[0].token_ids) for each in said]}
for metric in model.get_metrics():
    if metric.name.startswith("vllm:spec_decode"):
        counts[metric.name.removeprefix("vllm:spec_decode_")] = getattr(metric, "values", None) or metric.value
print("\n" + json.dumps(counts))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, help="a Python in which vLLM is installed")
    parser.add_argument("--heads", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    args = parser.parse_args()

    plain = truedraft.load("smollm2-135m", drafter="none", batch=1)
    prompts = [ids_of(plain.facts, row.text) for row in read_prompts("free", limit=args.prompts)]
    figures = {}
    for name in args.heads:
        asked = {"prompts": [list(ids) for ids in prompts], "tokens": args.tokens, "draft_tokens": args.draft_tokens}
        figures[name] = {"ours": ours(plain, name, asked), "vllm": theirs(plain, args.engine, name, asked)}
    show(figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def ours(plain: Any, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Texts, rounds that drafted, and accepted drafts by position."""
    model = redraft(plain, drafter=name, draft_tokens=asked["draft_tokens"])
    results = model.generate(asked["prompts"], max_new_tokens=asked["tokens"], ignore_eos=True)
    rounds = sum(result.statistics.tried[0] for result in results)
    accepted = [0] * asked["draft_tokens"]
    for result in results:
        for place, count in enumerate(result.statistics.hits[: len(accepted)]):
            accepted[place] += count
    texts = [list(result.token_ids) for result in results]
    return summary(texts, rounds, accepted)


def theirs(plain: Any, engine: Path, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The same of the engine."""
    target = plain.decoder.target.model.model
    head = shipped_head(owner_of(target.config, plain.facts.tokenizer), name)
    said = json.dumps(asked | {"target": str(resolve("smollm2-135m")), "head": str(head), "method": METHODS[name]})
    ran = subprocess.run([str(engine), "-c", ENGINE], input=said, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"the engine ended with status {ran.returncode}: {ran.stderr.strip().splitlines()[-1]}")
    counts = json.loads(ran.stdout.strip().splitlines()[-1])
    return summary(counts["texts"], counts["num_drafts"], counts["num_accepted_tokens_per_pos"])


def summary(texts: list[list[int]], rounds: int, accepted: list[int]) -> dict[str, Any]:
    rates = [count / rounds for count in accepted]
    return {"texts": texts, "rounds": rounds, "accepted": accepted, "rates": rates, "tokens_per_pass": 1 + sum(rates)}


def show(figures: dict[str, Any]) -> None:
    table = Table("head", "engine", "drafts", "accepted over drafts, by position", "tokens per pass", "same texts")
    for name, both in figures.items():
        same = sum(one == other for one, other in zip(both["ours"]["texts"], both["vllm"]["texts"], strict=True))
        for engine, said in both.items():
            rates = " ".join(f"{rate:.3f}" for rate in said["rates"])
            agree = f"{same} of {len(said['texts'])}"
            table.add_row(name, engine, f"{said['rounds']:.0f}", rates, f"{said['tokens_per_pass']:.3f}", agree)
    Console().print(table)


if __name__ == "__main__":
    main()
