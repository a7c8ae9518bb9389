"""A causal language model with a slot cache: rows of committed tokens, each followed by a tree of uncommitted nodes.

The target and every drafter that is a model run on it. It knows no session, no rule and no sampling parameter: rows
are named by any hashable key, and tokens come and go as the caller says.

Every call of the model is described by one frozen `passes.Pass` (rows, committed lengths, parents and depths of the
uncommitted nodes), from which position ids, masks and the places of new keys and values follow. It is current
(`passes.current()`) while the model runs. An attention function of one's own, registered with transformers'
`AttentionInterface` and chosen by name when the model is loaded, can read it there and work row by row; it gets no
mask unless one of `masks.MASKED_ATTENTION` is registered under its name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from truedraft.core import Scores
from truedraft.errors import ParameterError, PromptError, UnsupportedModelError
from truedraft.targets.changes import state_of
from truedraft.targets.forward import features_of, logits_of, run_model
from truedraft.targets.memory import available_memory, check_fits
from truedraft.targets.passes import Pass, depths_after
from truedraft.targets.rows import Row, Rows, common_prefix
from truedraft.targets.slots import SlotCache
from truedraft.targets.support import check_supported, context_length
from truedraft.targets.trial import survey

__all__ = ["CachedModel", "Nodes"]

_STEP = 64  # slots; the capacity is usually a multiple


@dataclass(frozen=True)
class Nodes:
    """New, not yet committed nodes of one row.

    tokens [n] and parents [n] are parallel. A parent is an index into the row's uncommitted nodes so far, those of
    earlier `extend` calls first, then these; -1 stands directly after the committed prefix.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.parents):
            raise ParameterError(f"nodes need equally many tokens and parents and at least one, got {self}")

    @classmethod
    def chain(cls, tokens: Sequence[int], parent: int = -1) -> Nodes:
        """Nodes that follow one another; the first follows the newest node so far, which is `parent`."""
        return cls(tuple(tokens), tuple(range(parent, parent + len(tokens))))


