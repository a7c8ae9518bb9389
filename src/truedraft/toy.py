"""Exact toys: a target and drafters whose laws are known to the last digit.

They are the test doubles of this project and of its users: a language is a table from a context to logits, so every
probability can be enumerated, and the scripted drafters reach on purpose what a real drafter reaches by luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from truedraft import drawing
from truedraft.core import Branch, Dice, Draft, Law, Scores, Session, Shape, Tree, Verdict

__all__ = ["Language", "Script", "TabularDrafter", "TabularTarget", "random_language"]

Language = Callable[[tuple[int, ...]], Tensor]
"""A context (token ids, oldest first) to the logits [V] of the next token."""


def random_language(vocabulary: int, *, order: int = 2, seed: int = 0, scale: float = 1.0) -> Language:
    """A language whose logits depend on the last `order` tokens; float64, normal with deviation `scale`."""

    def logits(context: tuple[int, ...]) -> Tensor:
        key = seed
        for token in context[-order:] if order else ():
            key = (key * 1_000_003 + token + 1) % (2**31)
        generator = torch.Generator().manual_seed(key)
        return scale * torch.randn(vocabulary, generator=generator, dtype=torch.float64)

    return logits


@dataclass(frozen=True)
class TabularTarget:
    """`core.Target` that looks its logits up. It keeps nothing, so it can forget nothing."""

    language: Language

    def require(self, texts: int, length: int) -> None:
        """A table always fits."""

    def score(self, sessions: Sequence[Session], trees: Sequence[Tree], taps: Sequence[int]) -> list[Scores]:
        """Logits [N, V] of every tree; a language has no layers to tap."""
        return [self._score(session, tree) for session, tree in zip(sessions, trees, strict=True)]

    def commit(self, sessions: Sequence[Session], paths: Sequence[tuple[int, ...]]) -> None:
        """Nothing is kept."""

    def release(self, session: Session) -> None:
        """Nothing is kept."""

    def _score(self, session: Session, tree: Tree) -> Scores:
        contexts = [
            (*session.tokens, *(tree.tokens[ancestor] for ancestor in tree.path(node))) for node in range(len(tree))
        ]
        return Scores(torch.stack([self.language(context) for context in contexts]))


@dataclass(frozen=True)
class TabularDrafter:
    """`core.Drafter` that draws from its own language, under the session's own sampling parameters and a given law."""

    language: Language
    law: Law = Law.SAMPLED
    taps: tuple[int, ...] = ()

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """A fixed tree a session: the shape's branching, or its width at every level until the nodes run out."""
        return [self._draft(session, shape) for session, shape in zip(sessions, shapes, strict=True)]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """A table learns nothing."""

    def release(self, session: Session) -> None:
        """A table keeps nothing."""

    def _draft(self, session: Session, shape: Shape) -> Draft:
        if shape.depth == 0:
            return Draft.empty(session.root)
        tokens, parents, rows = [session.root], [-1], list[Tensor | None]()
        frontier = {0: (tuple(session.tokens), session.sampler.branch(session.tokens))}
        for level in range(shape.depth):
            grown = dict[int, tuple[tuple[int, ...], Branch]]()
            for node, (context, branch) in frontier.items():
                q = branch.distribution(self.language(context))
                width = shape.branching[level] if shape.branching else shape.width
                drawn = _draw(self.law, q, min(width, shape.nodes + 1 - len(tokens)), session.dice)
                rows += [None] * (node + 1 - len(rows))
                rows[node] = q if drawn else None
                for token in drawn:
                    grown[len(tokens)] = ((*context, token), branch.child(token))
                    tokens.append(token)
                    parents.append(node)
            frontier = grown
        rows += [None] * (len(tokens) - len(rows))
        tree = Tree(tuple(tokens), tuple(parents))
        return Draft(tree, self.law, None if self.law is Law.CHOSEN else tuple(rows))


def _draw(law: Law, q: Tensor, count: int, dice: Dice) -> list[int]:
    """Children under a law; how many depends on q and the shape, never on what is drawn."""
    if law is Law.CHOSEN:
        return drawing.chosen(q, count)
    if law is Law.SAMPLED:
        return drawing.sampled(q, count, dice)
    if law is Law.SAMPLED_WITHOUT_REPLACEMENT:
        return drawing.without_replacement(q, count, dice)
    return drawing.greedy_draft(q, count, dice)


@dataclass(frozen=True)
class Script:
    """`core.Drafter` that knows how its texts go on (an oracle), and errs where it is told to.

    texts: whole sequences, prompt and output. A session is drafted for along the text that it is a beginning of.
    right: how many tokens of each draft are right before a wrong one comes; None: all of them; 0: the first is wrong.
    vocabulary: the wrong token is the right one plus one, modulo this. decoys: that many wrong siblings stand before
    every right token (never more than the shape's width allows).
    """

    texts: Sequence[Sequence[int]]
    vocabulary: int
    right: int | None = None
    decoys: int = 0
    taps: tuple[int, ...] = field(default=())

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """The scripted continuation, as deep as the shape and the text allow."""
        return [self._draft(session, shape) for session, shape in zip(sessions, shapes, strict=True)]

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """A script learns nothing."""

    def release(self, session: Session) -> None:
        """A script keeps nothing."""

    def _draft(self, session: Session, shape: Shape) -> Draft:
        known = len(session.tokens)
        ahead = next((text[known:] for text in self.texts if list(text[:known]) == session.tokens), [])
        tokens, parents, stem = [session.root], [-1], 0
        for place, token in enumerate(ahead[: shape.depth]):
            wrong = [(token + error) % self.vocabulary for error in range(1, self.decoys + 2)]
            here = [*wrong[: min(self.decoys, shape.width - 1)], token if self._is_right(place) else wrong[-1]]
            tokens += here
            parents += [stem] * len(here)
            stem = len(tokens) - 1
        return Draft(Tree(tuple(tokens), tuple(parents)))

    def _is_right(self, place: int) -> bool:
        return self.right is None or place < self.right
