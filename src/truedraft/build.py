"""From names to objects: `load` finds a target, its drafter, a rule and a policy and joins them into a `Model`.

The only place that knows every kind. A new drafter is one function here and one line in `DRAFTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from truedraft.core import Drafter, Law, Rule, Shape
from truedraft.decode import Decoder
from truedraft.drafters.cascade import CascadeDrafter
from truedraft.drafters.merge import MergeDrafter
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.ngram import NgramDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.drafters.suffix import SuffixDrafter
from truedraft.drafters.vocabulary import check_vocabulary
from truedraft.drafters.warm import owner_of, recycling
from truedraft.errors import CorruptModelError, ParameterError
from truedraft.model import Model
from truedraft.models import DEFAULT, Progress, resolve
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.fast import Preparation, prepare
from truedraft.targets.load import load_model
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

__all__ = ["DRAFTERS", "Kit", "Options", "assemble", "load", "parse_shape"]


@dataclass(frozen=True)
class Options:
    """How to load and run a model.

    drafter: a name of `DRAFTERS`. draft_model: the small model, for drafters "model" and "cascade". draft_tokens: depth
    of a chain or tree. tree: "3x2x1" fixes the children of every node level by level; "16" lets a drafter grow as many.
    share: drafters that remember texts or scores may draft for one request from what another one said. memory: a file
    in which recycling keeps what it learns from all requests, made if it is not there; it implies share.
    rule: "auto" or the name of an acceptance rule. dtype, device: "auto" takes a GPU in bfloat16 if there is one, else
    the CPU in float32. attention: "auto" is the fastest
    that this machine has, "sdpa" and "eager" are those of transformers. exact: logits that are the same bits however a
    text is drafted, batched and cut; None takes it where it costs little. batch: most prompts decoded at once.
    threads: of the CPU. trust_remote_code, allow_pickle: run code or unpickle weights that come with a model.
    """

    drafter: str = "ngram"
    draft_model: str | Path | None = None
    draft_tokens: int | None = None
    tree: str | None = None
    share: bool = False
    memory: str | Path | None = None
    rule: str = "auto"
    dtype: str = "auto"
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
        if self.drafter not in DRAFTERS:
            raise ParameterError(f"drafter is {self.drafter!r}: expected one of {', '.join(DRAFTERS)}")
        for name, users in _USERS.items():
            if getattr(self, name) is not None and self.drafter not in users:
                raise ParameterError(
                    f"{name} is given with drafter {self.drafter!r}: it belongs to drafter {' or '.join(users)}"
                )
        for name in ("batch", "threads", "draft_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ParameterError(f"{name} is {value}: expected at least 1")
        if self.exact and self.attention != "auto":
            raise ParameterError(f"attention is {self.attention!r} with exact: expected auto, which can be exact")
        if self.device not in ("auto", "cpu") and not self.device.startswith("cuda"):
            raise ParameterError(f"device is {self.device!r}: expected auto, cpu or cuda")


_USERS = {"draft_model": ("model", "cascade"), "memory": ("recycle", "merge", "cascade")}
"""Options that not every drafter uses, and those that do."""


def load(
    target: str | Path | PreTrainedModel = DEFAULT,
    *,
    tokenizer: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> Model:
    """A model ready to write.

    target: a catalogue name, a local folder, a GGUF file, a hub id, or a transformers model already in memory (then
    with its tokenizer, if text is wanted). options: see `Options`. Raises `ModelError` and `ParameterError`.
    """
    chosen = Options.of(options)
    shape = parse_shape(chosen.draft_tokens, chosen.tree)
    rule = rule_named(chosen.rule)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    if isinstance(target, PreTrainedModel):  # somebody else's: it is left as it is
        loaded, name = _Loaded(CachedModel(target), tokenizer, Preparation(False)), type(target).__name__
    else:
        loaded, name = _loaded(target, chosen, progress), str(target)
    facts = _facts(loaded.cache, tokenizer or loaded.tokenizer)
    model = assemble(Kit(chosen, loaded.cache, facts, progress), rule, shape, name=name)
    return replace(model, exact=loaded.preparation.exact, notes=loaded.preparation.notes)


@dataclass(frozen=True)
class Kit:
    """What the makers of drafters work with."""

    options: Options
    target: CachedModel
    facts: Facts
    progress: Progress | None = None


def assemble(kit: Kit, rule: Rule, shape: Shape | None, *, name: str) -> Model:
    """The parts joined."""
    drafter, usual = DRAFTERS[kit.options.drafter](kit)
    decoder = Decoder(TorchTarget(kit.target), drafter, rule, Fixed(shape or usual))
    return Model(decoder, kit.facts, batch=kit.options.batch, name=name, drafter_name=kit.options.drafter)


def parse_shape(draft_tokens: int | None, tree: str | None) -> Shape | None:
    """The shape that a user asked for; None where they left it to the drafter."""
    if tree is None:
        return None if draft_tokens is None else Shape.chain(draft_tokens)
    try:
        numbers = [int(part) for part in tree.lower().split("x")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ParameterError(
            f"tree is {tree!r}: expected children a level such as 3x2x1, or a number of nodes such as 16"
        )
    if len(numbers) == 1 and "x" not in tree.lower():
        return Shape(depth=draft_tokens or _DYNAMIC_DEPTH, width=_DYNAMIC_WIDTH, nodes=numbers[0])
    return Shape.tree(*numbers)


_DYNAMIC_DEPTH = 8
_DYNAMIC_WIDTH = 4


@dataclass(frozen=True)
class _Loaded:
    """A model, its tokenizer, and what was done to make it fast."""

    cache: CachedModel
    tokenizer: Any
    preparation: Preparation


def _loaded(name: str | Path, options: Options, progress: Progress | None) -> _Loaded:
    """The model and tokenizer behind a name."""
    folder = resolve(str(name), progress=progress, offline=options.offline, allow_pickle=options.allow_pickle)
    device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ParameterError(f"device is {options.device!r}, and PyTorch sees no CUDA device here; take cpu")
    cache = load_model(
        folder,
        dtype=_dtype(options.dtype, device),
        device=device,
        attention="sdpa" if options.attention == "auto" else options.attention,
        trust_remote_code=options.trust_remote_code,
        allow_pickle=options.allow_pickle,
    )
    tokenizer = _tokenizer(folder, options)
    if options.attention != "auto":
        return _Loaded(cache, tokenizer, Preparation(False))
    return _Loaded(cache, tokenizer, prepare(cache.model, exact=options.exact))


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def _dtype(name: str, device: str) -> torch.dtype:
    """A number type by its name; auto is exact on a CPU and fast on a GPU."""
    if name == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name not in _DTYPES:
        raise ParameterError(f"dtype is {name!r}: expected auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _tokenizer(folder: Path, options: Options) -> Any:
    """The folder's tokenizer; None where there is none, and prompts are then token ids."""
    if not any(folder.glob("tokenizer*")):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=options.trust_remote_code)
    except Exception as error:  # the tokenizers library raises bare exceptions
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorruptModelError(f"the tokenizer in {folder} cannot be read: {reason}") from error


