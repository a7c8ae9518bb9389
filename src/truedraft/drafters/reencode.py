"""A small model with another tokenizer that drafts text: what it says is cut into the target's tokens and chosen.

String-level exact match (Timor et al. 2025): the model writes a few of its own likeliest tokens, their text is encoded
by the target's tokenizer, and the target says how far it agrees. It can draft every token of the target, where
`translation` drafts those alone that both have; but there is no q, so it is for texts whose next token is nearly sure,
greedy ones above all. Drafts are CHOSEN chains, which the target-only rule accepts exactly as far as the target would
have said them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from truedraft.core import Draft, Scores, Session, Shape, Tree, Verdict
from truedraft.drafters.model import DraftModel
from truedraft.drafters.translation import OtherIds
from truedraft.targets.cached import Nodes
from truedraft.targets.rows import common_prefix

__all__ = ["ReencodingDrafter"]

_WINDOW = 6
"""Tokens before a draft that are encoded with it, because how a text is cut depends on what stands before it."""

_FEW = 8
"""Tokens that the cache lacks are run with the last one if they are this few, else read before."""


@dataclass(eq=False)
class _Row:
    """A session's text in the model's own tokens. held: those committed in its row; run: those run behind them."""

    text: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    run: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)


class ReencodingDrafter:
    """`core.Drafter` by a causal language model of another tokenizer. target: the target's transformers tokenizer.

    ids: how the model reads a text, see `translation.OtherIds`. draft: its own tokenizer.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, model: DraftModel, ids: OtherIds, *, target: Any, draft: Any, vocabulary: int) -> None:
        self._model, self._ids, self._vocabulary = model, ids, vocabulary
        self._target, self._draft = target, draft
        self._rows: dict[Session, _Row] = {}

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """A chain a session, as deep as its shape allows; empty beyond the model's context."""
        limit, steps = self._model.context_length, dict[Session, int]()
        for session, shape in zip(sessions, shapes, strict=True):
            row = self._rows.setdefault(session, _Row())
            row.text, row.said = self._ids.read(session.tokens), []
            room = min(shape.depth, shape.nodes)
            steps[session] = room if limit is None else min(room, limit - len(row.text) + 1)
        going = [session for session in sessions if steps[session] > 0]
        for session in going:
            self._catch_up(session)
        while going:
            self._step(going)
            going = [session for session in going if len(self._rows[session].said) < steps[session]]
        return [self._drafted(session, shape) for session, shape in zip(sessions, shapes, strict=True)]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """What became of a draft is seen in the text."""

    def release(self, session: Session) -> None:
        """Free the session's cache row."""
        self._rows.pop(session, None)
        self._model.release(session)

    def _catch_up(self, session: Session) -> None:
        """Keep what was run and is part of the text now; make the row a beginning of the text but for a few tokens."""
        row = self._rows[session]
        if row.run and row.text[: len(row.held)] == row.held:
            kept = common_prefix(row.run, row.text[len(row.held) : -1])
            self._model.keep(session, range(kept))
        known = self._model.known(session, row.text[:-1])
        if len(row.text) - 1 - known > _FEW:
            known = len(row.text) - 1
        self._model.catch_up(session, row.text[:known])
        row.held, row.run = row.text[:known], []

    def _step(self, sessions: Sequence[Session]) -> None:
        """One more of the model's own tokens for each."""
        nodes = []
        for session in sessions:
            row = self._rows[session]
            new = row.said[-1:] if row.run else row.text[len(row.held) :]
            nodes.append(Nodes.chain(new, parent=len(row.run) - 1))
            row.run += new
        for session, score in zip(sessions, self._model.extend(sessions, nodes), strict=True):
            self._rows[session].said.append(int(score.logits[-1].argmax()))

    def _drafted(self, session: Session, shape: Shape) -> Draft:
        text = self._said(self._rows[session])
        tokens = self._encoded(session, text) if text else []
        return Draft(Tree.chain([session.root, *tokens[: min(shape.depth, shape.nodes)]]))

    def _said(self, row: _Row) -> str:
        """What the model's new tokens add to its text; a character that is not all there yet is left out."""
        before = self._draft.decode(row.text[-_WINDOW:])
        together = self._draft.decode([*row.text[-_WINDOW:], *row.said])
        if not row.said or not together.startswith(before):
            return ""
        new: str = together[len(before) :]
        return new.removesuffix("\N{REPLACEMENT CHARACTER}")

    def _encoded(self, session: Session, text: str) -> list[int]:
        """A text in the target's tokens, cut as behind the session's own if that keeps those as they are."""
        window = session.tokens[-_WINDOW:]
        before = self._target.decode(window, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        together = self._target.encode(before + text, add_special_tokens=False)
        if together[: len(window)] == window:
            found = together[len(window) :]
        else:
            found = self._target.encode(text, add_special_tokens=False)
        end = next((place for place, token in enumerate(found) if token >= self._vocabulary), len(found))
        return list(found[:end])
