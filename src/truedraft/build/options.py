"""How to load and run a model, as users say it, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from truedraft.build.catalogue import DRAFTERS
from truedraft.core import Shape
from truedraft.drafters import DEFAULT
from truedraft.drafters.heads import HEADS
from truedraft.errors import ParameterError
from truedraft.targets.kernels import KERNELS

__all__ = ["USERS", "Options", "parse_shape"]


@dataclass(frozen=True)
class Options:
    """How to load and run a model.

    drafter: a name of `DRAFTERS`. draft_model: the small model, for drafters "model" and "cascade". translate: it has
    another tokenizer than the target, and drafts "tokens" that both have, or "text" (for greedy texts). draft_tokens:
    depth of a chain or tree. tree: "3x2x1" fixes the children of every node level by level, "3x" those of a single
    level; "16" lets a drafter grow as many.
    share: drafters that remember texts or scores may draft for one request from what another one said. memory: a file
    in which recycling keeps what it learns from all requests, made if it is not there; it implies share.
    head: the folder of a trained head, for the drafters that run one (medusa, eagle1, eagle2, eagle3, mtp), for
    cascade and for merge; None takes the one that ships for the model, for the latter two none.
    layers: those that draft under "layer-skip", such as "0-3,28,29", or a file that find-layers wrote; None takes the
    set that ships for the model.
    policy: how much of that to bet: "fixed" all of it, "auto" what pays by past rounds, or rows of batch from, batch to
    and draft tokens: "[[1, 4, 5], [5, 16, 2], [17, 999, 0]]". profile: a file of `truedraft profile`: what passes cost,
    for "auto" and for drafters that grow trees while another node pays.
    rule: "auto" or the name of an acceptance rule. dtype, device: "auto" takes a GPU in bfloat16 if there is one, else
    the CPU in float32. weights: on a CPU, "float16", "bfloat16", "int8" or "int4" round those of the model's layers,
    which makes another target, and a faster one; a small model that drafts is rounded likewise; "auto" rounds none, and
    reads them in 16 bits where these hold them. attention: "auto" is the fastest that this machine has, "sdpa" and
    "eager" are those of transformers. exact: logits that are the same bits however a text is drafted, batched and cut;
    None takes it where it costs little. batch: most prompts decoded at once. threads: of the CPU. trust_remote_code,
    allow_pickle: run code or unpickle weights that come with a model.
    """

    drafter: str = DEFAULT
    draft_model: str | Path | None = None
    translate: str | None = None
    draft_tokens: int | None = None
    tree: str | int | None = None
    share: bool = False
    memory: str | Path | None = None
    layers: str | Path | None = None
    head: str | Path | None = None
    rule: str = "auto"
    policy: str | Sequence[Sequence[int]] = "fixed"
    profile: str | Path | None = None
    dtype: str | torch.dtype = "auto"
    weights: str = "auto"
    device: str = "auto"
    attention: str = "auto"
    exact: bool | None = None
    batch: int = 8
    threads: int | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    offline: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """From keyword arguments, checked; an unknown name is an error that lists the known ones."""
        known = {entry.name for entry in fields(cls)}
        if unknown := sorted(set(options) - known):
            raise ParameterError(f"unknown option {', '.join(unknown)}: expected any of {', '.join(sorted(known))}")
        return cls(**options)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kinds, expected = _KINDS.get(name, _TEXT)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
                raise ParameterError(f"{name} is {value!r}: expected {expected}")
        if self.drafter not in DRAFTERS:
            raise ParameterError(f"drafter is {self.drafter!r}: expected one of {', '.join(DRAFTERS)}")
        for name, users in USERS.items():
            if getattr(self, name) is not None and self.drafter not in users:
                raise ParameterError(
                    f"{name} is given with drafter {self.drafter!r}: it belongs to drafter {' or '.join(users)}"
                )
        others = [name for name in ("head", "draft_model", "memory") if getattr(self, name) is not None]
        if self.drafter == "cascade" and len(others) > 1:
            raise ParameterError(f"{others[0]} and {others[1]} are given with drafter 'cascade': it asks one of them")
        has_rows = not isinstance(self.policy, str) or self.policy.startswith("[")
        if has_rows and (self.tree is not None or self.draft_tokens is not None):
            raise ParameterError("tree or draft_tokens is given with a policy of rows: these say what is drafted")
        if self.translate not in (None, "tokens", "text"):
            raise ParameterError(f"translate is {self.translate!r}: expected tokens or text")
        if self.translate and self.draft_model is None:
            raise ParameterError("translate is given without draft_model: it is about a small model's tokenizer")
        for name in ("batch", "threads", "draft_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ParameterError(f"{name} is {value}: expected at least 1")
        if self.weights not in KERNELS:
            raise ParameterError(f"weights is {self.weights!r}: expected one of {', '.join(KERNELS)}")
        if self.weights != "auto" and self.attention != "auto":
            raise ParameterError(f"attention is {self.attention!r} with weights {self.weights!r}: expected auto")
        if self.exact and self.attention != "auto":
            raise ParameterError(f"attention is {self.attention!r} with exact: expected auto, which can be exact")
        if self.device not in ("auto", "cpu") and not self.device.startswith("cuda"):
            raise ParameterError(f"device is {self.device!r}: expected auto, cpu or cuda")

    def check_unused(self, names: Sequence[str], why: str) -> None:
        """Raise `ParameterError` for an option that is given and could not be heeded."""
        usual = {entry.name: entry.default for entry in fields(self)}
        if said := next((name for name in names if getattr(self, name) not in (usual[name], False)), None):
            raise ParameterError(f"{said} is {getattr(self, said)!r}, and {why}: leave it out, or load by name")


_TEXT = str, "text"
_COUNT = int, "a whole number"
_YES = bool, "True or False"
_PATH = (str, Path), "a name or a path"
_KINDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("draft_tokens", "batch", "threads"), _COUNT),
    **dict.fromkeys(("share", "exact", "trust_remote_code", "allow_pickle", "offline"), _YES),
    **dict.fromkeys(("draft_model", "memory", "layers", "head", "profile"), _PATH),
    "tree": ((str, int), "children a level such as '3x2x1', or a number of nodes"),
    "policy": ((str, list, tuple), "fixed, auto, or rows of batch from, batch to and draft tokens"),
    "dtype": ((str, torch.dtype), "a type of numbers by its name"),
}
"""What may be given for an option, and how that is said; text where an option is not named."""

_OPTIONAL = {entry.name for entry in fields(Options) if entry.default is None}
"""Options that may be None."""

USERS = {
    "draft_model": ("model", "cascade"),
    "memory": ("recycle", "merge", "cascade"),
    "layers": ("layer-skip",),
    "head": (*HEADS, "cascade", "merge"),
}
"""Options that not every drafter uses, and those that do."""


def parse_shape(draft_tokens: int | None, tree: str | int | None) -> Shape | None:
    """The shape that a user asked for; None where they left it to the drafter."""
    if tree is None:
        return None if draft_tokens is None else Shape.chain(draft_tokens)
    parts = [part.strip() for part in str(tree).lower().split("x")]
    try:
        numbers = [int(part) for part in (parts[:1] if parts[1:] == [""] else parts)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ParameterError(
            f"tree is {tree!r}: expected children a level such as 3x2x1, or 3x for one level, or a number of nodes "
            "such as 16"
        )
    if len(parts) == 1:
        shape = Shape(depth=draft_tokens or _DYNAMIC_DEPTH, width=_DYNAMIC_WIDTH, nodes=numbers[0])
    elif draft_tokens is not None:
        raise ParameterError(f"draft_tokens is {draft_tokens} with tree {tree!r}, whose levels say how deep it is")
    else:
        shape = Shape.tree(*numbers)
    if shape.nodes > _MOST_NODES:
        raise ParameterError(f"tree is {tree!r}, {shape.nodes:,} nodes: expected at most {_MOST_NODES:,}")
    return shape


_DYNAMIC_DEPTH = 8
_DYNAMIC_WIDTH = 4
_MOST_NODES = 1024
"""A tree that is asked for is filled: more nodes are a slip of the keyboard, which would take minutes a token."""
