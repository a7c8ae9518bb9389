"""What a pass costs: T(n) of transformers eager, of our target plain, exact and rounded, beside the machine's limits.

    python benchmarks/passes.py                            # contexts of 256, 1,000 and 4,000 tokens, about 5 minutes
    python benchmarks/passes.py --contexts 256 --rounds 5  # a quick look
    python benchmarks/passes.py --weights float16 int4     # exact, with weights of fewer bits
    python benchmarks/passes.py --stored bfloat16          # weights of no more digits, as most models are published
    python benchmarks/passes.py --json passes.json

The arms take turns, width by width, in an order that rotates; every figure is the median over rounds. transformers
runs its own forward with its own cache, which is cropped after each pass. `bytes` is the time that reading all weights
and the cache takes at the measured bandwidth, `flops` the time of the arithmetic at the measured peak: no pass can
take less than the larger of the two.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, DynamicCache

from truedraft.bench.runs import in_turn
from truedraft.models import resolve
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.fast import prepare
from truedraft.targets.load import load_model

WIDTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
KEY = "text"


class Arm(Protocol):
    """A model with a text in its cache."""

    def read(self, tokens: Sequence[int]) -> None:
        """Start over with these tokens."""
        ...

    def run(self, tokens: Sequence[int]) -> None:
        """One pass over new tokens, logits for all of them."""
        ...

    def forget(self) -> None:
        """Drop the new tokens."""
        ...


class Transformers:
    """The model as transformers runs it."""

    def __init__(self, folder: Path, *, stored: torch.dtype) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        shorten(self.model, stored)
        self.stored = stored
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.config = self.model.config

    @torch.inference_mode()
    def read(self, tokens: Sequence[int]) -> None:
        self.cache = DynamicCache(config=self.config)
        self.model.get_decoder()(torch.tensor([list(tokens)]), cache=self.cache, use_cache=True)
        self.length = len(tokens)

    @torch.inference_mode()
    def run(self, tokens: Sequence[int]) -> None:
        self.model(torch.tensor([list(tokens)]), cache=self.cache, use_cache=True)
        self.count = len(tokens)

    def forget(self) -> None:
        self.cache.crop(-self.count)


class Ours:
    """The same model as this package runs it."""

    def __init__(self, folder: Path, *, stored: torch.dtype, exact: bool, weights: str = "auto") -> None:
        self.model: CachedModel = load_model(folder)
        shorten(self.model.model, stored)
        prepare(self.model.model, exact=exact, weights=weights)

    def read(self, tokens: Sequence[int]) -> None:
        self.model.catch_up(KEY, tokens)
        self.length = len(tokens)

    def run(self, tokens: Sequence[int]) -> None:
        self.model.extend([KEY], [Nodes.chain(tokens)])

    def forget(self) -> None:
        self.model.rewind(KEY, self.length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1000, 4000])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--weights", nargs="*", default=[], help="of fewer bits: float16, bfloat16, int8, int4")
    parser.add_argument(
        "--stored", default="float32", choices=("float32", "bfloat16", "float16"), help="round all weights to it first"
    )
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", default=None, help="write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    folder = resolve(args.model)
    stored: torch.dtype = getattr(torch, args.stored)
    reference = Transformers(folder, stored=stored)
    arms: dict[str, Arm] = {
        "transformers": reference,
        "plain": Ours(folder, stored=stored, exact=False),
        "exact": Ours(folder, stored=stored, exact=True),
        **{name: Ours(folder, stored=stored, exact=True, weights=name) for name in args.weights},
    }
    machine = {"GB/s": bandwidth(), "GFLOP/s": peak(), "threads": torch.get_num_threads()}
    console = Console()
    console.print(f"{machine['GB/s']:.0f} GB/s, {machine['GFLOP/s']:.0f} GFLOP/s, {machine['threads']} threads")
    results: dict[int, dict[str, dict[int, float]]] = {}
    for context in args.contexts:
        results[context] = measure(arms, context, args.rounds) | limits(reference, context, machine)
        console.print(table(context, results[context]))
    if args.json:
        figures = {"model": args.model, "stored": args.stored, "machine": machine, "milliseconds": results}
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


@torch.no_grad()
def shorten(model: Any, stored: torch.dtype) -> None:
    """Leave the weights in their type, and no more digits than another type has."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(stored))


def measure(arms: dict[str, Arm], context: int, rounds: int) -> dict[str, dict[int, float]]:
    """Median milliseconds by arm and width."""
    tokens = [3 + (31 * place) % 997 for place in range(context + max(WIDTHS))]
    for arm in arms.values():
        arm.read(tokens[:context])
    names = list(arms)
    seconds: dict[tuple[str, int], list[float]] = {(name, width): [] for name in names for width in WIDTHS}
    for number in range(rounds + 1):
        for width in WIDTHS:
            for name in in_turn(names, number):
                arm, new = arms[name], tokens[context : context + width]
                taken = seconds_of(lambda arm=arm, new=new: arm.run(new))
                arm.forget()
                if number:  # the first round warms up
                    seconds[name, width].append(taken)
    return {name: {width: 1000 * statistics.median(seconds[name, width]) for width in WIDTHS} for name in names}


def seconds_of(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bandwidth(numbers: int = 1 << 26, runs: int = 7) -> float:
    """GB/s of reading a long tensor: the best of a few runs."""
    tensor = torch.ones(numbers)
    return numbers * tensor.itemsize / min(seconds_of(tensor.sum) for _ in range(runs)) / 1e9


def peak(size: int = 2048, runs: int = 7) -> float:
    """GFLOP/s of a product of square float32 matrices: the best of a few runs."""
    matrix = torch.ones(size, size)
    return 2 * size**3 / min(seconds_of(lambda: matrix @ matrix) for _ in range(runs)) / 1e9


def limits(reference: Transformers, context: int, machine: dict[str, float]) -> dict[str, dict[int, float]]:
    """Milliseconds that memory and arithmetic take at least."""
    config = reference.config
    heads = config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    cached = 2 * config.num_hidden_layers * (getattr(config, "num_key_value_heads", None) or heads) * dim * context
    arithmetic = 2 * reference.parameters + 4 * config.num_hidden_layers * heads * dim * context
    reading = (reference.stored.itemsize * reference.parameters + 4 * cached) / machine["GB/s"] / 1e6
    return {
        "bytes": dict.fromkeys(WIDTHS, reading),
        "flops": {width: width * arithmetic / machine["GFLOP/s"] / 1e6 for width in WIDTHS},
    }


def table(context: int, milliseconds: dict[str, dict[int, float]]) -> Table:
    """A row an arm, and the ratios that matter."""
    ours = Table("ms", *(f"n = {width}" for width in WIDTHS), "T(8)/T(1)", title=f"{context} tokens of context")
    for name, row in milliseconds.items():
        ours.add_row(name, *(f"{row[width]:.1f}" for width in WIDTHS), f"{row[8] / row[1]:.2f}")
    for name in ("plain", "exact"):
        ratios = [milliseconds[name][width] / milliseconds["transformers"][width] for width in WIDTHS]
        ours.add_row(f"{name} / transformers", *(f"{ratio:.2f}" for ratio in ratios), "")
    return ours


if __name__ == "__main__":
    main()
