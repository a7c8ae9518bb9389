"""From a task's prompt to the token ids that every arm of a measurement is given."""

from __future__ import annotations

from typing import Any

from truedraft.errors import ParameterError
from truedraft.request import Facts, Parameters, make_session

__all__ = ["ids_of"]


def ids_of(facts: Facts, text: str, *, most: int | None = None) -> tuple[int, ...]:
    """One user message in the model's chat template, or the text itself where there is none; at most `most` ids.

    A longer prompt keeps its first ids. Raises `PromptError` for a text without tokens, `ParameterError` for a `most`
    that leaves none.
    """
    if most is not None and most < 1:
        raise ParameterError(f"most is {most}: expected at least 1, the tokens that a longer prompt keeps")
    prompt: Any = [{"role": "user", "content": text}] if getattr(facts.tokenizer, "chat_template", None) else text
    unlimited = Facts(facts.vocabulary, None, facts.end_tokens, facts.tokenizer)
    return tuple(make_session(prompt, Parameters(), unlimited).tokens[:most])
