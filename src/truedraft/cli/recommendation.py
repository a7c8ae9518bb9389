"""What `truedraft plan` says of a profile and a bench: the setting to take, where it pays, and how sure that is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from truedraft.bench.forecast import drafter_of, family_of, foretold, length_of, rule_of
from truedraft.bench.summary import Cell
from truedraft.errors import ParameterError
from truedraft.planning.counts import Counts
from truedraft.planning.profile import Profile
from truedraft.planning.recommend import Candidate, Recommendation, recommend, tree_for
from truedraft.planning.trees import branching_of, branching_text
from truedraft.verify.auto import rule_named

__all__ = ["candidates_of", "recommended"]

_FEW = 10
"""Prompts below which resampling them says little of the doubt."""


def recommended(
    profile: Profile, cells: Sequence[Cell], load: tuple[str | None, float], *, of: str | None = None, as_json: bool
) -> int:
    """Print the recommendation for a task (None: all of them) and temperature. of: the model of the cells."""
    task, temperature = load
    asked = [cell for cell in cells if cell.temperature == temperature and task in (None, cell.task)]
    candidates = candidates_of([cell for cell in asked if foretold(cell, profile)])
    drafters = {drafter_of(cell.arm) for cell in asked if cell.parts} - {"none"}
    unknown = sorted(name for name in drafters if not profile.knows(name))
    if not candidates:
        why = f"; the profile has no costs of {', '.join(unknown)}: name them in its --drafters" if unknown else ""
        raise ParameterError(
            f"the bench has no drafter's rounds of {task or 'any task'} at temperature {temperature:g}: run it so{why}"
        )
    found = recommend(candidates, profile, profile.batches)
    report = {
        "speculate": found.pays,
        "advice": _advice(found),
        "switch_off_above": found.off_above,
        "schedule": found.schedule,
        "prompts": min(len(counts) for candidate in candidates for counts in candidate.samples.values()),
        "batches": sorted({batch for candidate in candidates for batch in candidate.samples}),
        "choices": [_choice(choice) for choice in found.choices],
        "trees": _trees(candidates, profile),
        "not_profiled": unknown,
        "notes": _notes(profile, of, unknown),
    }
    if as_json:
        print(json.dumps(report))
    else:
        _print(report, Console(highlight=False))
    return 0


def _notes(profile: Profile, of: str | None, unknown: Sequence[str]) -> list[str]:
    """What makes the advice say less than it seems to."""
    found = ["speeds are of decoding, once a prompt is read: short answers to long prompts gain less"]
    name = profile.model.get("name")
    if None not in (of, name) and of != name:
        found.append(f"the profile is of {name} and the bench of {of}: passes of one tell little of the other")
    if unknown:
        found.append(f"without {', '.join(unknown)}, whose costs the profile does not have")
    return found


def candidates_of(cells: Sequence[Cell]) -> list[Candidate]:
    """One for every family of arms, from its longest chains at every batch size; tasks are joined.

    What changes the text is no candidate: it is another text that it would be faster at.
    """
    families: dict[str, list[Cell]] = {}
    for cell in cells:
        if rule_named(rule_of(cell.arm)).lossless:
            families.setdefault(family_of(cell.arm), []).append(cell)
    return [_candidate(family) for family in families.values()]


def _candidate(family: Sequence[Cell]) -> Candidate:
    longest = max((length_of(cell.arm) or 0) for cell in family)
    source = [cell for cell in family if (length_of(cell.arm) or 0) == longest]
    samples: dict[int, tuple[Counts, ...]] = {}
    for cell in source:
        samples[cell.batch] = samples.get(cell.batch, ()) + tuple(cell.counts)
    name = source[0].arm
    return Candidate(
        drafter_of(name),
        samples,
        longest,
        name.partition(" tree ")[2].split(" ")[0],
        sum(cell.context for cell in source) / len(source),
        rule_of(name),
    )


def _advice(found: Recommendation) -> str:
    if not found.pays:
        best = max(found.choices, key=lambda choice: choice.speedup.value)
        return (
            f"do not speculate: at best {best} would make it {best.speedup} times as fast, at batch {best.batch}, "
            f"with {best.foreseen}"
        )
    best = next(choice for choice in found.choices if choice.is_worth_it)
    return f"take {best}: {best.speedup} times as fast at batch {best.batch}; {_limit(found)}"


def _limit(found: Recommendation) -> str:
    last = found.choices[-1].batch
    if found.off_above is None or found.off_above >= last:
        return f"it pays up to batch {last}, the largest profiled"
    return f"switch off above batch {found.off_above}"


def _choice(choice: Any) -> dict[str, Any]:
    return {
        "batch": choice.batch,
        "setting": str(choice),
        "drafter": choice.candidate.drafter,
        "draft_tokens": choice.draft_tokens,
        "tree": choice.candidate.tree or None,
        "rule": choice.candidate.rule,
        "speedup": choice.speedup.value,
        "tokens_a_round": choice.foreseen.tokens,
        "widening": choice.foreseen.widening,
        "drafting": choice.foreseen.drafting,
        "low": choice.speedup.low,
        "high": choice.speedup.high,
        "worth_it": choice.is_worth_it,
    }


def _trees(candidates: Sequence[Candidate], profile: Profile) -> list[dict[str, Any]]:
    """The best static tree for every drafter that drafted siblings, by its acceptance by rank."""
    found = []
    for candidate in candidates:
        plan = tree_for(candidate.total, profile, candidate.drafter)
        if plan is not None and plan.nodes:
            even = branching_of(plan.parents, nodes=plan.nodes)
            found.append(
                {
                    "drafter": candidate.drafter,
                    "nodes": plan.nodes,
                    "depth": plan.depth,
                    "expected_tokens": plan.tokens,
                    "tree": branching_text(even),
                    "parents": list(plan.parents),
                    "by_rank": list(candidate.total.by_rank),
                }
            )
    return found


def _print(report: dict[str, Any], console: Console) -> None:
    table = Table("batch", "best setting", "predicted speed", "")
    for choice in report["choices"]:
        speed = f"{choice['speedup']:.2f}x ({choice['low']:.2f} to {choice['high']:.2f})"
        table.add_row(str(choice["batch"]), choice["setting"], speed, "" if choice["worth_it"] else "not worth it")
    console.print(table)
    console.print(report["advice"], style="bold")
    if report["speculate"] and report["schedule"]:
        console.print(f"by batch size: --policy '{json.dumps(report['schedule'])}'")
    for note in report["notes"]:
        console.print(f"note: {note}", style="dim", markup=False)
    if report["prompts"] < _FEW:
        console.print(f"note: it rests on {report['prompts']} prompts; measure at least {_FEW}", style="dim")
    for tree in report["trees"]:
        console.print(
            f"tree for {tree['drafter']}: {tree['nodes']} nodes for {tree['expected_tokens']:.2f} tokens a round; "
            f"nearest even shape: --tree {tree['tree']}"
        )
