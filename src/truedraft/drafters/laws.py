"""Under which law a drafter that has a distribution draws for a session. It knows neither models nor how to draw."""

from __future__ import annotations

import torch

from truedraft.core import Law, Session, Shape

__all__ = ["GreedySessions", "is_greedy", "keeps_order", "law_for"]


def is_greedy(session: Session, vocabulary: int, device: torch.device) -> bool:
    """Whether the session's sampler is certain even where the logits [V] leave almost everything open."""
    nearly_flat = torch.arange(vocabulary, device=device) / vocabulary
    return int(torch.count_nonzero(session.sampler.branch(session.tokens).distribution(nearly_flat))) == 1


class GreedySessions:
    """Which sessions are greedy: each is asked once, at first sight. vocabulary: V of the logits that it gets."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._vocabulary, self._device = vocabulary, device
        self._known: dict[Session, bool] = {}

    def __len__(self) -> int:
        """How many sessions are remembered."""
        return len(self._known)

    def __getitem__(self, session: Session) -> bool:
        """Whether the session is greedy."""
        if session not in self._known:
            self._known[session] = is_greedy(session, self._vocabulary, self._device)
        return self._known[session]

    def release(self, session: Session) -> None:
        """Forget the session."""
        self._known.pop(session, None)


def keeps_order(session: Session) -> bool:
    """Whether the session's sampler is known to rank tokens as their logits do."""
    return bool(getattr(session.sampler, "keeps_order", False))


def law_for(shape: Shape, *, asked: Law | None, greedy: bool, grown: Law = Law.GREEDY_DRAFT) -> Law:
    """The law of a draft within a shape.

    asked: the law that a drafter was made with; None leaves it to the session. A greedy one gets CHOSEN, also where
    COUPLED is asked for, since noise moves no draw that is certain. Else chains are SAMPLED, trees with a branching
    GREEDY_DRAFT, and trees without one what `grown` says.
    """
    if asked is not None and not (asked is Law.COUPLED and greedy):
        return asked
    if greedy:
        return Law.CHOSEN
    if shape.width == 1:
        return Law.SAMPLED
    return Law.GREEDY_DRAFT if shape.branching else grown
