"""The nouns of speculative decoding and the contracts between them.

A drafter bets on several next tokens (`Draft`), the target scores all bets in one pass (`Scores`), a rule decides
(`Verdict`), and the text grows (`Session`). This page refuses to know any model, tokenizer, sampling parameter or rule.

Throughout, p is the target's distribution and q the one a draft token was really drawn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from truedraft.errors import ParameterError

__all__ = [
    "Branch",
    "Dice",
    "Distributions",
    "Draft",
    "Drafter",
    "Ending",
    "Finish",
    "FinishReason",
    "Law",
    "Policy",
    "Round",
    "Rule",
    "Sampler",
    "Scores",
    "Session",
    "Shape",
    "Statistics",
    "Target",
    "Timings",
    "TokenLogprobs",
    "Tree",
    "Verdict",
]


# ── what a drafter bets ───────────────────────────────────────────────────────────────────────────────────────────


class Law(StrEnum):
    """How the children of a draft-tree node came about. A rule is lossless only for the laws it is proved for."""

    CHOSEN = "chosen"
    """Fixed without drawing at random (n-gram, top-k, argmax): there is no q."""
    SAMPLED = "sampled"
    """Siblings are independent draws from q, in node order; duplicates may occur."""
    SAMPLED_WITHOUT_REPLACEMENT = "sampled-without-replacement"
    """Siblings are successive draws from q, each with the earlier ones removed and q renormalised."""
    GREEDY_DRAFT = "greedy-draft"
    """All siblings but the last are the top of q; the last is drawn from q without them."""
    COUPLED = "coupled"
    """Siblings are the top of log q + Gumbel noise that the target's own draw shares."""


