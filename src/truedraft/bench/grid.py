"""What is to be compared: the settings of a grid, each with a name that says all of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from truedraft.errors import ParameterError

__all__ = ["PLAIN", "Load", "Setting", "loads_of", "require_positive", "settings_of"]


@dataclass(frozen=True)
class Setting:
    """A way to draft. draft_tokens None and tree "" leave the shape to the drafter; policy "" is a fixed shape."""

    drafter: str
    draft_tokens: int | None = None
    tree: str = ""
    rule: str = "auto"
    policy: str = ""

    def __str__(self) -> str:
        shape = f" tree {self.tree}" if self.tree else "" if self.draft_tokens is None else f" k={self.draft_tokens}"
        rule = "" if self.rule == "auto" else f" {self.rule}"
        policy = f" policy {self.policy}" if self.policy else ""
        return f"{self.drafter}{shape}{rule}{policy}"


PLAIN = Setting("none")
"""Plain decoding, which every grid holds."""


@dataclass(frozen=True)
class Load:
    """Under what load: prompts of a task, so many at once, at a temperature."""

    task: str
    batch: int = 1
    temperature: float = 0.0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ParameterError(f"batches has {self.batch}: expected at least 1")
        if not 0 <= self.temperature < math.inf:
            raise ParameterError(f"temperatures has {self.temperature}: expected at least 0, 0 for greedy")

    def __str__(self) -> str:
        return f"{self.task}, batch {self.batch}, T = {self.temperature:g}"


def loads_of(tasks: Sequence[str], batches: Sequence[int], temperatures: Sequence[float]) -> list[Load]:
    """Every task at every batch size and temperature. Raises `ParameterError` for a list that is empty or repeats."""
    lists: dict[str, Sequence[object]] = {"tasks": tasks, "batches": batches, "temperatures": temperatures}
    _require_some(**lists)
    for name, values in lists.items():
        value, times = Counter(values).most_common(1)[0]
        if times > 1:  # its units would be measured again, and be taken for the first ones
            raise ParameterError(f"{name} has {value!r} twice: expected each once; leave one out")
    return [Load(*cell) for cell in product(tasks, batches, temperatures)]


def require_positive(**amounts: int | None) -> None:
    """Raise `ParameterError` for an amount, by the name of its option, below 1; None is one that was not given."""
    for name, value in amounts.items():
        if value is not None and value < 1:
            raise ParameterError(f"{name} is {value}: expected at least 1")


def _require_some(**lists: Sequence[object]) -> None:
    for name, values in lists.items():
        if not values:
            raise ParameterError(f"{name} is empty: expected at least one, such as {_USUAL[name]}")


_USUAL = {"tasks": "copy", "batches": "1", "temperatures": "0", "rules": "auto", "policies": "fixed"}


def settings_of(
    drafters: Sequence[str],
    *,
    draft_tokens: Sequence[int] = (),
    trees: Sequence[str] = (),
    rules: Sequence[str] = ("auto",),
    policies: Sequence[str] = ("",),
) -> list[Setting]:
    """Plain decoding, then every drafter in every shape under every rule and policy.

    Raises `ParameterError` without a drafter, a rule or a policy.
    """
    if not drafters:
        raise ParameterError("there is nothing to compare: name at least one drafter")
    _require_some(rules=rules, policies=policies)
    shapes: list[tuple[int | None, str]] = [(k, "") for k in draft_tokens] + [(None, tree) for tree in trees]
    found = [PLAIN]
    for drafter, (k, tree), rule, policy in product(drafters, shapes or [(None, "")], rules, policies):
        setting = PLAIN if drafter == "none" else Setting(drafter, k, tree, rule, policy)
        if setting not in found:
            found.append(setting)
    return found