def _facts(cache: CachedModel, tokenizer: Any) -> Facts:
    """Vocabulary, context and end tokens of a loaded model. Ids past the tokenizer's own are padding."""
    known = cache.vocab_size if tokenizer is None else min(len(tokenizer), cache.vocab_size)
    return Facts(known, cache.context_length, frozenset(_end_tokens(cache.model, tokenizer)), tokenizer)


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """From the generation config, else the model's config, else the tokenizer."""
    sources = (getattr(model, "generation_config", None), model.config, tokenizer)
    for found in (getattr(source, "eos_token_id", None) for source in sources):
        if found is not None:
            return [found] if isinstance(found, int) else list(found)
    return []


# ── the catalogue of drafters: name -> the drafter and the shape it is usually given ──────────────────────────────


def _none(kit: Kit) -> tuple[Drafter, Shape]:
    return NoDrafter(), Shape(0)


def _ngram(kit: Kit) -> tuple[Drafter, Shape]:
    return NgramDrafter(), Shape.chain(8)


def _model(kit: Kit) -> tuple[Drafter, Shape]:
    if kit.options.draft_model is None:
        raise ParameterError("drafter 'model' needs draft_model: the name, folder or file of a smaller model")
    loaded = _loaded(kit.options.draft_model, replace(kit.options, exact=False), kit.progress)
    if kit.facts.tokenizer is not None and loaded.tokenizer is not None:
        check_vocabulary(kit.facts.tokenizer, loaded.tokenizer)
    law = Law.COUPLED if kit.options.rule == "coupled" else None
    return ModelDrafter(loaded.cache, vocabulary=kit.target.vocab_size, law=law), Shape.chain(4)


def _suffix(kit: Kit) -> tuple[Drafter, Shape]:
    return SuffixDrafter(share=kit.options.share), _GROWN


def _recycle(kit: Kit) -> tuple[RecycleDrafter, Shape]:
    options = kit.options
    path = None if options.memory is None else Path(options.memory)
    owner = owner_of(kit.target.model.config, kit.facts.tokenizer)
    return recycling(owner, kit.target.vocab_size, share=options.share, path=path), _GROWN


def _merge(kit: Kit) -> tuple[Drafter, Shape]:
    return MergeDrafter([SuffixDrafter(share=kit.options.share), _recycle(kit)[0]]), _GROWN


def _cascade(kit: Kit) -> tuple[Drafter, Shape]:
    make: Maker = _recycle if kit.options.draft_model is None else _model
    other, shape = make(kit)
    return CascadeDrafter(SuffixDrafter(share=kit.options.share), other), shape


_GROWN = Shape(depth=16, width=8, nodes=16)
"""For drafters whose guesses cost nothing: they stop by themselves where another node does not pay."""

Maker = Callable[[Kit], tuple[Drafter, Shape]]

DRAFTERS: Mapping[str, Maker] = {
    "none": _none,
    "ngram": _ngram,
    "suffix": _suffix,
    "recycle": _recycle,
    "merge": _merge,
    "cascade": _cascade,
    "model": _model,
}
