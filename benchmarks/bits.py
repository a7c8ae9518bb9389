"""Bit equality: the logits of every emitted token, and the tokens, against plain decoding's, in exact mode.

    python benchmarks/bits.py                                  # 20 prompts x 128 tokens, greedy
    python benchmarks/bits.py --seeded                         # temperature 0.7, top-p 0.9, one seed a prompt
    python benchmarks/bits.py --prompts 2 --tokens 32          # a quick look
    python benchmarks/bits.py --weights float16                # exact as well, by other kernels
    python benchmarks/bits.py --json bits.json

Plain decoding runs at batch 1 with one thread and reads prompts whole. The arms change what must not matter: drafter,
draft length, tree, batch, threads, and the pieces in which prompts are read. Logits are compared by a digest of all
their bits. The last arm leaves exactness out, to show that the comparison can fail. The small model is the target's
own first layers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from identity import first_layers, plain_transformers, texts
from rich.console import Console
from rich.table import Table

from truedraft.bench.texts import ids_of
from truedraft.build import load, redraft
from truedraft.core import Drafter, Law, Scores, Session, Shape, Target, Tree
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.targets.cached import CachedModel

PIECES = 40
"""Tokens of a prompt that are read at once, where an arm reads it in pieces."""


@dataclass(frozen=True)
class Arm:
    """What is run otherwise than plain decoding."""

    drafter: str
    shape: Shape
    batch: int = 1
    threads: int = 1
    chunk: int = 512
    exact: bool = True

    @property
    def name(self) -> str:
        shape = self.shape
        form = "x".join(map(str, shape.branching)) if shape.branching else f"{shape.depth} deep, {shape.nodes} nodes"
        return f"{self.drafter} {form}" if shape.nodes else self.drafter


ARMS = [
    Arm("none", Shape(0), batch=8, chunk=PIECES),
    Arm("none", Shape(0), threads=2),
    Arm("ngram", Shape.chain(1), batch=8),
    Arm("ngram", Shape.chain(2), chunk=PIECES),
    Arm("ngram", Shape.chain(8), threads=2),
    Arm("ngram", Shape(16, width=4, nodes=16)),
    Arm("ngram", Shape(16, width=4, nodes=16), batch=8),
    Arm("model", Shape.chain(4)),
    Arm("model", Shape.chain(5), batch=8),
    Arm("model", Shape.tree(3, 2, 1), threads=2),
    Arm("model", Shape(4, width=4, nodes=10), batch=8, chunk=PIECES),
    Arm("suffix", Shape(16, width=4, nodes=16), batch=8),
    Arm("recycle", Shape(8, width=4, nodes=24), threads=2),
    Arm("merge", Shape(12, width=4, nodes=24), batch=8),
    Arm("cascade", Shape(12, width=4, nodes=16)),
    Arm("layer-skip", Shape.chain(3), batch=8),
    Arm("medusa", Shape.chain(3)),
    Arm("medusa", Shape(3, width=3, nodes=10), batch=8),
    Arm("eagle1", Shape.chain(4), threads=2),
    Arm("eagle2", Shape(5, width=4, nodes=12), batch=8),
    Arm("eagle3", Shape.chain(6), batch=8, chunk=PIECES),
    Arm("eagle3", Shape(6, width=4, nodes=16)),
    Arm("mtp", Shape.chain(7), batch=8),
    Arm("ngram", Shape.chain(8), batch=8, exact=False),
]


@dataclass
class Recording:
    """A target that keeps a digest of the logits after every committed node."""

    inner: Target
    digests: dict[Session, list[bytes]] = field(default_factory=dict)
    scores: dict[Session, Scores] = field(default_factory=dict)

    def require(self, texts: int, length: int) -> None:
        self.inner.require(texts, length)

    def score(self, sessions: Sequence[Session], trees: Sequence[Tree], taps: Sequence[int]) -> list[Scores]:
        scores = self.inner.score(sessions, trees, taps)
        self.scores = dict(zip(sessions, scores, strict=True))
        return scores

    def commit(self, sessions: Sequence[Session], paths: Sequence[Sequence[int]]) -> None:
        for session, path in zip(sessions, paths, strict=True):
            logits = self.scores[session].logits
            found = self.digests.setdefault(session, [])
            found += [hashlib.blake2b(logits[node].numpy().tobytes()).digest() for node in (0, *path)]
        self.inner.commit(sessions, paths)

    def release(self, session: Session) -> None:
        self.inner.release(session)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seeded", action="store_true")
    parser.add_argument("--arms", nargs="+", default=[""], help="only drafters whose names begin so, such as eagle")
    parser.add_argument("--weights", default="auto", help="of the target: float16, bfloat16, int8 or int4 round them")
    parser.add_argument("--json", default=None)
    args = parser.parse_args()

    console = Console()
    rule = "coupled" if args.seeded else "auto"
    models = {
        exact: load(args.model, drafter="none", rule=rule, exact=exact, weights=args.weights) for exact in (True, False)
    }
    small = first_layers(plain_transformers(args.model))
    law = Law.COUPLED if args.seeded else None
    drafters: dict[str, Drafter] = {
        "none": NoDrafter(),
        "ngram": NgramDrafter(),
        "model": ModelDrafter(CachedModel(small), vocabulary=small.config.vocab_size, law=law),
    }
    wanted = [arm for arm in ARMS if arm.drafter.startswith(tuple(args.arms))]
    for name in {arm.drafter for arm in wanted} - set(drafters):
        drafters[name] = redraft(models[True], drafter=name, rule=rule).decoder.drafter
    prompts = [list(ids_of(models[True].facts, text)) for text in texts(args.prompts)]
    options: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9} if args.seeded else {"temperature": 0.0}
    options |= {"max_new_tokens": args.tokens, "min_new_tokens": args.tokens}
    expected = run(models[True], drafters, Arm("none", Shape(0)), prompts, options)
    rows = []
    for arm in wanted:
        start = time.perf_counter()
        found = run(models[arm.exact], drafters, arm, prompts, options)
        rows.append({"arm": arm.name, "batch": arm.batch, "threads": arm.threads, "pieces of": arm.chunk})
        rows[-1] |= {"exact": arm.exact} | compare(found, expected) | {"seconds": time.perf_counter() - start}
        console.print(rows[-1])
    console.print(table(rows, "seeded" if args.seeded else "greedy"))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"prompts": len(prompts), "tokens": args.tokens, "arms": rows}, file, indent=1)
    return int(any(row["same bits"] < row["of"] for row in rows if row["exact"]))


Texts = list[tuple[tuple[int, ...], list[bytes]]]


def run(
    model: Model, drafters: dict[str, Drafter], arm: Arm, prompts: list[list[int]], options: dict[str, Any]
) -> Texts:
    """Token ids of every text, and the digests of the logits that they were taken from."""
    recording = Recording(model.decoder.target)
    decoder = replace(model.decoder, target=recording, drafter=drafters[arm.drafter], policy=Fixed(arm.shape))
    seeds = [{"seed": number} for number in range(len(prompts))]
    with settings(model, arm):
        results = replace(model, batch=arm.batch, decoder=decoder).generate(prompts, each=seeds, **options)
    by_prompt = {tuple(session.tokens[: session.prompt_length]): found for session, found in recording.digests.items()}
    return [
        (result.token_ids, by_prompt[tuple(prompt)][: len(result.token_ids)])
        for prompt, result in zip(prompts, results, strict=True)
    ]


@contextmanager
def settings(model: Model, arm: Arm) -> Iterator[None]:
    """Threads and the pieces of prompts for a while."""
    cached, threads = model.decoder.target.model, torch.get_num_threads()
    kept = cached._chunk
    cached._chunk = arm.chunk
    torch.set_num_threads(arm.threads)
    try:
        yield
    finally:
        cached._chunk = kept
        torch.set_num_threads(threads)


def compare(found: Texts, expected: Texts) -> dict[str, int]:
    """How many positions have the same bits of logits, and how many texts the same ids."""
    pairs = list(zip(found, expected, strict=True))
    bits = sum(one == other for (_, a), (_, b) in pairs for one, other in zip(a, b, strict=True))
    return {
        "same bits": bits,
        "of": sum(len(a) for _, a in expected),
        "same ids": sum(a == b for (a, _), (b, _) in pairs),
    }


def table(rows: list[dict[str, Any]], kind: str) -> Table:
    shown = Table(title=f"logits against plain decoding, {kind}")
    for heading in ("arm", "batch", "threads", "pieces of", "exact", "same bits", "of", "same ids"):
        shown.add_column(heading, justify="left" if heading == "arm" else "right")
    for row in rows:
        shown.add_row(*(str(row[str(column.header)]) for column in shown.columns))
    return shown


if __name__ == "__main__":
    sys.exit(main())
