"""A target's own answers to prompts, in shards: what heads learn best from, since it is what they will draft.

    shard-00000.jsonl     answers: rows of token ids
    task.jsonl            whose they are and how they were made, then a line a shard: how many answers to which prompts

A shard is a file of the answers to so many prompts, named when it is complete, so an interrupted run goes on with the
next one, and a run of more prompts with those that are new. Every row can be repeated alone: it has its temperature and
its seed. This file refuses to know where models come from. Shards without a `task.jsonl` can be learned from, and not
added to.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from truedraft.errors import ParameterError, PromptError
from truedraft.model import Model
from truedraft.request import Parameters, make_session
from truedraft.training.rows import AnswerRow, PromptRow, read_answers
from truedraft.training.writing import write_whole, writing

__all__ = ["Author", "Task", "require_author", "statistics", "write_answers"]

Report = Callable[[int], None]

_TASK = "task.jsonl"


@dataclass(frozen=True)
class Task:
    """How prompts are answered. temperatures: taken in turns by the prompts' places. seed: a prompt's is its place on.

    longest: prompts of more tokens are left out. shard: prompts a file.
    """

    temperatures: tuple[float, ...] = (0.0,)
    seed: int = 0
    max_new_tokens: int = 256
    longest: int = 400
    shard: int = 256

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "longest", "shard"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} is {getattr(self, name)}: expected at least 1")
        if not self.temperatures:
            raise ParameterError("there is no temperature: expected at least one, 0 is greedy")
        for temperature in self.temperatures:
            if not 0 <= temperature < math.inf:
                raise ParameterError(f"temperature is {temperature}: expected a number, at least 0, which is greedy")


@dataclass(frozen=True)
class Author:
    """Whose answers they are. owner: the model, by its sizes and the meaning of its token ids; weights: what tells them
    from others (`Teacher.fingerprint`); dtype: of the numbers that it answered in.
    """

    owner: str
    weights: int
    dtype: str


def require_author(folder: Path, owner: str, weights: int) -> None:
    """Raise `ParameterError` if a folder says that its answers are another model's.

    Where the answers came with the prompts, their tokens have to be the model's, and its weights made no difference.
    """
    path = folder / _TASK
    said = (_object(path.read_text("utf-8", "replace").partition("\n")[0]) if path.is_file() else None) or {}
    advice = "name that one, or have this one answer the prompts with `truedraft data`"
    if said.get("owner", owner) != owner:
        raise ParameterError(f"{folder} has answers of {said['owner']}, and the model is {owner}: {advice}")
    if not said.get("given") and said.get("weights", weights) != weights:
        raise ParameterError(
            f"{folder} has answers of {said.get('model')} with other weights than the model's: {advice}"
        )


def write_answers(
    model: Model,
    prompts: Sequence[PromptRow],
    folder: Path,
    task: Task,
    *,
    author: Author | None = None,
    report: Report = lambda answered: None,
) -> int:
    """Answer all prompts that are not answered yet; returns how many were left out as too long or unfit.

    author: the model, as the folder is to remember it. report: told of prompts as they are done. Raises
    `ParameterError` for a folder with answers of another model or task or to other prompts, and where it cannot write.
    """
    given = any(prompt.given is not None for prompt in prompts)
    how = {**asdict(task), "temperatures": list(task.temperatures), "given": given}
    made = _Made(folder, {"model": model.name, **({} if author is None else asdict(author)), **how})
    left_out = 0
    for number, start in enumerate(range(0, len(prompts), task.shard)):
        path, group = folder / f"shard-{number:05d}.jsonl", prompts[start : start + task.shard]
        if not made.has(path, group):
            rows = _answered(model, group, task)
            left_out += len(group) - len(rows)
            if rows:
                _write_rows(path, rows)
            made.add(path, group, len(rows))
        report(len(group))
    return left_out


def _write_rows(path: Path, rows: Sequence[AnswerRow]) -> None:
    text = "".join(f"{row.to_json()}\n" for row in rows)
    write_whole(path, lambda part: part.write_text(text, "utf-8"))


_LATER = ("owner", "weights", "dtype")
"""What headers did not say at first; where one does not, nothing can be held against it."""

_ENTRY = {"shard", "rows", "prompts"}


class _Made:
    """What a folder of answers says of itself, in `task.jsonl`: nothing is taken for the answer to something else.

    As long as there is no answer it can be said anew, so a run that was mistyped leaves nothing behind.
    """

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _TASK
        self._shards: dict[str, dict[str, Any]] = {}
        there = self._path.is_file()
        first, *rest = self._path.read_text("utf-8", "replace").split("\n") if there else [""]
        entries = [entry for entry in map(_object, rest) if entry is not None and entry.keys() >= _ENTRY]
        if not entries and not any([*folder.glob("shard-*.jsonl"), *folder.glob("shard-*.jsonl.gz")]):
            self._write([header])
            return
        if not there:
            raise ParameterError(f"{folder} has answers, and no {_TASK} says to what: take another folder")
        self._check(_object(first), header)
        self._shards = {entry["shard"]: entry for entry in entries}
        if rest != [*map(json.dumps, entries), ""]:  # a line was cut off, and the next one would be lost with it
            self._write([json.loads(first), *entries])

    def _check(self, before: dict[str, Any] | None, header: dict[str, Any]) -> None:
        if before is None:
            raise ParameterError(f"{self._path} is broken: take another folder")
        for name, value in header.items():
            if before.get(name) != value and (name in before or name not in _LATER):
                raise ParameterError(
                    f"{self._path.parent} has answers with {name} {before.get(name)}, not {value}: take another folder"
                )

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_whole(self._path, lambda part: part.write_text(text, "utf-8"))

    def has(self, path: Path, prompts: Sequence[PromptRow]) -> bool:
        """Whether a shard has what can be answered of these prompts. Raises `ParameterError` if it has other ones."""
        entry = self._shards.get(path.name)
        if entry is None or (entry["rows"] and not path.is_file()):
            return False
        asked, before = list(map(_mark, prompts)), entry["prompts"]
        common = min(len(asked), len(before))
        if asked[:common] != before[:common]:
            raise ParameterError(f"{path} has answers to other prompts: take another folder")
        return len(asked) <= len(before)

    def add(self, path: Path, prompts: Sequence[PromptRow], rows: int) -> None:
        """A shard is complete."""
        entry = {"shard": path.name, "rows": rows, "prompts": list(map(_mark, prompts))}
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _object(line: str) -> dict[str, Any] | None:
    """The object of a line; None if it is none, as where a line was cut off."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _mark(prompt: PromptRow) -> int:
    """Tells a prompt and its place from others."""
    return zlib.crc32(json.dumps([prompt.index, prompt.messages, prompt.given]).encode())


