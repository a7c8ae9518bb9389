"""Logits of a target and a draft model after the same texts, for `rules.py --pairs`.

    python benchmarks/pairs.py smollm2-135m --layers 15 --out pairs.npz
    python benchmarks/pairs.py qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b --out pairs.npz

The texts are the benchmark's prompts with the target's own greedy answers; a few answer positions of each are taken.
--layers drafts with the target's own first layers, a truncated copy.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from identity import plain_transformers, texts

from truedraft.bench.texts import ids_of
from truedraft.build import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--draft", default=None)
    parser.add_argument("--layers", type=int, default=None)
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--positions", type=int, default=30, help="of each text")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if (args.draft is None) == (args.layers is None):
        parser.error("give either --draft or --layers")

    writer = load(args.target, drafter="ngram")
    target = plain_transformers(args.target)
    draft = None if args.draft is None else plain_transformers(args.draft)
    rows: dict[str, list[np.ndarray]] = {"target": [], "draft": []}
    for text in texts(args.texts):
        prompt = list(ids_of(writer.facts, text))
        ids = [*prompt, *writer.generate(prompt, max_new_tokens=args.positions).token_ids]
        rows["target"].append(logits(target, ids, len(prompt), None))
        rows["draft"].append(logits(target if draft is None else draft, ids, len(prompt), args.layers))
    width = min(parts[0].shape[1] for parts in rows.values())  # padded vocabularies may differ at their ends
    arrays = {name: np.concatenate(parts)[:, :width].astype(np.float16) for name, parts in rows.items()}
    np.savez(args.out, **arrays)
    print(f"{len(arrays['target'])} positions, {width} tokens -> {args.out}")


@torch.inference_mode()
def logits(model: torch.nn.Module, ids: list[int], start: int, layers: int | None) -> np.ndarray:
    """Logits [n, V] after every token from the prompt's last one on; `layers`: of the first layers alone."""
    kept = model.model.layers
    model.model.layers = kept[:layers]
    try:
        found = model(torch.tensor([ids]), use_cache=False).logits[0, start - 1 : -1]
    finally:
        model.model.layers = kept
    return np.asarray(found.float().numpy())


if __name__ == "__main__":
    main()
