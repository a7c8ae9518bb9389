"""Whether two tokenizers give the same meaning to the same token ids.

A drafter whose ids mean something else is still lossless and never accepted: a fault without a symptom, so it is
refused when the models are loaded. Sizes may differ; what only one side knows is never drafted or never seen.
"""

from __future__ import annotations

import warnings
from typing import Any

from truedraft.errors import VocabularyError

__all__ = ["check_vocabulary"]


def check_vocabulary(target: Any, draft: Any) -> None:
    """Compare two transformers tokenizers id by id.

    Raises `VocabularyError` at the first id with two meanings. Where the meanings are special tokens on both sides, or
    the two only disagree on which id begins or ends a text, drafts are at worst rejected there: a warning.
    """
    ours, theirs = _meanings(target), _meanings(draft)
    differing = [index for index in sorted(ours.keys() & theirs.keys()) if ours[index] != theirs[index]]
    special = _special_ids(target) & _special_ids(draft)
    if wrong := [index for index in differing if index not in special]:
        raise VocabularyError(
            f"token id {wrong[0]} is {ours[wrong[0]]!r} for the target and {theirs[wrong[0]]!r} for the drafter "
            f"({len(wrong)} ids differ): choose a drafter with the target's own tokenizer, or translate"
        )
    notes = [f"special token {index} is {ours[index]!r} and {theirs[index]!r}" for index in differing]
    notes += [
        f"{role} is {getattr(target, role)} and {getattr(draft, role)}"
        for role in ("bos_token_id", "eos_token_id")
        if getattr(target, role, None) != getattr(draft, role, None)
    ]
    if notes:
        warnings.warn(f"target and drafter differ, harmlessly: {'; '.join(notes)}", stacklevel=2)


def _meanings(tokenizer: Any) -> dict[int, str]:
    """Token id to token."""
    return {index: token for token, index in tokenizer.get_vocab().items()}


def _special_ids(tokenizer: Any) -> set[int]:
    """The ids that the tokenizer calls special, and those that were added to it as such."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(index for index, token in added.items() if token.special)}
