"""A target's own answers to prompts, in shards: what heads learn best from, since it is what they will draft.

A shard is a file of the answers to so many prompts, named when it is complete, so an interrupted run goes on with the
next one. Every row can be repeated alone: it has its temperature and its seed. This file refuses to know where models
come from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedraft.errors import ParameterError, PromptError
from truedraft.model import Model
from truedraft.request import Parameters, make_session
from truedraft.training.rows import AnswerRow, PromptRow, read_answers

__all__ = ["Task", "statistics", "write_answers"]

Report = Callable[[int], None]


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


def write_answers(
    model: Model, prompts: Sequence[PromptRow], folder: Path, task: Task, *, report: Report = lambda answered: None
) -> int:
    """Answer all prompts whose shard is not there yet; returns how many were left out as too long or unfit.

    report: told of prompts as they are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left_out = 0
    for number, start in enumerate(range(0, len(prompts), task.shard)):
        path, group = folder / f"shard-{number:05d}.jsonl", prompts[start : start + task.shard]
        if not path.is_file():
            rows = _answered(model, group, task)
            left_out += len(group) - len(rows)
            part = path.with_suffix(".part")
            part.write_text("".join(f"{row.to_json()}\n" for row in rows), "utf-8")
            part.rename(path)
        report(len(group))
    return left_out


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
    (folder / "statistics.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return found
