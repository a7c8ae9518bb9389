"""What to run: the drafter, length or tree with the highest predicted speed at every batch, and when to run none.

It rests on rounds that were counted and passes that were timed. This file refuses to know where they come from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import dropwhile, takewhile
from operator import add, attrgetter

from truedraft.planning.account import WORTHWHILE
from truedraft.planning.counts import Counts
from truedraft.planning.predict import Estimate, RoundForecast, foreseen_round, resampled
from truedraft.planning.profile import Profile
from truedraft.planning.trees import TreePlan, best_tree

__all__ = ["Candidate", "Choice", "Recommendation", "recommend", "tree_for"]


@dataclass(frozen=True)
class Candidate:
    """A drafter whose rounds were counted. tree: its shape; "" for chains of up to draft_tokens.

    samples: by batch size, counts of a prompt each: many drafters bet less where more texts share a pass. rule: the
    acceptance rule, "auto" as a rule.
    """

    drafter: str
    samples: Mapping[int, tuple[Counts, ...]]
    draft_tokens: int = 0
    tree: str = ""
    context: float | None = None
    rule: str = "auto"

    def at(self, batch: int) -> tuple[Counts, ...]:
        """The counts at the measured batch size that is nearest in proportion; of two the smaller."""
        return self.samples[min(sorted(self.samples), key=lambda other: max(batch, other) / min(batch, other))]

    @property
    def total(self) -> Counts:
        """The counts of all prompts at the smallest batch size."""
        return reduce(add, self.at(1), Counts())

    @property
    def lengths(self) -> list[int | None]:
        """The draft lengths that its counts can speak of."""
        return [None] if not self.draft_tokens else list(range(1, self.draft_tokens + 1))

    def round(self, profile: Profile, length: int | None, batch: int, counts: Counts | None = None) -> RoundForecast:
        """Foreseen from these counts, or from all of its own at about this batch size."""
        seen = counts or reduce(add, self.at(batch), Counts())
        return foreseen_round(seen, profile, self.drafter, draft_tokens=length, batch=batch, context=self.context)


@dataclass(frozen=True)
class Choice:
    """The best setting at a batch size. draft_tokens None: the candidate's tree."""

    batch: int
    candidate: Candidate
    draft_tokens: int | None
    speedup: Estimate
    foreseen: RoundForecast

    @property
    def is_worth_it(self) -> bool:
        """Whether it is likely to be faster than plain decoding, and by enough to bother."""
        return self.speedup.value >= WORTHWHILE and self.speedup.low > 1.0

    def __str__(self) -> str:
        name, tree, rule = self.candidate.drafter, self.candidate.tree, self.candidate.rule
        shape = f" with tree {tree}" if tree else ""
        if self.draft_tokens is not None:
            shape = f" with {self.draft_tokens} draft tokens"
        return f"{name}{shape}" if rule == "auto" else f"{name}{shape} under rule {rule}"


@dataclass(frozen=True)
class Recommendation:
    """choices: the best at every batch size, ascending. off_above: the last batch before drafting stops being worth it.

    It is None where drafting is nowhere worth it, and the largest batch where it never stops.
    """

    choices: tuple[Choice, ...]
    off_above: int | None

    @property
    def pays(self) -> bool:
        """Whether to speculate at all."""
        return any(choice.is_worth_it for choice in self.choices)

    @property
    def schedule(self) -> list[list[int]] | None:
        """Draft tokens by batch size, in the rows that policies take; None where a tree is best, which is no row."""
        rows: list[list[int]] = []
        for choice, following in zip(self.choices, (*self.choices[1:], None), strict=True):
            if choice.is_worth_it and choice.draft_tokens is None:
                return None
            for last, tokens in self._until(choice, following):
                if rows and rows[-1][2] == tokens:
                    rows[-1][1] = last
                else:
                    rows.append([rows[-1][1] + 1 if rows else 1, last, tokens])
        return rows

    def _until(self, choice: Choice, following: Choice | None) -> Iterator[tuple[int, int]]:
        """(last batch, draft tokens) from a choice's batch up to the next one's."""
        tokens = choice.draft_tokens or 0 if choice.is_worth_it else 0
        last = following.batch - 1 if following is not None else 9999
        if following is not None and self.off_above is not None and choice.batch <= self.off_above < last:
            yield self.off_above, tokens
            tokens = 0
        yield last, tokens


def recommend(candidates: Sequence[Candidate], profile: Profile, batches: Sequence[int]) -> Recommendation:
    """The best candidate at each batch size; at least one candidate and one batch size."""
    choices = tuple(_choice(candidates, profile, batch) for batch in sorted(batches))
    return Recommendation(choices, _last_paying(candidates, profile, choices))


def _last_paying(candidates: Sequence[Candidate], profile: Profile, choices: Sequence[Choice]) -> int | None:
    """The last batch before drafting stops being worth it, also between the batch sizes of the choices."""
    paying = list(dropwhile(lambda choice: not choice.is_worth_it, choices))
    run = list(takewhile(attrgetter("is_worth_it"), paying))
    if len(run) == len(paying):
        return run[-1].batch if run else None
    between = range(run[-1].batch + 1, paying[len(run)].batch)
    pays_not = bisect_left(between, True, key=lambda batch: not _choice(candidates, profile, batch).is_worth_it)
    return run[-1].batch + pays_not


def _best(candidates: Sequence[Candidate], profile: Profile, batch: int) -> tuple[float, Candidate, int | None]:
    """(speedup, candidate, length) of the fastest; the shorter length wins a tie."""
    options = [
        (candidate.round(profile, length, batch).speedup, candidate, length)
        for candidate in candidates
        for length in candidate.lengths
    ]
    return max(options, key=lambda option: option[0])


def _choice(candidates: Sequence[Candidate], profile: Profile, batch: int) -> Choice:
    _, candidate, length = _best(candidates, profile, batch)
    estimate = resampled(candidate.at(batch), lambda counts: candidate.round(profile, length, batch, counts).speedup)
    return Choice(batch, candidate, length, estimate, candidate.round(profile, length, batch))


def tree_for(counts: Counts, profile: Profile, drafter: str, *, nodes: int = 32, depth: int = 8) -> TreePlan | None:
    """The best static tree for the acceptance by rank of these rounds; None where no node has a sibling to learn of."""
    if len(counts.by_rank) < 2:
        return None
    step = profile.outside_seconds(drafter, 1) - profile.outside_seconds(drafter, 0)
    return best_tree(counts.by_rank, profile.pass_seconds, draft_step=step, nodes=nodes, depth=depth)
