"""Options that hold several values with commas between."""

from __future__ import annotations

from truedraft.errors import ParameterError

__all__ = ["fractions_of", "integers_of", "names_of"]


def integers_of(name: str, text: str) -> list[int]:
    """The positive numbers of a comma-separated option such as 1,4,16."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = [0]
    if min(values) < 1:
        raise ParameterError(f"{name} is {text!r}: expected positive numbers with commas between, such as 1,4,16")
    return values


def fractions_of(name: str, text: str) -> list[float]:
    """The numbers of a comma-separated option such as 0,0.6."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"{name} is {text!r}: expected numbers with commas between, such as 0,0.6") from None


def names_of(text: str) -> list[str]:
    """The words of a comma-separated option such as ngram,recycle."""
    return [part.strip() for part in text.split(",") if part.strip()]
