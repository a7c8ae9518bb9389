"""What is to be compared: the settings of a grid, each with a name that says all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from truedraft.errors import ParameterError

__all__ = ["PLAIN", "Load", "Setting", "settings_of"]


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


def settings_of(
    drafters: Sequence[str],
    *,
    draft_tokens: Sequence[int] = (),
    trees: Sequence[str] = (),
    rules: Sequence[str] = ("auto",),
    policies: Sequence[str] = ("",),
) -> list[Setting]:
    """Plain decoding, then every drafter in every shape under every rule. Raises `ParameterError` without a drafter."""
    if not drafters:
        raise ParameterError("there is nothing to compare: name at least one drafter")
    shapes: list[tuple[int | None, str]] = [(k, "") for k in draft_tokens] + [(None, tree) for tree in trees]
    found = [PLAIN]
    for drafter, (k, tree), rule, policy in product(drafters, shapes or [(None, "")], rules, policies):
        setting = PLAIN if drafter == "none" else Setting(drafter, k, tree, rule, policy)
        if setting not in found:
            found.append(setting)
    return found
