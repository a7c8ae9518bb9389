"""How often to ask a head whose trees do not pay: ever more seldom, until one does.

To find out that no node is worth its place in a full pass costs a head a pass of its own. What rounds yielded that are
over decides, never the tokens of a draft. This file refuses to know heads.
"""

from __future__ import annotations

from truedraft.drafters.best_growth import Price

__all__ = ["Rest"]

_USUAL = 0.5
"""A first bet is taken to be right so often before anything was seen."""
_FADING = 0.02
"""How much a text's latest round counts. Little: a round emits one token or five, and a rest costs what it misses."""
_LONGEST = 32


class Rest:
    """Of the rounds of about one batch size. price: what trees cost there."""

    def __init__(self, price: Price) -> None:
        self._yield = (1.0 + _USUAL) / (price.nodes[1] + price.level)
        self._span = self._left = 0
        self._stretch()

    def takes(self) -> bool:
        """Whether the round that begins goes without the head."""
        self._left -= 1
        return self._left >= 0

    def settle(self, tokens: float, cost: float, texts: int = 1) -> None:
        """A round with the head emitted so many tokens a text, and cost so many passes without nodes."""
        self._yield += (1 - (1 - _FADING) ** texts) * (tokens / cost - self._yield)
        self._stretch()

    def _stretch(self) -> None:
        """Begin a rest, twice as long as the one before, unless rounds with the head yield more than those without."""
        self._span = 0 if self._yield >= 1 else min(2 * self._span or 1, _LONGEST)
        self._left = self._span