@dataclass(frozen=True)
class Tree:
    """A draft tree. Node 0 is the last committed token, every later node a bet; a chain is a tree.

    tokens [N] and parents [N] are parallel; parents[0] is -1 and parents[i] < i. Siblings stand in draw order.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.parents) or self.parents[0] != -1:
            raise ParameterError(f"a tree needs equally many tokens and parents and a root, got {self}")
        if any(not 0 <= parent < node for node, parent in enumerate(self.parents) if node):
            raise ParameterError(f"a tree lists parents before children, got parents {self.parents}")

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> Tree:
        """The tree in which every token follows the one before; tokens[0] is the root."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Steps from the root, per node [N]."""
        depth = [0]
        for parent in self.parents[1:]:
            depth.append(depth[parent] + 1)
        return tuple(depth)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of every node [N], in draw order."""
        children: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents[1:], start=1):
            children[parent].append(node)
        return tuple(map(tuple, children))

    @cached_property
    def mask(self) -> Tensor:
        """Bool [N, N]: row i is true at i and at i's ancestors, the nodes that i may attend to."""
        mask = torch.eye(len(self), dtype=torch.bool)
        for node, parent in enumerate(self.parents[1:], start=1):
            mask[node] |= mask[parent]
        return mask

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root (excluded) to `node` (included)."""
        path = []
        while node > 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))


@dataclass(frozen=True, eq=False)
class Draft:
    """A tree of bets and how they were made.

    q [N] holds, for every node with children, the distribution [V] from which the first child was drawn, after all
    sampling processors; None elsewhere. A CHOSEN draft has no q.
    """

    tree: Tree
    law: Law = Law.CHOSEN
    q: tuple[Tensor | None, ...] | None = None

    def __post_init__(self) -> None:
        if (self.q is None) != (self.law is Law.CHOSEN):
            raise ParameterError(f"a {self.law} draft {'has no' if self.law is Law.CHOSEN else 'needs its'} q")
        if self.q is not None and any(
            kids and row is None for kids, row in zip(self.tree.children, self.q, strict=True)
        ):
            raise ParameterError("every node with children needs the q that they were drawn from")

    @classmethod
    def empty(cls, root: int) -> Draft:
        """No bet at all: the round is plain decoding."""
        return cls(Tree((root,), (-1,)))

    def __len__(self) -> int:
        """The number of drafted tokens; the root is not one."""
        return len(self.tree) - 1


@dataclass(frozen=True)
class Shape:
    """What a policy allows this round. It may depend on past rounds, never on the tokens of the current draft.

    depth: levels below the root (0: do not draft); width: most children a node may have; nodes: most drafted tokens.
    branching, where given, fixes the children of every node level by level and agrees with the other three.
    """

    depth: int
    width: int = 1
    nodes: int = -1
    branching: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.nodes < 0:
            object.__setattr__(self, "nodes", self.depth)
        if self.depth < 0 or self.width < 1 or (self.branching and len(self.branching) != self.depth):
            raise ParameterError(f"a shape needs depth >= 0, width >= 1 and one branching factor a level, got {self}")

    @classmethod
    def chain(cls, depth: int) -> Shape:
        """One bet after another, `depth` in all."""
        return cls(depth)

    @classmethod
    def tree(cls, *branching: int) -> Shape:
        """A fixed tree: branching[d] children for every node at depth d."""
        if not branching or min(branching) < 1:
            raise ParameterError(f"branching must list a positive number a level, got {branching}")
        nodes = width = 1
        total = 0
        for width in branching:
            nodes *= width
            total += nodes
        return cls(len(branching), max(branching), total, branching)

    def clip(self, depth: int) -> Shape:
        """The same shape, at most `depth` deep."""
        if depth >= self.depth:
            return self
        if self.branching:
            return Shape.tree(*self.branching[:depth]) if depth > 0 else Shape(0)
        return replace(
            self, depth=max(depth, 0), nodes=self.nodes if self.width > 1 else min(self.nodes, max(depth, 0))
        )


# ── what the target answers, what a rule decides ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Scores:
    """One target pass over one tree.

    logits [N, V]: row i scores the token after node i, before any sampling processor.
    features [N, T, H]: the tapped hidden states of every node, None without taps.
    prefix_features [P, T, H]: those of the committed tokens that this pass had to read first (the prompt), oldest
    first and ending just before the root; None without taps.
    """

    logits: Tensor
    features: Tensor | None = None
    prefix_features: Tensor | None = None


class Distributions(Protocol):
    """The target's distribution after every node, all sampling processors applied with that node's own history."""

    @property
    def position(self) -> int:
        """Absolute index of the token that follows node 0; a node at depth d is followed by position + d."""
        ...

    def __getitem__(self, node: int) -> Tensor:
        """p [V] after `node`; computed when first asked for, and not to be written to."""
        ...

    def only(self, node: int) -> int | None:
        """The token that follows `node` with probability 1, where that is known without p; None if it is not."""
        ...


@dataclass(frozen=True)
class Verdict:
    """path: accepted nodes, root excluded, each the child of the one before. tokens: theirs and one more.

    The one more is the bonus token when a leaf was reached, else the correction: a round never emits nothing.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.path) + 1:
            raise ParameterError(f"a verdict emits its accepted tokens and one more, got {self}")

    @property
    def last(self) -> int:
        """The last accepted node; 0, the root, when none was."""
        return self.path[-1] if self.path else 0


class Dice(Protocol):
    """All randomness of a sequence, in two calls so that a test can walk every outcome."""

    def coin(self, probability: float) -> bool:
        """True with this probability: a uniform draw compared with it. 1 or more is always true, 0 never."""
        ...

    def categorical(self, weights: Tensor) -> int:
        """An index of weights [V], drawn with probability proportional to them; never one of weight 0."""
        ...


# ── one sequence ──────────────────────────────────────────────────────────────────────────────────────────────────


