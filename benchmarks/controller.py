"""The controller on a load that changes: copying and free texts in turns, batches from 1 to 32, against every fixed k.

    python benchmarks/controller.py --profile machine.json --out controller        # half an hour on two cores
    python benchmarks/controller.py --profile machine.json --out quick --prompts 2 --tokens 16 --batches 1,4

All arms write a segment at the same time, round by round in turns; the controller keeps what it has learned from
segment to segment. A segment's
figures are the time after the first token, the median over repeats. Printed: for every segment the controller's time
over that of the best fixed setting, which is known only afterwards, and its speed over plain decoding's; and both for
the whole load. Of arms that are alike the luckiest looks best, by as much as the machine is noisy; so the whole load is
also compared with the setting that was best in a segment's other repeats, as it did in this one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from truedraft.bench.arms import Order
from truedraft.bench.grid import Load, settings_of
from truedraft.bench.runs import Journal
from truedraft.build import load
from truedraft.cli.measuring import Fleet, about, run
from truedraft.cli.prompts import prompts_of
from truedraft.planning.profile import Profile

SEGMENTS = (("copy", 1), ("free", 32), ("copy", 4), ("free", 1), ("copy", 32), ("free", 8), ("copy", 16), ("free", 4))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--drafter", default="ngram")
    parser.add_argument("--lengths", default="1,2,4,8", help="fixed draft lengths to compare with")
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a segment at small batches")
    parser.add_argument("--tokens", type=int, default=96, help="tokens a text")
    parser.add_argument("--batches", default=None, help="only segments of these")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("controller"))
    args = parser.parse_args()

    lengths = [int(part) for part in args.lengths.split(",")]
    wanted = None if args.batches is None else {int(part) for part in args.batches.split(",")}
    segments = [segment for segment in SEGMENTS if wanted is None or segment[1] in wanted]
    console = Console()
    profile = Profile.load(args.profile)
    plain = load(args.model, drafter="none")
    fleet = Fleet(plain, {}, profile)
    fixed = settings_of([args.drafter], draft_tokens=lengths)
    adaptive = settings_of([args.drafter], draft_tokens=[max(lengths)], policies=["auto"])[1:]
    arms = [fleet.arm(setting) for setting in [*fixed, *adaptive]]
    prompts = prompts_of(plain.facts, ["copy", "free"], count=20, most=256)
    # A segment's task has a name of its own, so that it may come back; large batches have one round of prompts.
    texts = {
        f"{place} {task}": [prompts[task][n % len(prompts[task])] for n in range(max(args.prompts, batch))]
        for place, (task, batch) in enumerate(segments)
    }
    loads = [Load(f"{place} {task}", batch) for place, (task, batch) in enumerate(segments)]
    facts = about(
        plain, texts, drafter=args.drafter, lengths=lengths, tokens=args.tokens, segments=[list(s) for s in segments]
    )
    journal = Journal(args.out / "journal.jsonl", facts)
    order = Order((), (), args.tokens, fixed_length=True)
    run(texts, loads, lambda _: arms, order, repeats=args.repeats, journal=journal, console=console)
    report = verdict(journal.lines, [arm.name for arm in arms])
    (args.out / "controller.json").write_text(json.dumps(facts | report, indent=1) + "\n", "utf-8")
    show(report, console)
    return int(any(line["differs"] for line in journal.lines))


def verdict(lines: list[dict], names: list[str]) -> dict:
    """Median seconds of every segment by arm, and what follows; the first arm is plain, the last the controller."""
    spent: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for line in lines:
        repeat = line["unit"].rsplit(" · ", 1)[1]
        spent[f"{line['task']}, batch {line['batch']}"][line["arm"]][repeat] += line["seconds"] - line["first"]
    rows = []
    for segment, repeats in spent.items():
        by_arm = {arm: statistics.median(seconds.values()) for arm, seconds in repeats.items()}
        best = min(names[:-1], key=lambda name: by_arm[name])
        own = by_arm[names[-1]]
        rows.append(
            {
                "segment": segment,
                "seconds": by_arm,
                "best_fixed": best,
                "over_best": own / by_arm[best],
                "speed_over_plain": by_arm[names[0]] / own,
                "best_of_others_seconds": best_of_others(repeats, names[:-1]),
            }
        )
    total = {name: sum(row["seconds"][name] for row in rows) for name in names}
    hindsight = sum(row["seconds"][row["best_fixed"]] for row in rows)
    others = sum(row["best_of_others_seconds"] for row in rows)
    return {
        "segments": rows,
        "total_seconds": total,
        "hindsight_seconds": hindsight,
        "over_hindsight": total[names[-1]] / hindsight,
        "over_best_of_others": total[names[-1]] / others,
        "least_speed_over_plain": min(row["speed_over_plain"] for row in rows),
    }


def best_of_others(repeats: dict[str, dict[str, float]], fixed: list[str]) -> float:
    """The median over repeats of the time of that setting which was best in the other repeats."""
    numbers = list(repeats[fixed[0]])

    def seconds(number: str) -> float:
        others = [other for other in numbers if other != number] or numbers
        best = min(fixed, key=lambda name: statistics.median(repeats[name][other] for other in others))
        return repeats[best][number]

    return statistics.median(map(seconds, numbers))


def show(report: dict, console: Console) -> None:
    table = Table("segment", "best fixed", "controller / best", "speed / plain")
    for row in report["segments"]:
        table.add_row(row["segment"], row["best_fixed"], f"{row['over_best']:.3f}", f"{row['speed_over_plain']:.2f}x")
    console.print(table)
    console.print(
        f"whole load: {report['over_hindsight']:.3f} of the time of the best fixed setting of every segment, "
        f"{report['over_best_of_others']:.3f} of that of the best in other repeats; "
        f"never below {report['least_speed_over_plain']:.2f}x plain decoding"
    )


if __name__ == "__main__":
    sys.exit(main())
