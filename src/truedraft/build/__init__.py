"""From names to objects: `load` finds a target, its drafter, a rule and a policy and joins them into a `Model`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from truedraft.build.catalogue import DRAFTERS, Kit, check_rule, doubts
from truedraft.build.loading import Loaded, facts_of, load_named, unwrapped
from truedraft.build.options import Options, parse_shape
from truedraft.build.policies import policy_named
from truedraft.core import Rule, Shape
from truedraft.decode import Decoder
from truedraft.errors import ParameterError
from truedraft.model import Model
from truedraft.models import DEFAULT, Progress
from truedraft.targets.cached import CachedModel
from truedraft.targets.fast import Preparation
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

__all__ = ["DRAFTERS", "Kit", "Options", "assemble", "load", "parse_shape", "redraft"]


def load(
    target: str | Path | PreTrainedModel = DEFAULT,
    *,
    tokenizer: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> Model:
    """A model ready to write.

    target: a catalogue name, a local folder, a GGUF file, a hub id, or a transformers model already in memory (then
    with its tokenizer, if text is wanted). Such a model stays yours: its weights and modes are left alone, it runs in
    evaluation mode, and what was read before you changed its weights is read anew at the next request, unless you
    changed them through `.data`; change them between requests. options: see `Options`. Raises `ModelError` and
    `ParameterError`.
    """
    chosen = Options.of(options)
    shape = parse_shape(chosen.draft_tokens, chosen.tree)
    rule = rule_named(chosen.rule)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    given: Any = unwrapped(target)
    if not isinstance(given, str | Path | PreTrainedModel):
        raise ParameterError(f"target is a {type(given).__name__}: expected a name, a path or a transformers model")
    if isinstance(given, PreTrainedModel):  # somebody else's: it is left as it is
        chosen.check_unused(("dtype", "device", "attention", "exact", "weights"), "a model in memory is left as it is")
        loaded, name = Loaded(CachedModel(given), tokenizer, Preparation(False)), type(given).__name__
    else:
        loaded, name = load_named(given, chosen, progress), str(given)
    facts = facts_of(loaded.cache, tokenizer or loaded.tokenizer)
    kit = Kit(chosen, loaded.cache, facts, progress)
    model = assemble(kit, rule, shape, name=name)
    return replace(model, exact=loaded.preparation.exact, notes=(*loaded.preparation.notes, *doubts(kit)))


def redraft(model: Model, *, small: dict[str, Loaded] | None = None, **options: Any) -> Model:
    """A loaded model's target, shared, with another drafter, rule and shape; options of the target are not read.

    small: keeps the small models that drafters need, by name, for calls that share them. Raises `ParameterError`, and
    `ModelError` for a draft model that cannot be loaded.
    """
    chosen = Options.of(options)
    target = model.decoder.target
    if not isinstance(target, TorchTarget):
        raise ParameterError(f"the target is a {type(target).__name__}: expected a model that `load` made")
    kit = Kit(chosen, target.model, model.facts, small={} if small is None else small)
    made = assemble(kit, rule_named(chosen.rule), parse_shape(chosen.draft_tokens, chosen.tree), name=model.name)
    return replace(made, exact=model.exact, notes=(*model.notes, *doubts(kit)))


def assemble(kit: Kit, rule: Rule, shape: Shape | None, *, name: str) -> Model:
    """The parts joined. Raises `ParameterError` for a rule that would have to refuse the drafts."""
    check_rule(kit.options, rule, shape)
    drafter, usual = DRAFTERS[kit.options.drafter](kit)
    options = kit.options
    policy = policy_named(options.policy, shape or usual, kit.target, kit.facts, profile=options.profile)
    decoder = Decoder(TorchTarget(kit.target), drafter, rule, policy)
    return Model(decoder, kit.facts, batch=kit.options.batch, name=name, drafter_name=kit.options.drafter)
