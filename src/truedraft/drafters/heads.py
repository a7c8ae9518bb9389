"""Where a trained head comes from, a user's folder or the one that ships, and whether it is one for this target.

A head beside a wrong target would never write a wrong word, only slowly; so everything that tells targets apart is
compared before it drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from truedraft.core import Law
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.fast_head import drafting_dtype
from truedraft.drafters.medusa import MedusaDrafter
from truedraft.drafters.pass_cost import FREE, PassCost
from truedraft.errors import (
    CorruptModelError,
    ParameterError,
    UnknownModelError,
    UnsupportedModelError,
    VocabularyError,
)
from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.eagle3 import Eagle3Net
from truedraft.nets.head import Head, read_config
from truedraft.nets.medusa import MedusaNet
from truedraft.nets.mtp import MtpNet
from truedraft.targets.cached import CachedModel

__all__ = ["HEADS", "head_drafter", "kind_of", "open_head", "shipped_head", "step_cost"]

HEADS: Mapping[str, type[MedusaNet | Eagle1Net | Eagle3Net]] = {
    "medusa": MedusaNet,
    "eagle1": Eagle1Net,
    "eagle2": Eagle1Net,
    "eagle3": Eagle3Net,
    "mtp": MtpNet,
}
"""Names of drafters to the nets they run; EAGLE-2 is EAGLE-1's net in another tree."""


def kind_of(folder: Path) -> str:
    """The name in `HEADS` of the head in a folder, by its architecture; an EAGLE-1 head drafts trees as "eagle2".

    Raises `UnknownModelError` and `CorruptModelError` as `read_config` does, `UnsupportedModelError` for another kind.
    """
    named = (read_config(folder).get("architectures") or ["nothing"])[0]
    if named not in _KINDS:
        raise UnsupportedModelError(f"{folder} holds a {named!r}: expected the head of a drafter {', '.join(HEADS)}")
    return _KINDS[named]


_KINDS = {
    "MedusaModel": "medusa",
    "LlamaForCausalLM": "eagle2",
    "EagleLlamaForCausalLM": "eagle2",
    "LlamaForCausalLMEagle3": "eagle3",
    "Eagle3LlamaForCausalLM": "eagle3",
    "MtpModule": "mtp",
}


def shipped_head(owner: str, kind: str) -> Path | None:
    """The folder of the head of a kind ("medusa", "eagle1", "eagle3", "mtp") that ships for a model, if one does."""
    folder = Path(str(resources.files("truedraft") / "heads" / owner / kind))
    return folder if folder.is_dir() else None


def open_head(name: str, target: CachedModel, *, owner: str, folder: Path | None = None) -> Head:
    """The head for a target, with what it shares of it, ready to draft.

    name: of `HEADS`. owner: what tells the target apart, see `warm.owner_of`. folder: None takes the one that ships.
    Raises `UnknownModelError` where there is none, `UnsupportedModelError` and `VocabularyError` for another target's
    head, and what `Head.load` raises.
    """
    kind = HEADS[name]
    path = folder or shipped_head(owner, kind.kind)
    if path is None:
        raise UnknownModelError(
            f"no {kind.kind} head ships for {owner}: train one with truedraft train {kind.kind}, or name its folder "
            "with --head"
        )
    net = kind.load(path, dtype=drafting_dtype(target.dtype, target.device)).to(target.device)
    _check(net, target, owner, path)
    net.share(*_matrices(target.model))
    return net


def head_drafter(
    name: str,
    target: CachedModel,
    *,
    owner: str,
    folder: Path | None = None,
    law: Law | None = None,
    passes: PassCost = FREE,
) -> MedusaDrafter | EagleDrafter:
    """The drafter on the head that `open_head` finds. passes: what the target's cost, which limits its trees."""
    net = open_head(name, target, owner=owner, folder=folder)
    if isinstance(net, MedusaNet):
        try:
            accuracies = net.notes.get("head_accuracies")
            return MedusaDrafter(net, layers=target.layers, accuracies=accuracies, law=law, passes=passes)
        except (ParameterError, TypeError) as error:
            raise CorruptModelError(f"the notes of {folder or owner} are damaged: {error}") from error
    assert isinstance(net, Eagle1Net | Eagle3Net)
    level = 0.0 if passes == FREE else step_cost(net, target)
    return EagleDrafter(net, layers=target.layers, law=law, passes=passes, level=level)


def step_cost(net: Eagle1Net | Eagle3Net, target: CachedModel) -> float:
    """About what a draft step costs, in target passes of one token: the bytes of weights that either reads.

    Never less than a layer's share, which is what counts where the weights are not the limit.
    """
    output = net.output.shape[0] * net.output.shape[1] if isinstance(net, Eagle1Net) else 0
    head = (_weights(net) + output) * next(net.parameters()).element_size()
    whole = max(1, _weights(target.model) * target.dtype.itemsize)
    return min(max(head / whole, 1 / target.layers), 0.9)


def _weights(model: nn.Module) -> int:
    """Of all products, packed or not."""
    sizes = [(getattr(each, "in_features", 0), getattr(each, "out_features", 0)) for each in model.modules()]
    return sum(inputs * outputs for inputs, outputs in sizes)


def _check(net: Head, target: CachedModel, owner: str, path: Path) -> None:
    """Whether the head fits the target."""
    if net.target_size != target.hidden_size:
        raise UnsupportedModelError(
            f"the head in {path} reads states of width {net.target_size}, and the target's have {target.hidden_size}: "
            "it is another model's"
        )
    if net.vocabulary.size != target.vocab_size:
        raise VocabularyError(
            f"the head in {path} is for {net.vocabulary.size} token ids, and the target has {target.vocab_size}: "
            "it is another model's"
        )
    theirs = net.notes.get("target")
    if theirs is not None and not (owner.startswith(str(theirs)) or str(theirs).startswith(owner)):
        raise VocabularyError(f"the head in {path} was trained for {theirs}, and the target is {owner}")


def _matrices(model: Any) -> tuple[Tensor, Tensor]:
    """The target's embedding [V, H] and output matrix [V, H]; tied ones are the same tensor."""
    embedding: Tensor = model.get_input_embeddings().weight
    tied = model.config.get_text_config(decoder=True).tie_word_embeddings
    output: Tensor = embedding if tied else model.get_output_embeddings().weight
    return embedding, output
