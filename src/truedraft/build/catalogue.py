"""The catalogue of drafters: from a name to the drafter and the shape it is usually given.

The only place that knows every kind. A new drafter is one function here and one line in `DRAFTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from truedraft.build.loading import Loaded, load_named
from truedraft.core import Drafter, Law, Rule, Shape
from truedraft.drafters.bets import Bettor
from truedraft.drafters.cascade import CascadeDrafter
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.heads import head_drafter, kind_of
from truedraft.drafters.layer_skip import LayerSet, layer_skip, parse_layers, shipped_layers
from truedraft.drafters.merge import MergeDrafter
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.drafters.pass_cost import FREE, ON_CPU, ON_GPU, PassCost
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.drafters.reencode import ReencodingDrafter
from truedraft.drafters.suffix import SuffixDrafter
from truedraft.drafters.translation import OtherIds
from truedraft.drafters.vocabulary import check_vocabulary
from truedraft.drafters.warm import owner_of, recycling
from truedraft.errors import ParameterError
from truedraft.models import Progress
from truedraft.nets.mtp_checkpoint import CheckpointMtp, brings_module
from truedraft.planning.profile import Profile
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.verify.auto import RULES, rule_named

if TYPE_CHECKING:
    from truedraft.build.options import Options

__all__ = ["DRAFTERS", "Kit", "check_rule", "doubts"]


@dataclass(frozen=True)
class Kit:
    """What the makers of drafters work with. small: models loaded for others, by name, whose weights are shared."""

    options: Options
    target: CachedModel
    facts: Facts
    progress: Progress | None = None
    small: dict[str, Loaded] = field(default_factory=dict)

    @cached_property
    def passes(self) -> PassCost:
        """What the target's passes cost: as profiled, else what is usual on such a device.

        Nothing where a tree was asked for: it is filled, whatever that costs.
        """
        if self.options.tree is not None:
            return FREE
        profile = self.options.profile
        if profile is not None:
            measured = Profile.load(Path(profile))
            return PassCost.measured(measured.by_tokens(), measured.by_context())
        return ON_CPU[self.target.weights] if self.target.device.type == "cpu" else ON_GPU


def _none(kit: Kit) -> tuple[Drafter, Shape]:
    return NoDrafter(), Shape(0)


def _ngram(kit: Kit) -> tuple[Drafter, Shape]:
    if kit.options.tree is not None:  # a size that is filled: also with what is hardly likely
        return NgramDrafter(floor=0.0), _GROWN
    return NgramDrafter(passes=kit.passes), _GROWN


def _model(kit: Kit) -> tuple[Drafter, Shape]:
    options, ours = kit.options, kit.facts.tokenizer
    if options.draft_model is None:
        raise ParameterError(
            "drafter 'model' needs draft_model: the name, folder or file of a smaller model; truedraft train model "
            "distils one"
        )
    loaded = _small(kit, str(options.draft_model))
    vocabulary, translation = kit.target.vocab_size, None
    if options.translate:
        if ours is None or loaded.tokenizer is None:
            raise ParameterError("translate needs the tokenizers of both models, and one of them has none")
        translation = OtherIds(ours, loaded.tokenizer, vocabulary=vocabulary, readable=loaded.cache.vocab_size)
        if options.translate == "text":
            both = {"target": ours, "draft": loaded.tokenizer}
            return ReencodingDrafter(loaded.cache, translation, vocabulary=vocabulary, **both), Shape.chain(4)
    elif ours is not None and loaded.tokenizer is not None:
        check_vocabulary(ours, loaded.tokenizer)
    drafter = ModelDrafter(loaded.cache, vocabulary=vocabulary, translation=translation, law=_law(kit))
    return drafter, Shape.chain(4)


def _small(kit: Kit, name: str) -> Loaded:
    """A smaller model, with rows of its own."""
    if name not in kit.small:
        kit.small[name] = load_named(name, replace(kit.options, exact=False), kit.progress)
    found = kit.small[name]
    return replace(found, cache=found.cache.fork())


def _law(kit: Kit) -> Law | None:
    """The law that the rule asks of drafters that can draw; None where the rule takes any and the session decides."""
    if kit.options.rule == "coupled":
        return Law.COUPLED
    laws = rule_named(kit.options.rule).laws
    return None if Law.CHOSEN in laws else next(law for law in Law if law in laws)


def _suffix(kit: Kit) -> tuple[SuffixDrafter, Shape]:
    return SuffixDrafter(share=kit.options.share, passes=kit.passes), _GROWN


def _recycle(kit: Kit) -> tuple[RecycleDrafter, Shape]:
    options = kit.options
    path = None if options.memory is None else Path(options.memory)
    owner = owner_of(kit.target.model.config, kit.facts.tokenizer)
    return recycling(owner, kit.target.vocab_size, share=options.share, path=path, passes=kit.passes), _GROWN


def _layer_skip(kit: Kit) -> tuple[Drafter, Shape]:
    found = _layers(kit)
    drafter = layer_skip(kit.target, found.layers, vocabulary=kit.target.vocab_size, law=_law(kit))
    return drafter, Shape.chain(found.draft_tokens)


def _layers(kit: Kit) -> LayerSet:
    """The layers that are to draft: named, in a file, or those that ship."""
    asked = kit.options.layers
    path = Path(asked) if asked is not None and Path(asked).is_file() else None
    if asked is not None and path is None:
        return LayerSet(parse_layers(str(asked)), 3)
    owner = owner_of(kit.target.model.config, kit.facts.tokenizer)
    found = shipped_layers(owner, path)
    if found is None:
        raise ParameterError(
            f"no set of layers is known for {owner}: find one with truedraft find-layers, or give layers such as 0-7"
        )
    return found


def doubts(kit: Kit) -> tuple[str, ...]:
    """What was measured beforehand and speaks against the chosen drafter."""
    if kit.options.drafter != "layer-skip":
        return ()
    speedup = _layers(kit).speedup
    if speedup is None or speedup >= 1:
        return ()
    return (f"layer skip was measured at {speedup:.2f}x the speed of plain decoding with this model: it cannot pay",)


def check_rule(options: Options, rule: Rule, shape: Shape | None) -> None:
    """Raise `ParameterError` for a rule that is not proved for what a drafter drafts, or for the shape asked for."""
    chooses = options.drafter in _CHOOSERS or options.translate == "text"
    if chooses and Law.CHOSEN not in rule.laws:
        fitting = ", ".join(name for name, each in RULES.items() if Law.CHOSEN in each.laws and each.lossless)
        raise ParameterError(
            f"rule is {options.rule!r} with drafter {options.drafter!r}, which chooses tokens without drawing them: "
            f"expected {fitting}"
        )
    if shape is not None and min(shape.width, shape.nodes) > 1 and getattr(rule, "chains", False):
        raise ParameterError(
            f"rule is {options.rule!r} with tree {options.tree!r}: it is proved for chains, give draft_tokens instead"
        )


_CHOOSERS = ("ngram", "suffix", "recycle", "merge", "cascade")
"""Drafters of which some drafts are chosen whatever is asked of them: there is no q."""


def _head(name: str, shape: Shape) -> Maker:
    """A drafter on a trained head. Its trees stop by themselves where more does not pay."""

    def make(kit: Kit) -> tuple[Drafter, Shape]:
        owner = owner_of(kit.target.model.config, kit.facts.tokenizer)
        folder = None if kit.options.head is None else Path(kit.options.head)
        drafter = head_drafter(name, kit.target, owner=owner, folder=folder, law=_law(kit), passes=kit.passes)
        return drafter, Shape.chain(shape.depth) if rule_named(kit.options.rule).chains else shape

    return make


def _merge(kit: Kit) -> tuple[Drafter, Shape]:
    """Suffix decoding and recycling, and a head if one is named."""
    bettors: list[Bettor] = [_suffix(kit)[0], _recycle(kit)[0]]
    if kit.options.head is not None:
        owner, folder = owner_of(kit.target.model.config, kit.facts.tokenizer), Path(kit.options.head)
        bettors.append(head_drafter(kind_of(folder), kit.target, owner=owner, folder=folder, passes=kit.passes))
    return MergeDrafter(bettors, passes=kit.passes), _GROWN


def _cascade(kit: Kit) -> tuple[Drafter, Shape]:
    """Suffix decoding, else a head or a small model if one is named, else recycling."""
    suffix, passes = _suffix(kit)[0], kit.passes
    if kit.options.head is not None:
        other, reach = DRAFTERS[kind_of(Path(kit.options.head))](kit)
        effort = other.level if isinstance(other, EagleDrafter) else _MEDUSA_LEVEL
    elif kit.options.draft_model is not None:
        other, reach = _model(kit)
        effort = _MODEL_LEVEL
    else:
        return CascadeDrafter(suffix, _recycle(kit)[0], passes=passes), _GROWN
    return CascadeDrafter(suffix, other, passes=passes, effort=effort, reach=reach, alone=True), _GROWN


_GROWN = Shape(depth=32, width=8, nodes=32)
"""For drafters whose guesses cost nothing: they stop by themselves where another node does not pay."""

_MEDUSA_LEVEL, _MODEL_LEVEL = 0.01, 0.3
"""About what a level of drafting costs, in passes of the target: all of Medusa's heads read one state."""

Maker = Callable[[Kit], tuple[Drafter, Shape]]


def _mtp(kit: Kit) -> tuple[Drafter, Shape]:
    """The module of the target's own checkpoint, where it brings one and no other is named."""
    if kit.options.head is None and brings_module(kit.target.model):
        module = CheckpointMtp(kit.target.model)  # trained with the model, on texts as long as the model's
        return EagleDrafter(module, layers=kit.target.layers, law=_law(kit), window=None), Shape.chain(3)
    return _head("mtp", Shape.chain(3))(kit)


DRAFTERS: Mapping[str, Maker] = {
    "none": _none,
    "ngram": _ngram,
    "suffix": _suffix,
    "recycle": _recycle,
    "merge": _merge,
    "cascade": _cascade,
    "layer-skip": _layer_skip,
    "model": _model,
    "medusa": _head("medusa", Shape(depth=6, width=8, nodes=16)),
    "eagle1": _head("eagle1", Shape.chain(3)),
    "eagle2": _head("eagle2", Shape(depth=6, width=8, nodes=16)),
    "eagle3": _head("eagle3", Shape(depth=6, width=8, nodes=16)),
    "mtp": _mtp,
}
