"""Acceptance against training tokens, from the logs of runs that went on from each other.

    python benchmarks/learning_curve.py runs/first runs/second                    # a table
    python benchmarks/learning_curve.py runs/* --json curve.json --plot curve.png

Each folder is one of `truedraft train`; their tokens are added up in the order of the folders. Acceptance is that of
the held-out texts which every run examined (greedy, by position, given that all positions before were accepted).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from truedraft.training.record import Record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs, the earliest first")
    parser.add_argument("--json", type=Path, default=None, help="write the points to this file")
    parser.add_argument("--plot", type=Path, default=None, help="draw them (needs matplotlib)")
    args = parser.parse_args()

    found = points(args.runs)
    Console().print(table(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if args.plot:
        draw(found, args.plot)


def points(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Every examination: run, tokens seen in all, acceptance by position, tokens per pass."""
    found: list[dict[str, Any]] = []
    before = 0
    for run in runs:
        lines = Record.read(run / "log.csv")
        for line in lines:
            if line["acceptance"]:
                rates = [float(rate) for rate in line["acceptance"].split()]
                figures = {"near": float(line["near"]), "tokens_per_pass": float(line["tokens_per_pass"])}
                found.append({"run": run.name, "tokens": before + int(line["tokens"]), "acceptance": rates, **figures})
        before += int(lines[-1]["tokens"]) if lines else 0
    return found


def table(found: Sequence[dict[str, Any]]) -> Table:
    """The points for people."""
    out = Table("run", "tokens", "acceptance by position", "first among four", "tokens per pass")
    for point in found:
        rates = " ".join(f"{rate:.3f}" for rate in point["acceptance"])
        out.add_row(
            point["run"],
            f"{point['tokens']:,}",
            rates,
            f"{point['near']:.3f}",
            f"{point['tokens_per_pass']:.3f}",
        )
    return out


def draw(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Acceptance of the first position, and of one among four, against tokens."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    tokens = [point["tokens"] / 1000 for point in found]
    axes.plot(tokens, [point["near"] for point in found], marker=".", color="#9aa7b8", label="first, among best four")
    axes.plot(tokens, [point["acceptance"][0] for point in found], marker=".", color="#2f6db3", label="first position")
    axes.set(xlabel="training tokens, thousands", ylabel="acceptance, held-out answers", xlim=0, ylim=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
