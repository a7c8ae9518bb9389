"""Prompts to measure with: small sets that ship with the package, or any JSON-lines file.

A row needs `prompt` (text) or `turns` (the first is taken); other fields are kept for grouping. This file refuses to
know models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from truedraft.errors import ParameterError

__all__ = ["MT_BENCH", "SHIPPED", "TaskPrompt", "categories_of", "read_prompts"]

MT_BENCH = frozenset({"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"})
"""The categories that Spec-Bench counts as one, "mt_bench", beside its other five."""

SHIPPED = ("copy", "free")
"""copy: edit and fix given code, so that the answer repeats the prompt. free: open questions."""


@dataclass(frozen=True)
class TaskPrompt:
    """One user message to answer."""

    id: str
    text: str
    category: str = ""


def read_prompts(source: str | Path, *, limit: int | None = None, category: str | None = None) -> list[TaskPrompt]:
    """The first `limit` prompts of a shipped set or a file, of one category if given ("mt_bench" joins its eight).

    Raises `ParameterError` for a file that cannot be read, a row without a prompt (naming its line), or no rows at all.
    """
    wanted = MT_BENCH | {category} if category == "mt_bench" else {category}
    rows = [row for row in _rows(source) if category is None or row.category in wanted]
    if not rows:
        raise ParameterError(f"{source} has no prompts{f' of category {category!r}' if category else ''}")
    return rows[:limit]


def categories_of(source: str | Path) -> list[str]:
    """The categories of a file in its order, the eight of MT-bench as one. Raises `ParameterError` if it has none."""
    found = dict.fromkeys("mt_bench" if row.category in MT_BENCH else row.category for row in _rows(source))
    if names := [name for name in found if name]:
        return names
    raise ParameterError(f"{source} has no categories: name the file alone")


def _rows(source: str | Path) -> Iterator[TaskPrompt]:
    # Not splitlines: in a JSON string U+2028, U+2029 and U+0085 may stand as they are, and end no line.
    for number, line in enumerate(_text(source).split("\n"), start=1):
        if line.strip():
            yield _row(line, f"{source}, line {number}")


def _text(source: str | Path) -> str:
    if source in SHIPPED:
        return resources.files("truedraft.bench").joinpath(f"prompts/{source}.jsonl").read_text(encoding="utf-8")
    try:
        return Path(source).read_text(encoding="utf-8-sig")  # editors of Windows begin files with a mark
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(SHIPPED)
        raise ParameterError(f"prompts {str(source)!r} cannot be read ({error}): expected {known} or a file") from error


def _row(line: str, where: str) -> TaskPrompt:
    try:
        row = json.loads(line)
        text = row["prompt"] if "prompt" in row else row["turns"][0]
        if not isinstance(text, str) or not text or isinstance(row.get("turns"), str):
            raise TypeError
    except (ValueError, KeyError, TypeError, IndexError):
        raise ParameterError(f"{where} is not an object with a prompt (text) or turns: {line[:80]!r}") from None
    return TaskPrompt(str(row.get("id", row.get("question_id", where))), text, str(row.get("category", "")))
