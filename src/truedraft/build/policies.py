"""From a name to a policy: a fixed shape, the controller, or a table of batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truedraft.bench.profiling import Grid, pass_times
from truedraft.core import Policy, Shape
from truedraft.errors import ParameterError
from truedraft.planning.controller import Controller
from truedraft.planning.fixed import Fixed
from truedraft.planning.profile import Profile
from truedraft.planning.schedule import parse_schedule
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget

__all__ = ["glance", "policy_named"]

_WIDTHS = (1, 2, 3, 5, 9, 17)
_BATCHES = (1, 4, 16)


def policy_named(
    name: str | Sequence[Sequence[int]],
    shape: Shape,
    target: CachedModel,
    facts: Facts,
    *,
    profile: str | Path | Profile | None = None,
) -> Policy:
    """The policy behind fixed, auto, or rows such as [[1, 4, 5], [5, 16, 2]], also as text; shape: the most to be bet.

    profile: what passes cost, for "auto"; without one a few passes are timed now. Raises `ParameterError`.
    """
    if name == "fixed":
        return Fixed(shape)
    if name == "auto":
        known = profile if isinstance(profile, Profile) else None if profile is None else Profile.load(Path(profile))
        return Controller(shape, known or glance(target, facts))
    if not isinstance(name, str) or name.startswith("["):
        return parse_schedule(name)
    raise ParameterError(
        f"policy is {name!r}: expected fixed, auto, or rows of batch from, to and draft tokens: [[1, 4, 5], [5, 99, 0]]"
    )


def glance(target: CachedModel, facts: Facts) -> Profile:
    """A rough profile in a few seconds; the controller corrects it while it runs."""
    context = 64 if facts.context_length is None else max(1, min(64, facts.context_length - max(_WIDTHS) - 1))
    most = max(_WIDTHS) if facts.context_length is None else max(2, facts.context_length - context - 1)
    widths = tuple(width for width in _WIDTHS if width <= most)
    grid = Grid((context,), _BATCHES, widths, tokens=96, repeats=2)
    return Profile(pass_times(TorchTarget(target), facts, grid), model={"ragged": target.ragged})