class FinishReason(StrEnum):
    """Why a text ended."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Finish:
    """The text ends after `length` output tokens (never more than there are), for this reason."""

    length: int
    reason: FinishReason


class Ending(Protocol):
    """Decides where a text ends. It sees each output token once, in order."""

    def push(self, token: int) -> Finish | None:
        """Take the next output token; the finish if the text ends with it or, for a stop string, before it."""
        ...

    @property
    def room(self) -> int:
        """How many more output tokens the length limits allow."""
        ...


class Branch(Protocol):
    """A history to draw after: the committed tokens, or a drafted continuation of them."""

    def distribution(self, logits: Tensor) -> Tensor:
        """Logits [V] to probabilities [V] under every sampling parameter, given this history."""
        ...

    def child(self, token: int) -> Branch:
        """The history one token longer."""
        ...


class Sampler(Protocol):
    """A sequence's sampling parameters at work, with the state of its stateful processors."""

    def branch(self, history: Sequence[int]) -> Branch:
        """The committed history as a branch to draft from."""
        ...

    def distributions(self, history: Sequence[int], tree: Tree, logits: Tensor) -> Distributions:
        """Logits [N, V] of a tree to the distribution after each node."""
        ...

    def settle(self, p: Distributions, node: int) -> Sampler:
        """The sampler after `node` was accepted; what rejected nodes did to stateful processors is gone."""
        ...


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of the target's raw logits (before sampling processors) where `token` was emitted."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class Session:
    """One sequence: the only place where text grows, and where it is cut.

    tokens is prompt then output; the last one is the root of the next tree.
    """

    tokens: list[int]
    sampler: Sampler
    dice: Dice
    ending: Ending
    top_logprobs: int | None = None
    prompt_length: int = -1
    finish: FinishReason | None = None
    statistics: Statistics = field(default_factory=lambda: Statistics())
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.prompt_length < 0:
            self.prompt_length = len(self.tokens)

    @property
    def output(self) -> list[int]:
        """The tokens emitted so far."""
        return self.tokens[self.prompt_length :]

    @property
    def root(self) -> int:
        """The last committed token."""
        return self.tokens[-1]

    def extend(self, tokens: Sequence[int]) -> int:
        """Append tokens up to the end of the text.

        Returns how many more output tokens there are than before: len(tokens) unless the text ended; negative when a
        stop string that began in an earlier round took tokens back.
        """
        before = len(self.tokens)
        for token in tokens:
            self.tokens.append(token)
            finish = self.ending.push(token)
            if finish is not None:
                del self.tokens[self.prompt_length + finish.length :]
                self.finish = finish.reason
                break
        return len(self.tokens) - before


# ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Timings:
    """Seconds of one round, for the whole batch: drafting, the target's pass, the verdicts, everything else."""

    draft: float = 0.0
    target: float = 0.0
    rule: float = 0.0
    rest: float = 0.0

    def __add__(self, other: Timings) -> Timings:
        return Timings(
            self.draft + other.draft, self.target + other.target, self.rule + other.rule, self.rest + other.rest
        )

    @property
    def total(self) -> float:
        """The round's seconds."""
        return self.draft + self.target + self.rule + self.rest