class CachedModel:
    """A causal language model, in evaluation mode while it runs, and the keys and values of its rows.

    chunk: most tokens that `read` gives the model at once. available: bytes of memory that a device has left. ragged:
    whether the model can run on passes without padding, weights: the kind that it multiplies by (`fast.prepare` says
    both). context_length is None without a limit. Raises `UnsupportedModelError` for a model that cannot be decoded
    speculatively; a small tree is tried out.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        chunk: int = 512,
        available: Callable[[torch.device], int] = available_memory,
        ragged: bool = False,
        weights: str = "auto",
    ) -> None:
        if chunk < 1:
            raise ParameterError(f"chunk is {chunk}; it must be at least 1")
        if not isinstance(model, PreTrainedModel):
            raise UnsupportedModelError(f"{type(model).__name__} is not a transformers model")
        check_supported(model)
        self.model: Any = model
        self.device, self.dtype = model.device, model.dtype
        text: Any = model.config.get_text_config(decoder=True)
        self.layers: int = text.num_hidden_layers
        self.hidden_size: int = text.hidden_size
        self.context_length = context_length(model.config)
        self._shapes, self.vocab_size = survey(model)
        embeddings: Any = model.get_input_embeddings()
        self._readable: int = embeddings.num_embeddings
        self._chunk, self._available = chunk, available
        self.ragged, self.weights = ragged, weights
        self._cache, self._rows = self._empty()
        self._state = state_of(model)

    def _empty(self) -> tuple[SlotCache, Rows]:
        cache = SlotCache(self._shapes, dtype=self.dtype, device=self.device)
        return cache, Rows(cache)

    def fork(self, available: Callable[[torch.device], int] | None = None) -> CachedModel:
        """The same model with rows of its own, none yet: nobody who uses the one notices who uses the other."""
        other = copy.copy(self)
        other._available = available or self._available
        other._cache, other._rows = other._empty()
        return other

    # ── what a row holds ──────────────────────────────────────────────────────────────────────────────────────────

    def cached(self, key: Hashable) -> int:
        """How many committed tokens the row holds; 0 if it is unknown."""
        return self._rows[key].length if key in self._rows else 0

    def known(self, key: Hashable, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first one on, the row holds as committed ones."""
        return common_prefix(self._rows[key].committed, tokens) if key in self._rows else 0

    @torch.inference_mode()
    def keep(self, key: Hashable, path: Sequence[int]) -> None:
        """The uncommitted nodes on `path`, each the child of the one before, become committed; all others vanish."""
        if key not in self._rows:
            raise ParameterError("there is no row to keep nodes of: extend it first")
        row = self._rows[key]
        for before, node in zip((-1, *path), path, strict=False):
            if not 0 <= node < len(row.nodes) or row.parents[node] != before:
                raise ParameterError(f"path {tuple(path)} does not lead from the committed tokens from child to child")
        in_place = common_prefix(path, range(len(path)))
        if in_place < len(path):
            slots = [row.length + node for node in path[in_place:]]
            self._cache.compact(self._rows.index(key), row.length + in_place, slots)
        row.settle([row.nodes[node] for node in path])

    def rewind(self, key: Hashable, length: int) -> None:
        """Forget the committed tokens beyond `length`, and every uncommitted node."""
        if not 0 <= length <= self.cached(key):
            raise ParameterError(f"cannot rewind to {length} tokens: the row holds {self.cached(key)}")
        if key in self._rows:
            self._rows[key].forget(length)

    @torch.inference_mode()
    def reserve(self, key: Hashable, length: int) -> None:
        """Make sure that the row can hold `length` slots; `OutOfMemoryError` before anything is allocated."""
        self._admit([key], length)
        self._rows[key].reserved = max(self._rows[key].reserved, length)

    @torch.inference_mode()
    def require(self, rows: int, length: int) -> None:
        """Make room for so many texts of `length` tokens, and for a tree behind them, so that nothing grows later.

        `OutOfMemoryError` before anything is allocated. On a CPU memory is taken only as texts grow into it. What freed
        rows hold is dropped if the model's weights have changed since.
        """
        if (state := state_of(self.model)) != self._state:
            self._rows.forget()
            self._state = state
        self._make_room(max(rows, len(self._rows)), length + _STEP)

    @torch.inference_mode()
    def release(self, key: Hashable) -> None:
        """Free the row; nothing happens if it is unknown. A later text that begins alike may reuse what it holds."""
        if key in self._rows:
            self._rows.free(key)

    @property
    def held(self) -> int:
        """Bytes of its buffers; on a CPU those that no text has grown into yet take no memory."""
        return self._cache.size(self._cache.rows, self._cache.capacity)

    def forget(self) -> None:
        """Drop what freed rows still hold: a text that begins alike is then read anew, for whoever times reading.

        If no row is in use, the memory is given back too.
        """
        self._rows.forget()
        if not len(self._rows):
            self._rows.resize(0, 0)
            self._cache.resize(0, 0)

    # ── running the model ─────────────────────────────────────────────────────────────────────────────────────────

    def catch_up(self, key: Hashable, tokens: Sequence[int], taps: Sequence[int] = ()) -> Tensor | None:
        """Make the row's committed tokens exactly these: forget what differs, `read` what is missing."""
        known = self.known(key, tokens)
        self.rewind(key, known)
        return self.read(key, tokens[known:], taps)

    @torch.inference_mode()
    def read(self, key: Hashable, tokens: Sequence[int], taps: Sequence[int] = ()) -> Tensor | None:
        """Append committed tokens [P]; no logits are computed. Features [P, T, H], None without taps.

        Tap i is the input of layer i; tap L, the number of layers, is the normalised output of the last one. Without
        taps the model runs only on what no row holds yet. Raises `PromptError` beyond the context.
        """
        self._check_input(tokens, taps)
        length = self.cached(key) + len(tokens)
        if self.context_length is not None and length > self.context_length:
            raise PromptError(f"{length} tokens do not fit the context of {self.context_length}; shorten the text")
        self._admit([key], length)
        if self._rows[key].nodes:
            raise ParameterError("the row has uncommitted nodes: keep a path of them, or rewind, before reading on")
        known = 0 if taps else self._rows.recall(key, tokens)
        features = [torch.empty(0, len(taps), self.hidden_size, dtype=self.dtype, device=self.device)]
        for start in range(known, len(tokens), self._chunk):
            chunk = tokens[start : start + self._chunk]
            what, output = self._run([key], [Nodes.chain(chunk)], taps, scored=False)
            if taps:
                features += features_of(output, what, taps)
            self._rows[key].settle(chunk)
        return torch.cat(features) if taps else None

    @torch.inference_mode()
    def extend(self, keys: Sequence[Hashable], nodes: Sequence[Nodes], taps: Sequence[int] = ()) -> list[Scores]:
        """One forward pass over several rows; per row logits [n, V] and features [n, T, H] of the new nodes.

        A key that has no row gets an empty one. Raises `ParameterError` for a node that would stand beyond the context.
        """
        if len(set(keys)) < len(keys):
            raise ParameterError("a row can be extended once in a pass, but a key is named twice")
        for key, new in zip(keys, nodes, strict=True):
            self._check_input(new.tokens, taps)
            self._check_nodes(key, new)
        if not keys:
            return []
        starts = [self._rows[key].start for key in keys if key in self._rows]
        self._admit(keys, max(starts, default=0) + max(len(new.tokens) for new in nodes))
        what, output = self._run(keys, nodes, taps)
        logits = logits_of(output, what)
        features = features_of(output, what, taps) if taps else [None] * len(keys)
        scores = [Scores(row, tapped) for row, tapped in zip(logits, features, strict=True)]
        by_row = dict(zip((span.row for span in what.spans), scores, strict=True))
        return [by_row[self._rows.index(key)] for key in keys]

    def _run(
        self, keys: Sequence[Hashable], nodes: Sequence[Nodes], taps: Sequence[int], *, scored: bool = True
    ) -> tuple[Pass, Any]:
        """Run the model on new nodes of rows that have room for them: what it ran on, in the order of the rows."""
        by_row = dict(sorted((self._rows.index(key), new) for key, new in zip(keys, nodes, strict=True)))
        rows = [self._rows.held[index] for index in by_row]
        spans = [row.span(index, new.parents) for row, (index, new) in zip(rows, by_row.items(), strict=True)]
        what = Pass(tuple(spans), self.device, ragged=self.ragged)
        self._cache.begin(what)
        tokens = [new.tokens for new in by_row.values()]
        output = run_model(self.model, what, tokens, self._cache, taps=taps, scored=scored)
        for row, new, span in zip(rows, tokens, spans, strict=True):
            row.grow(new, span)
        return what, output

    # ── what is asked for must make sense, and fit ────────────────────────────────────────────────────────────────

    def _check_input(self, tokens: Sequence[int], taps: Sequence[int]) -> None:
        for tap in taps:
            if not 0 <= tap <= self.layers:
                raise ParameterError(f"tap {tap} is not in 0 .. {self.layers}, the layers of the model and its output")
        if tokens and not 0 <= min(tokens) <= max(tokens) < self._readable:
            wrong = next(token for token in tokens if not 0 <= token < self._readable)
            raise PromptError(f"token id {wrong} is not in 0 .. {self._readable - 1}, the ids that the model can read")

    def _check_nodes(self, key: Hashable, new: Nodes) -> None:
        row = self._rows[key] if key in self._rows else Row()
        if any(not -1 <= parent < place for place, parent in enumerate(new.parents, start=len(row.nodes))):
            raise ParameterError(f"nodes follow the committed tokens (-1) or earlier nodes, got parents {new.parents}")
        last = row.length + max(depths_after(row.depths, new.parents))
        if self.context_length is not None and last >= self.context_length:
            raise ParameterError(f"a node at position {last} is beyond the context of {self.context_length} tokens")

    def _admit(self, keys: Sequence[Hashable], length: int) -> None:
        """See to it that every key has a row, and that rows hold `length` slots."""
        arrivals = [key for key in keys if key not in self._rows]
        self._make_room(len(self._rows) + len(arrivals), length)
        for key in arrivals:
            self._rows.take(key)

    def _make_room(self, rows: int, length: int) -> None:
        """At least so many rows of so many slots: generously if half of the memory left is enough, else barely."""
        have = self._cache
        if rows <= have.rows and length <= have.capacity:
            return
        capacity = have.capacity
        if length > capacity:
            capacity = -(-max(length, capacity + capacity // 4) // _STEP) * _STEP
        plenty = (have.rows if rows <= have.rows else rows + rows // 2, capacity)
        barely = (rows, max(length, self._rows.needed))
        available = self._available(self.device)
        size = plenty if have.size(*plenty) <= available // 2 else barely
        check_fits(have.size(*size), available, f"a cache of {size[0]} texts of {size[1]} tokens")
        have.resize(*size, used=min(size[1], self._rows.used))
        self._rows.resize(*size)