def _answered(model: Model, prompts: Sequence[PromptRow], task: Task) -> list[AnswerRow]:
    """The answers to the prompts of a shard, in their order; they are run in order of length."""
    fit = [(prompt, ids) for prompt in prompts if (ids := _ids(model, prompt, task)) is not None]
    if not fit:
        return []
    if all(prompt.given is not None for prompt, _ in fit):
        return [_given(model, prompt, ids, task) for prompt, ids in fit]
    fit.sort(key=lambda pair: len(pair[1]))
    each = [_parameters(prompt, task) for prompt, _ in fit]
    results = model.generate([list(ids) for _, ids in fit], each=each, max_new_tokens=task.max_new_tokens)
    rows = [
        (prompt.index, AnswerRow(prompt.id, prompt.messages, ids, result.token_ids, own["temperature"], own["seed"]))
        for (prompt, ids), own, result in zip(fit, each, results, strict=True)
        if result.token_ids
    ]
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _given(model: Model, prompt: PromptRow, ids: tuple[int, ...], task: Task) -> AnswerRow:
    """The answer that came with a prompt, as the model would have written it; sampled, for all one knows."""
    tokenizer: Any = model.facts.tokenizer
    end = tokenizer.eos_token_id
    answer = [*tokenizer.encode(prompt.given, add_special_tokens=False), *([] if end is None else [end])]
    return AnswerRow(prompt.id, prompt.messages, ids, tuple(answer[: task.max_new_tokens]), temperature=1.0)


def _parameters(prompt: PromptRow, task: Task) -> dict[str, Any]:
    """Temperature and seed of a prompt; they follow from its place in the file."""
    temperature = task.temperatures[prompt.index % len(task.temperatures)]
    return {"temperature": temperature, "seed": task.seed + prompt.index}


def _ids(model: Model, prompt: PromptRow, task: Task) -> tuple[int, ...] | None:
    """A prompt's tokens; None if there are too many, or the model's template refuses it."""
    try:
        ids = make_session([dict(message) for message in prompt.messages], Parameters(), model.facts).tokens
    except PromptError:
        return None
    return tuple(ids) if len(ids) <= task.longest else None


def statistics(folder: Path, *, seconds: float | None = None) -> dict[str, Any]:
    """Counts over all shards of a folder, also written to `statistics.json` there."""
    rows = [row for shard in sorted(folder.glob("shard-*.jsonl")) for row in read_answers(shard)[0]]
    answers = sorted(len(row.answer_ids) for row in rows)
    found = {
        "rows": len(rows),
        "prompt_tokens": sum(len(row.prompt_ids) for row in rows),
        "answer_tokens": sum(answers),
        "answer_tokens_median": answers[len(answers) // 2] if answers else 0,
        "distinct_answer_tokens": len({token for row in rows for token in row.answer_ids}),
        "temperatures": {f"{key:g}": count for key, count in sorted(Counter(row.temperature for row in rows).items())},
    }
    if seconds:
        found["seconds"] = round(seconds, 1)
    text = json.dumps(found, indent=1) + "\n"
    write_whole(folder / "statistics.json", lambda part: part.write_text(text, "utf-8"))
    return found
