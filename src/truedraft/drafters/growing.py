"""What trees that grow have in common: nodes with their histories, and how a drafter's own probabilities rank tokens.

This file refuses to know which nodes grow and when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from truedraft.core import Branch, Session
from truedraft.errors import ParameterError, UnsupportedModelError

__all__ = ["GrowingNodes", "likeliest", "ranking", "surely"]


class GrowingNodes:
    """What both kinds of growth keep of every node: token, parent and depth, and the history that it stands for."""

    def __init__(self, session: Session, ids: Tensor | None = None) -> None:
        self.ids = ids
        self.tokens, self.parents, self.depths = [session.root], [-1], [0]
        self._branches: dict[int, Branch] = {0: session.sampler.branch(session.tokens)}
        self._guarded = bool(getattr(session.sampler, "processors", ()))
        self.frontier: list[int] = [0]
        """The nodes whose logits are wanted next."""

    @property
    def takes_ids(self) -> bool:
        """Whether logits are wanted of certain ids, rather than of all tokens."""
        return self.ids is not None

    def token(self, node: int) -> int:
        """The token of a node."""
        return self.tokens[node]

    def parent(self, node: int) -> int:
        """The parent of a node, -1 for the root."""
        return self.parents[node]

    def append(self, parent: int, token: int) -> int:
        """A new node; returns its number."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        return len(self.tokens) - 1

    def branch(self, node: int) -> Branch:
        """The history at a node whose parent has been asked for its distribution before."""
        if node not in self._branches:
            self._branches[node] = self._branches[self.parents[node]].child(self.tokens[node])
        return self._branches[node]

    def law(self, node: int, logits: Tensor) -> Tensor | None:
        """The session's distribution [V] of what follows a node, from its logits [V]; None where there is none.

        So it is where a logits processor leaves no token that the drafter knows, and where the logits are no numbers.
        The path to the node alone decides that, so it may stay without children under every law.
        """
        try:
            return self.branch(node).distribution(logits)
        except (ParameterError, UnsupportedModelError):  # nothing of the text's: the target has its own say
            return None

    def may_grow(self, q: Tensor, logits: Tensor, tokens: Sequence[int], confidence: float) -> list[bool]:
        """Which children of a node may have children: those that the drafter is sure enough of, see `surely`.

        A logits processor is not asked what follows a token that it forbade: it may have no answer to that.
        """
        sure = surely(logits, tokens, confidence)
        if not self._guarded:
            return sure
        return [each and float(q[token]) > 0 for each, token in zip(sure, tokens, strict=True)]


def likeliest(logits: Tensor, ids: Tensor, k: int) -> list[tuple[list[int], list[float]]]:
    """The k likeliest of the tokens `ids` [V] and their probabilities, by every row of logits [F, V].

    None for a row that is no numbers.
    """
    shares, places = logits.float().softmax(-1).topk(min(k, logits.shape[-1]))
    found = zip(ids[places].tolist(), shares.tolist(), strict=True)
    return [([], []) if math.isnan(chances[0]) else (tokens, chances) for tokens, chances in found]


def ranking(q: Tensor, logits: Tensor) -> Tensor:
    """What to rank a node's possible children by [V]: q, or, where q knows one token only, the model's own softmax.

    A greedy sampler's q says nothing of second choices. Its first choice, which penalties may have changed, trades
    places with the softmax's.
    """
    if int(torch.count_nonzero(q)) > 1:
        return q
    plain = logits.float().softmax(0)
    first, likeliest = int(q.argmax()), int(plain.argmax())
    plain[[first, likeliest]] = plain[[likeliest, first]]
    return plain


def surely(logits: Tensor, tokens: Sequence[int], confidence: float) -> list[bool]:
    """Which tokens the model's own softmax gives at least this probability."""
    if confidence <= 0:
        return [True] * len(tokens)
    probabilities = logits.float().softmax(0)
    return [float(probabilities[token]) >= confidence for token in tokens]
