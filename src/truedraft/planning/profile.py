"""What passes and drafts cost on one machine with one model: measured points, and the costs between them.

A profile is made by `truedraft.bench.profiling` and kept as a small JSON file. This file refuses to know how anything
is measured.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from truedraft.errors import ParameterError
from truedraft.planning.curves import Curve, along

__all__ = ["DraftCost", "PassTime", "Profile"]

_VERSION = 1


@dataclass(frozen=True)
class PassTime:
    """Seconds of a pass over `batch` texts of `context` tokens with `width` new tokens each: T(batch * width)."""

    context: int
    batch: int
    width: int
    seconds: float


@dataclass(frozen=True)
class DraftCost:
    """Seconds of a round outside the target's pass: fixed + step * drafted tokens a text, for a batch of texts.

    Drafting, verdicts and bookkeeping are all in it; for drafter "none" it is what plain decoding spends there.
    """

    drafter: str
    batch: int
    fixed: float
    step: float

    def seconds(self, drafted: float) -> float:
        """Of a round that drafts so many tokens a text."""
        return self.fixed + self.step * drafted


@dataclass(frozen=True)
class Profile:
    """Measured costs. passes: at least one of one token a text, plain decoding's. drafting: none known is no cost.

    machine: bandwidth in bytes/s, peak in FLOP/s, threads and versions, by name. model: its name and size, by name, and
    whether it is "ragged".
    """

    passes: tuple[PassTime, ...]
    drafting: tuple[DraftCost, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.passes or any(point.seconds <= 0 for point in self.passes):
            raise ParameterError("a profile needs at least one pass, and each must have taken some time")
        if all(point.width != 1 for point in self.passes):
            widths = ", ".join(map(str, sorted({point.width for point in self.passes})))
            raise ParameterError(
                f"a profile has passes of width {widths}: expected width 1 too, plain decoding's; measure it as well"
            )
        _require_once("context, batch and width", ((point.context, point.batch, point.width) for point in self.passes))
        _require_once("drafter and batch", ((cost.drafter, cost.batch) for cost in self.drafting))

    @property
    def contexts(self) -> list[int]:
        """The contexts measured at."""
        return sorted({point.context for point in self.passes})

    @property
    def batches(self) -> list[int]:
        """The batch sizes measured at."""
        return sorted({point.batch for point in self.passes})

    @property
    def drafters(self) -> list[str]:
        """The drafters whose cost was measured."""
        return sorted({cost.drafter for cost in self.drafting})

    def knows(self, drafter: str) -> bool:
        """Whether a drafter's cost was measured, or no drafter's was: what is not known must not pass for free."""
        return not self.drafting or drafter in self.drafters

    @property
    def ragged(self) -> bool:
        """Whether passes are not padded: they are as wide as their texts' drafts are on average, not as the longest."""
        return bool(self.model.get("ragged", False))

    @cached_property
    def _measured(self) -> dict[int, dict[int, Curve]]:
        """By context and batch the curve of (width, seconds), all ascending."""
        curves: dict[int, dict[int, Curve]] = {}
        for point in sorted(self.passes, key=lambda point: (point.context, point.batch, point.width)):
            curves.setdefault(point.context, {}).setdefault(point.batch, []).append((point.width, point.seconds))
        return curves

    @cached_property
    def _curves(self) -> dict[int, list[tuple[int, Curve]]]:
        """The same, as (batch, curve); what is missing of a curve is as others have it."""
        return {
            context: [(batch, _completed(batch, curve, self._whole(context))) for batch, curve in batches.items()]
            for context, batches in self._measured.items()
        }

    def _whole(self, context: int) -> dict[int, Curve]:
        """By batch, curves that begin with plain decoding and have other widths too: of this context, else of another.

        Where no batch size was measured with several widths, passes of plain decoding at several batch sizes are one:
        a pass costs what its tokens cost, whoever's they are.
        """
        for place in (context, *self._measured):
            curves = {n: curve for n, curve in self._measured[place].items() if curve[0][0] == 1 and len(curve) > 1}
            if curves:
                return curves
        plain = [(float(batch), curve[0][1]) for batch, curve in self._measured[context].items() if curve[0][0] == 1]
        return {1: plain} if len(plain) > 1 else {}

    def pass_seconds(self, width: float, *, batch: float = 1, context: float | None = None) -> float:
        """Seconds of a pass; linear between measured points and past the last, constant below the first."""
        asked = next(iter(self._curves)) if context is None else context
        return along(
            [
                (place, along([(count, along(curve, width)) for count, curve in batches], batch))
                for place, batches in self._curves.items()
            ],
            asked,
        )

    def outside_seconds(self, drafter: str, drafted: float, *, batch: float = 1) -> float:
        """Seconds of a round outside the target's pass."""
        costs = sorted((cost for cost in self.drafting if cost.drafter == drafter), key=lambda cost: cost.batch)
        return along([(cost.batch, cost.seconds(drafted)) for cost in costs], batch) if costs else 0.0

    def cost_ratio(self, drafter: str) -> float:
        """c: one draft step over one target step, at the smallest batch."""
        costs = [cost for cost in self.drafting if cost.drafter == drafter]
        return min(costs, key=lambda cost: cost.batch).step / self.pass_seconds(1) if costs else 0.0

    def ridge(self, context: int | None = None) -> float:
        """Tokens in a pass of the fewest texts measured at which their plateau meets the line through the widest two.

        For one text the plateau is T(1). Infinite if the widest pass measured still costs no more than the plateau, and
        never less than the tokens of the narrowest: where that is past the ridge already, it was not measured.
        """
        curve = self._of_the_fewest(self.contexts[0] if context is None else context)
        if len(curve) < 2:
            return math.inf
        fewest, plateau = curve[0]
        (near, low), (far, high) = curve[-2:]
        slope = (high - low) / (far - near)
        if slope <= 0 or high <= plateau:
            return math.inf
        return max(float(fewest), far - (high - plateau) / slope)

    def _of_the_fewest(self, context: int) -> Curve:
        """(tokens in the pass, seconds) of passes over the fewest texts measured at a context."""
        batch, curve = self._curves[context][0]
        return [(batch * width, seconds) for width, seconds in curve]

    def by_tokens(self) -> list[tuple[float, float]]:
        """(tokens, seconds) of passes at the shortest context, from one token on; the widest are those of batches.

        Where one text alone was not measured, what one token costs is told from the narrowest passes.
        """
        alone = [(1.0, _of_one_token(self._of_the_fewest(self.contexts[0])))]
        for batch, curve in next(iter(self._measured.values())).items():
            alone += [(batch * width, seconds) for width, seconds in curve if batch * width > alone[-1][0]]
        return alone

    def by_context(self) -> list[tuple[float, float, float, float]]:
        """(texts, tokens, 1,000 tokens of context more, seconds more) of passes, over those at the shortest context."""
        shortest = self.contexts[0]
        before = {(point.batch, point.width): point.seconds for point in self.passes if point.context == shortest}
        return [
            (each.batch, each.batch * each.width, (each.context - shortest) / 1000, each.seconds - before[key])
            for each in self.passes
            if (key := (each.batch, each.width)) in before and each.context > shortest
        ]

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "profile": _VERSION,
            "model": dict(self.model),
            "machine": dict(self.machine),
            "ridge": {str(context): _finite(self.ridge(context)) for context in self.contexts},
            "passes": [asdict(point) for point in self.passes],
            "drafting": [asdict(cost) for cost in self.drafting],
        }

    def save(self, path: Path) -> None:
        """Write the JSON file. Raises `ParameterError` where that is not possible."""
        try:
            path.write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8")
        except OSError as error:
            raise ParameterError(f"profile is {str(path)!r}: cannot write there ({error.strerror})") from error

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read the JSON file. Raises `ParameterError` if it is none of a profile."""
        try:
            entry = json.loads(path.read_text("utf-8"))
            if entry["profile"] != _VERSION:
                raise ValueError(f"version {entry['profile']}")
            passes = tuple(PassTime(**point) for point in entry["passes"])
            drafting = tuple(DraftCost(**cost) for cost in entry["drafting"])
            return cls(passes, drafting, entry["machine"], entry["model"])
        except OSError as error:
            raise ParameterError(f"profile {str(path)!r} cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ParameterError(f"{path} is no profile of `truedraft profile` ({error})") from None


def _completed(batch: int, curve: Curve, whole: Mapping[int, Curve]) -> Curve:
    """A curve of (width, seconds) with plain decoding and at least one other width.

    What it lacks costs against its first point what as many tokens cost at the nearest batch size of those in `whole`.
    """
    if not whole or (curve[0][0] == 1 and len(curve) > 1):
        return curve
    near = min(whole, key=lambda other: max(batch, other) / min(batch, other))
    (first, seconds), missing = curve[0], {1.0} if len(curve) > 1 else {1.0, *(width for width, _ in whole[near])}

    def there(width: float) -> float:
        return along(whole[near], batch * width / near)

    return sorted([*curve, *((width, seconds * there(width) / there(first)) for width in missing - {first})])


def _require_once(what: str, points: Iterable[Hashable]) -> None:
    """Raise `ParameterError` for a point that is there more than once: between two of them there is no line."""
    for point, count in Counter(points).items():
        if count > 1:
            raise ParameterError(
                f"a profile has {count} points of {what} {point}: expected one; keep one of them, or measure again"
            )


def _of_one_token(curve: Curve) -> float:
    """Seconds of a pass over one token: where the line through the first two points leads.

    At least in proportion to the tokens of the first point, since as many passes of one token do what that pass does.
    """
    (tokens, seconds), *more = curve[:2]
    slope = max(0.0, (more[0][1] - seconds) / (more[0][0] - tokens)) if more else 0.0
    return max(seconds / tokens, seconds - slope * (tokens - 1))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
