"""Rows of training data: prompts that wait for an answer, and answers to learn from.

Both are JSON, one object a line, as they are or packed by gzip. A broken line never stops a run that did not ask for
it: it is skipped, counted and named. This file refuses to know models and tokenizers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from truedraft.errors import InputError, ParameterError

__all__ = ["AnswerRow", "Broken", "Message", "PromptRow", "read_answers", "read_prompts"]

Message = Mapping[str, str]

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class PromptRow:
    """A prompt. index: its place in the file, of which its seed follows; id: its name, or its place without one.

    given: the answer that the file has, where it was asked for.
    """

    index: int
    id: str
    messages: tuple[Message, ...]
    given: str | None = None


@dataclass(frozen=True)
class AnswerRow:
    """A prompt and an answer as token ids; the end token belongs to the answer if the model wrote one."""

    id: str
    messages: tuple[Message, ...]
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    temperature: float = 0.0
    seed: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """The text."""
        return self.prompt_ids + self.answer_ids

    def to_json(self) -> str:
        """A line without its end."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True)
class Broken:
    """Lines that are no rows. first: number (from 1) and fault of the first few."""

    count: int = 0
    first: tuple[tuple[int, str], ...] = ()

    _SHOWN = 5

    def add(self, line: int, fault: str) -> Broken:
        """With one more."""
        return Broken(self.count + 1, self.first if len(self.first) >= self._SHOWN else (*self.first, (line, fault)))

    def __str__(self) -> str:
        listed = "; ".join(f"line {line}: {fault}" for line, fault in self.first)
        return f"{self.count} broken rows skipped ({listed}{'; ...' if self.count > len(self.first) else ''})"


def read_prompts(path: Path, *, strict: bool = False, given: bool = False) -> tuple[list[PromptRow], Broken]:
    """The prompts of a file whose lines have `prompt` (text), `messages` (ending with a user's) or `turns` (the first).

    given: the file's own answers are wanted: a line without `answer`, or a last message of the assistant's, is broken.
    Raises `ParameterError` for a file that cannot be read, or has no row, and for the first broken line if strict.
    """
    return _read(path, _answered if given else _prompt, strict=strict)


def read_answers(path: Path, *, strict: bool = False, vocabulary: int | None = None) -> tuple[list[AnswerRow], Broken]:
    """The answers of a file. Errors as of `read_prompts`.

    vocabulary: how many token ids there are, if that is known. A greater one is no broken line, but the file of another
    model's: `ParameterError`.
    """

    def parse(found: Any, index: int) -> AnswerRow:
        row = _answer(found, index)
        if vocabulary is not None and (most := max(row.tokens)) >= vocabulary:
            raise ParameterError(
                f"{path} line {index + 1} has token {most}, and the model knows {vocabulary}: they are answers of "
                "another model; have this one answer the prompts with `truedraft data`"
            )
        return row

    return _read(path, parse, strict=strict)


def _read(path: Path, parse: Callable[[Any, int], _Row], *, strict: bool) -> tuple[list[_Row], Broken]:
    rows: list[_Row] = []
    broken = Broken()
    for index, line in enumerate(_lines(path)):
        if not line.strip():
            continue
        try:
            rows.append(parse(json.loads(line), index))
        except ParameterError:  # a ValueError, and yet not the line's fault
            raise
        except (ValueError, TypeError) as error:
            fault = str(error).splitlines()[0][:100]
            if strict:
                raise InputError(f"{path} line {index + 1} is broken: {fault}; mend it, or leave out strict") from error
            broken = broken.add(index + 1, fault)
    if not rows:
        raise ParameterError(f"{path} has no usable row: {broken if broken.count else 'it is empty'}")
    return rows, broken


def _lines(path: Path) -> Iterable[bytes]:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).split(b"\n")
    except (OSError, EOFError) as error:
        raise ParameterError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _prompt(found: Any, index: int) -> PromptRow:
    fields = _object(found)
    if "messages" in fields:
        messages = _messages(fields["messages"])
    elif "turns" in fields:
        turns = fields["turns"]
        if not isinstance(turns, list) or not turns:
            raise ValueError("turns is not a list of texts")
        messages = _messages([{"role": "user", "content": turns[0]}])
    elif "prompt" in fields:
        messages = _messages([{"role": "user", "content": fields["prompt"]}])
    else:
        raise ValueError("it has no prompt, messages or turns")
    if messages[-1]["role"] != "user":
        raise ValueError("the last message is not the user's, so there is nothing to answer")
    return PromptRow(index, _name(fields, index), messages)


def _answered(found: Any, index: int) -> PromptRow:
    """A prompt with the answer that stands beside it."""
    fields = _object(found)
    if "messages" in fields:
        messages = _messages(fields["messages"])
        if messages[-1]["role"] != "assistant":
            raise ValueError("the last message is not the assistant's, so no answer is given")
        return PromptRow(index, _name(fields, index), messages[:-1], messages[-1]["content"])
    answer = _message({"role": "assistant", "content": fields.get("answer")})
    prompt = _prompt({**fields, "prompt": fields.get("prompt", fields.get("question"))}, index)
    return PromptRow(index, prompt.id, prompt.messages, answer["content"])


def _answer(found: Any, index: int) -> AnswerRow:
    fields = _object(found)
    prompt, answer = _ids(fields, "prompt_ids"), _ids(fields, "answer_ids")
    messages = tuple(fields.get("messages") or ())
    temperature, seed = float(fields.get("temperature", 0.0)), int(fields.get("seed", 0))
    return AnswerRow(_name(fields, index), messages, prompt, answer, temperature, seed)


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"it is a {type(found).__name__}, not an object")
    return found


def _name(fields: Mapping[str, Any], index: int) -> str:
    return str(fields.get("id", fields.get("question_id", index)))


def _ids(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    ids = fields.get(name)
    if not isinstance(ids, list) or not ids:
        raise ValueError(f"{name} is not a list of token ids, or empty")
    if any(type(token) is not int or token < 0 for token in ids):
        raise ValueError(f"{name} has something that is no token id")
    return tuple(ids)


def _messages(found: Any) -> tuple[Message, ...]:
    """Messages of one system prompt at most, then user and assistant in turns."""
    if not isinstance(found, list) or not found:
        raise ValueError("messages is not a list, or empty")
    messages = [_message(each) for each in found]
    roles = [message["role"] for message in messages]
    spoken = roles[1:] if roles[0] == "system" else roles
    if not spoken or any(role != ("user", "assistant")[place % 2] for place, role in enumerate(spoken)):
        raise ValueError(f"messages are by {', '.join(roles)[:60]}: expected user and assistant in turns, user first")
    return tuple(messages)


def _message(found: Any) -> Message:
    fields = _object(found)
    role, content = fields.get("role"), fields.get("content")
    if role not in ("system", "user", "assistant"):
        raise ValueError(f"a message is by {role!r}: expected system, user or assistant")
    if not isinstance(content, str) or not content.strip():
        raise ValueError("a message has no text")
    return {"role": role, "content": content}
