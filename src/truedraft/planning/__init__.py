"""When speculation pays: the account, measured costs, the search for a shape, the controller.

from truedraft.planning import expected_tokens, speedup
print(speedup(expected_tokens(0.7, 4), 4, 0.1))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truedraft.planning.account import (
        WORTHWHILE,
        Advice,
        advise,
        alpha_from,
        decayed_rates,
        expected_tokens,
        expected_tokens_by_position,
        overall_speedup,
        pass_cost,
        ridge_of,
        speedup,
        sweet_spot,
    )
    from truedraft.planning.controller import Controller
    from truedraft.planning.profile import DraftCost, PassTime, Profile
    from truedraft.planning.recommend import Candidate, Choice, Recommendation, tree_for
    from truedraft.planning.schedule import ByBatch, parse_schedule
    from truedraft.planning.trees import (
        TreePlan,
        best_first_tree,
        best_tree,
        branching_of,
        branching_text,
        expected_tokens_of_tree,
        next_node_pays,
    )

__all__ = [
    "WORTHWHILE",
    "Advice",
    "ByBatch",
    "Candidate",
    "Choice",
    "Controller",
    "DraftCost",
    "PassTime",
    "Profile",
    "Recommendation",
    "TreePlan",
    "advise",
    "alpha_from",
    "best_first_tree",
    "best_tree",
    "branching_of",
    "branching_text",
    "decayed_rates",
    "expected_tokens",
    "expected_tokens_by_position",
    "expected_tokens_of_tree",
    "next_node_pays",
    "overall_speedup",
    "parse_schedule",
    "pass_cost",
    "ridge_of",
    "speedup",
    "sweet_spot",
    "tree_for",
]

_HOMES = {
    "account": (
        "WORTHWHILE",
        "Advice",
        "advise",
        "alpha_from",
        "decayed_rates",
        "expected_tokens",
        "expected_tokens_by_position",
        "overall_speedup",
        "pass_cost",
        "ridge_of",
        "speedup",
        "sweet_spot",
    ),
    "controller": ("Controller",),
    "profile": ("DraftCost", "PassTime", "Profile"),
    "recommend": ("Candidate", "Choice", "Recommendation", "tree_for"),
    "schedule": ("ByBatch", "parse_schedule"),
    "trees": (
        "TreePlan",
        "best_first_tree",
        "best_tree",
        "branching_of",
        "branching_text",
        "expected_tokens_of_tree",
        "next_node_pays",
    ),
}
"""By file. `recommend` itself is offered by its file alone: as a name of this package it would be that file."""


def __getattr__(name: str) -> Any:
    """Import the parts that need torch, seconds of work, only when they are used."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"truedraft.planning.{home}"), name)
    raise AttributeError(f"module 'truedraft.planning' has no attribute {name!r}")
