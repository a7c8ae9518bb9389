"""Measure how often each Medusa head's first, second, ... guess is right, and write it into the head's notes.

`python scripts/measure_medusa.py FOLDER [--model NAME] [--prompts FILE.jsonl] [--limit N]`. The target answers the
prompts greedily; what it says is what the heads are asked. The drafter chooses its tree by these figures. Take prompts
that the heads neither learned from nor are judged by.
"""

import argparse
from pathlib import Path

import torch

from truedraft.bench.tasks import read_prompts
from truedraft.build import load
from truedraft.drafters.medusa import measure
from truedraft.models import DEFAULT
from truedraft.nets.medusa import MedusaNet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--prompts", default="free", help="a task's name or a file, an object with a prompt a line")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    options = parser.parse_args()
    model = load(options.model, drafter="none")
    rows = read_prompts(options.prompts, limit=options.limit)
    stream = model.stream(
        [[{"role": "user", "content": row.text}] for row in rows], max_new_tokens=options.max_new_tokens
    )
    for _ in stream:
        pass
    texts = [
        ([*prompt, *result.token_ids], len(prompt))
        for prompt, result in zip(stream.prompts, stream.results, strict=True)
    ]
    net = MedusaNet.load(options.folder)
    rates = measure(net, model.decoder.target.model, texts)
    net.notes = {**net.notes, "head_accuracies": [[round(rate, 4) for rate in row] for row in rates]}
    net.save(options.folder, dtype=torch.bfloat16)
    for head, row in enumerate(rates, start=1):
        print(f"head {head}: " + " ".join(f"{rate:.3f}" for rate in row))


if __name__ == "__main__":
    main()
