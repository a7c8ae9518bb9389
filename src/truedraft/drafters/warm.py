"""Where the table of a recycling drafter comes from, and where it stays: a user's file, the one that ships, or none.

A file that ships knows what its model says on prompts of everyone's; nothing of a user's is ever written to it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import weakref
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from truedraft.drafters.count_file import load_table, save_table
from truedraft.drafters.count_table import CountTable
from truedraft.drafters.pass_cost import USUAL, PassCost
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.outputs import require_file

__all__ = ["Keeper", "open_table", "owner_of", "recycling", "shipped"]

_ROWS = 1 << 19
"""Of a new table: 20 MB for a vocabulary of up to 65,536 tokens, else 28 MB."""

_OFTEN = 40_000
"""Sightings, some ten thousand tokens, after which a changed table is written while its drafter is in use."""


def owner_of(config: Any, tokenizer: Any) -> str:
    """What tells models apart for tables: architecture, size and the meaning of the token ids."""
    text = config.get_text_config(decoder=True)
    size = f"{text.model_type}-{text.num_hidden_layers}x{text.hidden_size}-{text.vocab_size}"
    return size if tokenizer is None else f"{size}-{_digest(tokenizer.get_vocab())}"


def _digest(vocabulary: Mapping[str, int]) -> str:
    pieces = sorted(vocabulary.items(), key=lambda pair: pair[1])
    return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()[:12]


def shipped(owner: str) -> Path | None:
    """The file that ships for a model, if one does."""
    path = Path(str(resources.files("truedraft.drafters") / "tables" / f"{owner}.npz"))
    return path if path.is_file() else None


class Keeper:
    """Writes a table back to its file when it has learned something."""

    def __init__(self, table: CountTable, path: Path, owner: str) -> None:
        self._table, self._path, self._owner = table, path, owner
        self._written = table.sightings

    def keep(self) -> None:
        """Write the table if it has learned a lot since it was read or written."""
        if self._table.sightings - self._written >= _OFTEN:
            self.close()

    def close(self) -> None:
        """Write the table if it has learned anything since. Where that fails it warns: no text is to be lost by it."""
        if self._table.sightings > self._written:
            try:
                save_table(self._table, self._path, owner=self._owner)
            except OSError as error:
                warnings.warn(f"{self._path} was not written: {error.strerror}", stacklevel=2)
            self._written = self._table.sightings


def open_table(owner: str, vocabulary: int, path: Path | None = None) -> CountTable:
    """The table in the file at `path`; where there is none, what ships for the model; else an empty one.

    Raises `CorruptModelError` and `VocabularyError` for a file that is damaged or another model's.
    """
    for each in (path, shipped(owner)):
        if each is not None and each.is_file():
            return load_table(each, owner=owner, vocabulary=vocabulary)
    return CountTable(_ROWS, vocabulary)


def recycling(
    owner: str, vocabulary: int, *, share: bool = False, path: Path | None = None, passes: PassCost = USUAL
) -> RecycleDrafter:
    """A recycling drafter for a model; with a path, one that learns from all requests and keeps what it learns there.

    The file is written now and then, and when the drafter is gone or the program ends. Raises `ParameterError` if it
    cannot be written.
    """
    if path is not None:
        require_file("memory", path)
    table = open_table(owner, vocabulary, path)
    if path is None:
        return RecycleDrafter(table, share=share, passes=passes)
    keeper = Keeper(table, path, owner)
    drafter = RecycleDrafter(table, share=True, keep=keeper.keep, passes=passes)
    weakref.finalize(drafter, keeper.close)
    return drafter
