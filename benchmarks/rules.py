"""What the acceptance rules cost and accept at one node with k children, against the optimal-transport bound.

    python benchmarks/rules.py --threads 1
    python benchmarks/rules.py --pairs logits.npz --temperatures 0.6 1.0 --json rules.json

--pairs takes logits of target and draft after the same texts, arrays `target` and `draft` [n, V] in a .npz or .pt file.
Without it pairs are made up: logits that fall with the logarithm of the rank, the draft's with noise on them.

`us` is the median time of one verdict on the node, p and q given: tests, residual and the draw of the token that
follows, whichever it is. `drawing` is the time to draw the children. `bound` is that of k children drawn without
replacement, the highest of the known ones; `share` the acceptance over it. Acceptance without a closed form is the
mean of --draws verdicts a pair, marked with a tilde.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from truedraft import drawing
from truedraft.core import Draft, Law, Tree
from truedraft.dice import RandomDice
from truedraft.noise import NoisyDice, SeededNoise, winners
from truedraft.verify import expected, transport
from truedraft.verify.auto import RULES

Draw = Callable[[Tensor, int, NoisyDice], list[int]]

DRAWS: dict[Law, Draw] = {
    Law.CHOSEN: lambda q, k, dice: drawing.chosen(q, k),
    Law.SAMPLED: drawing.sampled,
    Law.SAMPLED_WITHOUT_REPLACEMENT: drawing.without_replacement,
    Law.GREEDY_DRAFT: drawing.greedy_draft,
    Law.COUPLED: lambda q, k, dice: drawing.coupled(q, k, dice.noise, 1),
}

ARMS = [
    ("target-only", Law.CHOSEN),
    ("token", Law.SAMPLED),
    ("kseq", Law.SAMPLED),
    ("traversal", Law.SAMPLED),
    ("token", Law.SAMPLED_WITHOUT_REPLACEMENT),
    ("traversal", Law.SAMPLED_WITHOUT_REPLACEMENT),
    ("greedy-draft", Law.GREEDY_DRAFT),
    ("coupled", Law.COUPLED),
]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    vocabulary: int
    temperature: float
    k: int
    rule: str
    law: str
    acceptance: float
    closed_form: bool
    bound: float
    share: float
    us: float
    us_90: float
    drawing_us: float


class Given:
    """Distributions that cost nothing: the same row after every node."""

    position = 1

    def __init__(self, row: Tensor) -> None:
        self._row = row

    def __getitem__(self, node: int) -> Tensor:
        return self._row


def synthetic(vocabulary: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of logits [V]: from nearly certain to undecided, the draft off by a deviation of 1 at every token."""
    generator = torch.Generator().manual_seed(0)
    for steepness in torch.linspace(1.2, 4.0, count):
        order = torch.randperm(vocabulary, generator=generator)
        target = -steepness * torch.log1p(order.float()) + 0.5 * torch.randn(vocabulary, generator=generator)
        yield target, target + torch.randn(vocabulary, generator=generator)


def loaded(path: Path, count: int) -> list[tuple[Tensor, Tensor]]:
    """`count` pairs of logits [V], evenly spaced over a file."""
    if path.suffix == ".npz":
        arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    else:
        arrays = torch.load(path, weights_only=True)
    places = np.linspace(0, len(arrays["target"]) - 1, min(count, len(arrays["target"]))).astype(int)
    return [(arrays["target"][place].float(), arrays["draft"][place].float()) for place in places]


def measure(p: Tensor, q: Tensor, k: int, arm: tuple[str, Law], *, draws: int, seed: int) -> tuple[list[float], ...]:
    """Seconds of drawing and of verdict, and whether a child was accepted, `draws` times."""
    rule, law = RULES[arm[0]], arm[1]
    given, draft_seconds, seconds, accepted = Given(p), [], [], []
    for draw in range(draws):
        dice = NoisyDice(RandomDice(seed * draws + draw), SeededNoise(seed * draws + draw))
        started = time.perf_counter()
        tokens = DRAWS[law](q, k, dice)
        drawn = time.perf_counter()
        tree = Tree((0, *tokens), (-1,) + (0,) * len(tokens))
        draft = Draft(tree, law, None if law is Law.CHOSEN else (q,) + (None,) * len(tokens))
        ready = time.perf_counter()
        verdict = rule.verify(draft, given, dice)
        seconds.append(time.perf_counter() - ready)
        draft_seconds.append(drawn - started)
        accepted.append(float(bool(verdict.path)))
    return draft_seconds, seconds, accepted


