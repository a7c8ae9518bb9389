"""The prompts of tasks: of shipped names, of files, and of their categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from truedraft.bench.arms import Ids
from truedraft.bench.tasks import TaskPrompt, categories_of, read_prompts
from truedraft.bench.texts import ids_of
from truedraft.errors import ParameterError
from truedraft.request import Facts

__all__ = ["prompts_of"]


def prompts_of(
    facts: Facts, tasks: Sequence[str], *, count: int, category: str | None = None, most: int | None = None
) -> dict[str, list[Ids]]:
    """The first prompts of every task, as ids: of a shipped name, a file, or one of its categories, FILE:qa.

    Of a file's categories each has its turn; FILE:* makes a task of each. Raises `ParameterError` for what cannot be
    read, and for a prompt that leaves the model no room.
    """
    found: dict[str, list[Ids]] = {}
    for source, own in (part for task in tasks for part in _parts(task)):
        name = f"{Path(source).stem}:{own}" if own else Path(source).stem
        if name in found:
            raise ParameterError(f"two tasks are named {name!r}: rename one of the files")
        rows = _in_turns(read_prompts(source, category=own or category))[:count]
        found[name] = [ids_of(facts, row.text, most=most) for row in rows]
        longest = max(map(len, found[name]))
        if facts.context_length is not None and longest >= facts.context_length:
            raise ParameterError(
                f"a prompt of {name} has {longest} tokens, and the model's context {facts.context_length}: take "
                "--prompt-tokens to cut longer prompts"
            )
    return found


def _parts(task: str) -> list[tuple[str, str]]:
    """(file, category) of a task; no category for a file as a whole, all of them for FILE:*."""
    source, _, own = task.rpartition(":")
    if not source or "/" in own:
        return [(task, "")]
    return [(source, each) for each in categories_of(source)] if own == "*" else [(source, own)]


def _in_turns(rows: Sequence[TaskPrompt]) -> list[TaskPrompt]:
    """One of every category, then the next of each, and so on."""
    before: Counter[str] = Counter()
    placed = []
    for row in rows:
        placed.append((before[row.category], row))
        before[row.category] += 1
    return [row for _, row in sorted(placed, key=itemgetter(0))]