@dataclass(frozen=True, eq=False)
class Round:
    """What happened to one session in one round.

    emitted: how many output tokens the round added after the text was cut (see `Session.extend`).
    p, q: probabilities of each drafted token under the target and the draft [N]; filled in only when tracing.
    """

    index: int
    shape: Shape
    draft: Draft
    verdict: Verdict
    emitted: int
    timings: Timings
    batch: int = 1
    p: tuple[float | None, ...] | None = None
    q: tuple[float | None, ...] | None = None

    @property
    def accepted(self) -> int:
        """Accepted draft tokens that are part of the text."""
        return max(0, min(len(self.verdict.path), self.emitted))

    @property
    def tried(self) -> int:
        """Depths at which a drafted token was put to the test with all before it accepted, and the text not over."""
        levels = self.accepted
        if self.emitted > levels:  # the text went on past the accepted tokens: the next level lost its test, if it was
            node = self.verdict.path[levels - 1] if levels else 0
            levels += bool(self.draft.tree.children[node])
        return levels

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the tree, its law, p and q of the drafted tokens, the verdict and the timings."""
        tree, times = self.draft.tree, self.timings
        return {
            "index": self.index,
            "batch": self.batch,
            "shape": {"depth": self.shape.depth, "width": self.shape.width, "nodes": self.shape.nodes},
            "law": str(self.draft.law),
            "tokens": list(tree.tokens),
            "parents": list(tree.parents),
            "p": None if self.p is None else list(self.p),
            "q": None if self.q is None else list(self.q),
            "path": list(self.verdict.path),
            "verdict": list(self.verdict.tokens),
            "emitted": self.emitted,
            "seconds": {"draft": times.draft, "target": times.target, "rule": times.rule, "rest": times.rest},
        }


@dataclass(frozen=True)
class Statistics:
    """Counts observed round by round; nothing is rebuilt from settings.

    tried[j] and hits[j] count the rounds in which position j + 1 of the draft was tested, and accepted.
    """

    rounds: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: tuple[int, ...] = ()
    hits: tuple[int, ...] = ()
    timings: Timings = Timings()

    def add(self, round_: Round) -> Statistics:
        """The counts with one more round."""
        return Statistics(
            self.rounds + 1,
            self.emitted + round_.emitted,
            self.drafted + len(round_.draft),
            self.accepted + round_.accepted,
            _count(self.tried, round_.tried),
            _count(self.hits, round_.accepted),
            self.timings + round_.timings,
        )

    @property
    def tokens_per_pass(self) -> float:
        """Emitted tokens over target passes after prefill, the bonus token included; plain decoding has 1."""
        return self.emitted / self.rounds if self.rounds else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; the bonus token is in neither."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """Rate at position j: accepted at j over tested at j, given that all before were accepted."""
        hits = self.hits + (0,) * (len(self.tried) - len(self.hits))
        return tuple(hit / tried for hit, tried in zip(hits, self.tried, strict=True))


def _count(counts: tuple[int, ...], levels: int) -> tuple[int, ...]:
    """One more at each of the first `levels` places."""
    padded = counts + (0,) * (levels - len(counts))
    return tuple(count + (place < levels) for place, count in enumerate(padded))


# ── the seams ─────────────────────────────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class Target(Protocol):
    """The model whose text is written. It keeps a cache row per session, made on first sight."""

    def require(self, texts: int, length: int) -> None:
        """Raise `OutOfMemoryError` if so many texts of so many tokens would not fit at once, else make room."""
        ...

    def score(self, sessions: Sequence[Session], trees: Sequence[Tree], taps: Sequence[int]) -> list[Scores]:
        """One forward pass over all trees; taps name the layers whose input is wanted as features."""
        ...

    def commit(self, sessions: Sequence[Session], paths: Sequence[tuple[int, ...]]) -> None:
        """Keep the cache rows of each tree's root and path, forget the other nodes."""
        ...

    def release(self, session: Session) -> None:
        """Free what is kept for a session; nothing happens if it is unknown."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """Whatever bets on the next tokens. It makes a session's state on first sight."""

    @property
    def taps(self) -> Sequence[int]:
        """Layers of the target whose hidden states it wants to see."""
        ...

    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape]) -> list[Draft]:
        """A draft a session, rooted at its last token and within its shape; `Draft.empty` is a fine answer."""
        ...

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Learn what became of the drafts; the sessions have already grown."""
        ...

    def release(self, session: Session) -> None:
        """Free what is kept for a session; nothing happens if it is unknown."""
        ...


@runtime_checkable
class Rule(Protocol):
    """An acceptance rule."""

    @property
    def laws(self) -> frozenset[Law]:
        """The laws for which it is proved."""
        ...

    def verify(self, draft: Draft, p: Distributions, dice: Dice) -> Verdict:
        """Decide which bets stand. Raises `LawError` for a law that is not in `laws`."""
        ...


@runtime_checkable
class Policy(Protocol):
    """How much to bet. It sees past rounds only."""

    def shape(self, sessions: Sequence[Session], history: Mapping[Session, Round]) -> list[Shape]:
        """A shape a session; history holds each session's last round, if it had one."""
        ...
