"""A count table in a file: written whole or not at all, and read only by the model that it was made with.

The file is an npz archive of the rows in use and a line of JSON that says version, size, owner and checksum. The owner
is whatever string tells models apart for the caller; nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truedraft.drafters.count_table import CountTable
from truedraft.errors import CorruptModelError, VocabularyError

__all__ = ["VERSION", "load_table", "save_table"]

VERSION = 1
"""Of the file's layout."""

_NAMES = ("places", "checks", "counts", "tokens", "shares")

_Arrays = Mapping[str, NDArray[Any]]

_DAMAGE = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What a damaged archive may look like: a wrong bit can say that it is encrypted, or packed in an unknown way."""


def save_table(table: CountTable, path: Path, *, owner: str) -> None:
    """Write a table. Readers see the old file or the new one, never a part."""
    places = np.flatnonzero(table.arrays["counts"]).astype(np.uint32)
    arrays: dict[str, Any] = {"places": places, **{name: table.arrays[name][places] for name in _NAMES[1:]}}
    facts = {"version": VERSION, "owner": owner, "vocabulary": table.vocabulary, "rows": table.rows}
    header = json.dumps(facts | {"checksum": _checksum(facts, arrays)})
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, header=np.array(header), **arrays)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_table(path: Path, *, owner: str, vocabulary: int) -> CountTable:
    """Read a table.

    Raises `CorruptModelError` for a damaged or foreign file, `VocabularyError` for one that belongs to another model,
    `FileNotFoundError` if there is none.
    """
    facts, arrays = _read(path)
    if (facts["owner"], facts["vocabulary"]) != (owner, vocabulary):
        raise VocabularyError(
            f"{path} was made by {facts['owner']} with {facts['vocabulary']} tokens and the target is {owner} with "
            f"{vocabulary}: expected a file of the same model, so name another file or delete this one"
        )
    table = CountTable(facts["rows"], vocabulary)
    places = arrays["places"]
    for name in _NAMES[1:]:
        table.arrays[name][places] = arrays[name]
    return table


def _read(path: Path) -> tuple[dict[str, Any], _Arrays]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            facts = dict(json.loads(str(archive["header"])))
            arrays = {name: archive[name] for name in _NAMES}
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise CorruptModelError(f"{path} is no count table or a damaged one ({error}): delete it") from error
    checksum = facts.pop("checksum", None)
    if checksum != _checksum(facts, arrays):
        raise CorruptModelError(f"{path} is damaged: its checksum does not fit its contents, so delete it")
    if facts["version"] != VERSION:
        raise CorruptModelError(f"{path} has version {facts['version']}: expected {VERSION}, so delete it")
    return facts, arrays


def _checksum(facts: Mapping[str, Any], arrays: _Arrays) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in _NAMES:
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