def closed_form(p: Tensor, q: Tensor, k: int, arm: tuple[str, Law]) -> float | None:
    """The exact acceptance, where there is a formula."""
    if " ".join(arm) in expected.ACCEPTANCE:
        return expected.ACCEPTANCE[" ".join(arm)](p, q, k)
    if arm[0] in ("token", "traversal") and arm[1] is Law.SAMPLED:
        return expected.recursive(p, q, k)
    if arm[0] in ("token", "traversal") and k == 2:
        return expected.recursive_without_replacement(p, q)
    return expected.coupled(p, q) if arm[0] == "coupled" and k == 1 else None


def table(pairs: list[tuple[Tensor, Tensor]], temperature: float, k: int, draws: int) -> list[Row]:
    """One row an arm."""
    rows = [(torch.softmax(target / temperature, 0), torch.softmax(draft / temperature, 0)) for target, draft in pairs]
    bound = statistics.fmean(transport.without_replacement_bound(p, q, k) for p, q in rows)
    lines = []
    for arm in ARMS:
        drawing_seconds, seconds, accepted = [], [], []
        for place, (p, q) in enumerate(rows):
            drew, took, stood = measure(p, q, k, arm, draws=draws, seed=place)
            exact = closed_form(p, q, k, arm)
            drawing_seconds += drew
            seconds += took
            accepted.append(statistics.fmean(stood) if exact is None else exact)
        acceptance = statistics.fmean(accepted)
        lines.append(
            Row(
                vocabulary=len(rows[0][0]),
                temperature=temperature,
                k=k,
                rule=arm[0],
                law=str(arm[1]),
                acceptance=acceptance,
                closed_form=exact is not None,
                bound=bound,
                share=acceptance / bound,
                us=1e6 * statistics.median(seconds),
                us_90=1e6 * statistics.quantiles(seconds, n=10)[-1],
                drawing_us=1e6 * statistics.median(drawing_seconds),
            )
        )
    return lines


def noise_costs(vocabulary: int) -> dict[str, float]:
    """Microseconds of one coupled draw from a full row, and from one that top-p has cut to 300 tokens."""
    full = torch.rand(vocabulary)
    cut = torch.where(torch.arange(vocabulary) % (vocabulary // 300) == 0, full, 0.0)
    costs = {}
    for name, row in {"full": full, "cut": cut}.items():
        seconds = []
        for position in range(30):
            started = time.perf_counter()
            winners(row, 1, SeededNoise(0), position)
            seconds.append(time.perf_counter() - started)
        costs[name] = 1e6 * statistics.median(seconds)
    return costs


def show(lines: list[Row]) -> None:
    """The table, as text."""
    first = lines[0]
    print(f"\nV = {first.vocabulary}, T = {first.temperature}, k = {first.k}, bound {first.bound:.4f}")
    print(f"  {'rule':<13}{'law':<28}{'acceptance':>10}{'share':>8}{'us':>8}{'us p90':>8}{'drawing':>9}")
    for line in lines:
        mark = "" if line.closed_form else "~"
        print(
            f"  {line.rule:<13}{line.law:<28}{mark + format(line.acceptance, '.4f'):>10}{line.share:>8.4f}"
            f"{line.us:>8.0f}{line.us_90:>8.0f}{line.drawing_us:>9.0f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pairs", type=Path, help=".npz or .pt file with logits `target` and `draft` [n, V]")
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[49_152, 151_936], help="of made-up pairs")
    parser.add_argument("--count", type=int, default=40, help="pairs")
    parser.add_argument("--draws", type=int, default=10, help="verdicts a pair")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.6, 1.0])
    parser.add_argument("--k", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--threads", type=int, default=1, help="of torch; more than one hardly helps at this size")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.pairs:
        sources = [loaded(options.pairs, options.count)]
    else:
        sources = [list(synthetic(size, options.count)) for size in options.vocabulary]
    rows, noise = [], {}
    for pairs in sources:
        size = len(pairs[0][0])
        noise[size] = noise_costs(size)
        print(
            f"coupled draw at V = {size}: {noise[size]['full']:.0f} us full row, "
            f"{noise[size]['cut']:.0f} us cut by top-p"
        )
        for temperature in options.temperatures:
            for k in options.k:
                rows.append(table(pairs, temperature, k, options.draws))
                show(rows[-1])
    if options.json:
        lines = [asdict(line) for some in rows for line in some]
        options.json.write_text(json.dumps({"rows": lines, "coupled_draw_us": noise}, indent=1))


if __name__ == "__main__":
    main()
