"""What the suffix index of shared texts costs: bytes and microseconds a token, microseconds a proposal.

    python benchmarks/suffix.py --texts texts.jsonl                       # up to a million tokens, about two minutes
    python benchmarks/suffix.py --texts texts.jsonl --tokens 20000 --json suffix.json

--texts is a JSON-lines file; the strings of a row are one text. The index is filled text by text, and at every size in
the table the drafter proposes for texts that were held out, a new token before each proposal, as in decoding. The same
proposals are timed without the shared index, and the growth of the process's own memory is reported beside the bytes
that the index counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from truedraft.core import Session, Shape
from truedraft.drafters.suffix import SuffixDrafter
from truedraft.models import resolve
from truedraft.request import Facts, Parameters, make_session

HELD_OUT = 50
SHAPE = Shape(depth=16, width=8, nodes=16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(resolve(args.model), local_files_only=True)
    texts = list(tokens_of(args.texts, tokenizer))
    held, texts = texts[:HELD_OUT], texts[HELD_OUT:]
    rows = measure(texts, held, args.tokens, len(tokenizer))
    Console().print(table(rows))
    if args.json:
        args.json.write_text(
            json.dumps({"texts": args.texts.name, "held_out": len(held), "rows": rows}, indent=1) + "\n"
        )


def tokens_of(path: Path, tokenizer: Any) -> Iterator[list[int]]:
    """The token ids of every row."""
    for line in path.read_text("utf-8").splitlines():
        text = "\n".join(value for value in json.loads(line).values() if isinstance(value, str))
        yield tokenizer(text)["input_ids"]


def measure(texts: list[list[int]], held: list[list[int]], most: int, vocabulary: int) -> list[dict[str, float]]:
    """A row at the powers of ten below `most` tokens, and one there."""
    drafter = SuffixDrafter(share=True, capacity=max(4 * most, 4))
    memory = psutil.Process()
    before, seconds = memory.memory_info().rss, 0.0
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000, 10_000_000) if size < most] + [most]
    rows, source = [], iter(texts)
    for size in sizes:
        while drafter.history.size < size and (text := next(source, None)) is not None:
            start = time.perf_counter()
            drafter.history.add(text)
            seconds += time.perf_counter() - start
        tokens, bytes_ = drafter.history.size, drafter.history.nbytes
        rows.append(
            {
                "tokens": tokens,
                "bytes_per_token": bytes_ / tokens,
                "process_bytes_per_token": (memory.memory_info().rss - before) / tokens,
                "us_per_token": 1e6 * seconds / tokens,
                **proposals(drafter, held, vocabulary),
                "us_per_proposal_unshared": proposals(SuffixDrafter(), held, vocabulary)["us_per_proposal"],
            }
        )
        if tokens < size:  # there are no more texts
            break
    return rows


def proposals(drafter: SuffixDrafter, held: list[list[int]], vocabulary: int) -> dict[str, float]:
    """Microseconds of a proposal after one more token, and how the drafts fare on the text that follows."""
    seconds, drafted, right, rounds = [], 0, 0, 0
    for text in held:
        session = session_of(text[:20], vocabulary)
        drafter.bet(session, SHAPE)
        for place in range(20, min(len(text), 100)):
            session.tokens.append(text[place])
            start = time.perf_counter()
            draft = drafter.bet(session, SHAPE).draft
            seconds.append(time.perf_counter() - start)
            drafted += len(draft)
            right += depth_right(draft.tree, text[place + 1 :])
            rounds += 1
    return {
        "us_per_proposal": 1e6 * statistics.median(seconds),
        "us_per_proposal_99": 1e6 * statistics.quantiles(seconds, n=100)[-1],
        "drafted_per_proposal": drafted / rounds,
        "right_per_proposal": right / rounds,
    }


def session_of(tokens: list[int], vocabulary: int) -> Session:
    return make_session(list(tokens), Parameters.of({}), Facts(vocabulary=vocabulary))


def depth_right(tree: Any, following: list[int]) -> int:
    """How many tokens of a text the tree foretells."""
    node = depth = 0
    for token in following:
        node = next((child for child in tree.children[node] if tree.tokens[child] == token), 0)
        if not node:
            break
        depth += 1
    return depth


def table(rows: list[dict[str, float]]) -> Table:
    shown = Table(title="suffix index of shared texts")
    for heading in (
        "tokens",
        "bytes/token",
        "process",
        "us/token",
        "us/proposal",
        "99 %",
        "unshared",
        "drafted",
        "right",
    ):
        shown.add_column(heading, justify="right")
    for row in rows:
        tokens, *figures = row.values()
        shown.add_row(
            f"{tokens:,}",
            *(f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}" for figure in figures[:3]),
            *(f"{row[name]:.0f}" for name in ("us_per_proposal", "us_per_proposal_99", "us_per_proposal_unshared")),
            f"{row['drafted_per_proposal']:.2f}",
            f"{row['right_per_proposal']:.2f}",
        )
    return shown


if __name__ == "__main__":
    main()
