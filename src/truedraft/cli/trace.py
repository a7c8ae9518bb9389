"""Trace files: a header, then one JSON object a round, for the round viewer and for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TextIO

from truedraft.errors import ParameterError
from truedraft.results import Chunk

__all__ = ["TraceWriter"]

FORMAT = 1


class TraceWriter:
    """Writes rounds as they happen, so that an interrupted run leaves a trace that can be read."""

    def __init__(self, file: TextIO, tokenizer: Any) -> None:
        self._file = file
        self._tokenizer = tokenizer

    @classmethod
    def open(cls, path: Path, tokenizer: Any, header: Mapping[str, Any]) -> Self:
        """Start a file with its header; raises `ParameterError` if it cannot be written."""
        try:
            writer = cls(path.open("w", encoding="utf-8"), tokenizer)
        except OSError as error:
            raise ParameterError(f"trace is {str(path)!r}: cannot write there ({error.strerror})") from error
        writer._line({"trace": FORMAT, **header})
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: Chunk) -> None:
        """One round of one session."""
        record = chunk.round
        emitted = record.verdict.tokens[: max(record.emitted, 0)]
        entry = {"session": chunk.index, **record.to_json()}
        entry["pieces"] = [self._piece(token) for token in record.draft.tree.tokens]
        entry["text"] = [self._piece(token) for token in emitted]
        entry["finish_reason"] = None if chunk.finish_reason is None else str(chunk.finish_reason)
        self._line(entry)

    def _piece(self, token: int) -> str:
        return "" if self._tokenizer is None else str(self._tokenizer.decode([token]))

    def _line(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._file.flush()
