"""The module of multi-token prediction that a checkpoint brings along, run by transformers' own layers.

transformers builds such a module from the target's classes and reads its weights from the target's files (`MtpModel`):
DeepSeek-V3, GLM-4 MoE and their relatives with `num_mtp_layers` in their configuration. Here its layer runs under
whatever `Attend` a drafter brings: the attention function that the layer calls finds it in a context variable, and the
cache that it is given keeps nothing. Of several modules the first one serves every depth. A layer with a window or with
anything but attention as its memory drafts as if it had seen all of the text; drafts are checked by the target anyway.
"""

from __future__ import annotations

import copy
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.nets.attention import Attend
from truedraft.nets.eagle1 import Eagle1Config
from truedraft.nets.vocabulary import DraftVocabulary

__all__ = ["CheckpointMtp", "brings_module"]

_ATTENTION = "truedraft-head"
_ATTEND: ContextVar[Attend | None] = ContextVar("truedraft_attend", default=None)


def brings_module(model: Any) -> bool:
    """Whether the model's configuration tells of a module in its checkpoint."""
    return bool(getattr(model.config.get_text_config(decoder=True), "num_mtp_layers", None))


class CheckpointMtp(nn.Module):
    """The first module of a target's checkpoint, with the methods that drafting needs of a head.

    The target must have been loaded from a folder, whose files are read. Raises `UnsupportedModelError` where
    transformers knows no such module for the target, `CorruptModelError` where its weights are not in the files.
    """

    def __init__(self, target: Any) -> None:
        super().__init__()
        module = _load(target)
        self.layer = module.layers[0]
        self._behind = (module,)  # in a tuple, so that what it shares with the target is no part of this net
        for part in self.layer.modules():
            if hasattr(part, "config"):
                part.config = _with_attention(part.config)
        self.config = Eagle1Config.like(target.config)
        self.vocabulary = DraftVocabulary.full(self.config.layer.vocab_size)
        self.target_size = self.config.layer.hidden_size

    def taps(self, layers: int) -> tuple[int, ...]:
        """The last layer's output after the final norm."""
        return (layers,)

    def fuse(self, features: Tensor) -> Tensor:
        """Tapped states [..., 1, H] to what a slot of committed text reads [..., H]: the state itself."""
        return features.squeeze(-2)

    def forward(self, state: Tensor, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """States [N, H], next tokens [N] and positions [N] to the states that shall follow [N, H]."""
        (module,) = self._behind
        token = _ATTEND.set(attend)
        try:
            embedded = module.embed_tokens(tokens[None]).to(state.dtype)
            rotation = module.rotary_emb(embedded, position_ids=positions[None])
            out: Tensor = self.layer(
                embedded,
                state[None],
                position_embeddings=rotation,
                attention_mask=None,
                position_ids=positions[None],
                cache=_Nothing(),
            )
        finally:
            _ATTEND.reset(token)
        return (module.shared_post_norm(out) if module.use_shared_post_norm else out)[0]

    def logits(self, out: Tensor) -> Tensor:
        """States [..., H] to logits [..., V]."""
        (module,) = self._behind
        logits: Tensor = module._project_to_logits(out)
        return logits


def _load(target: Any) -> Any:
    try:
        from transformers.modeling_layers import MtpModel

        module = MtpModel.from_pretrained(target).to(target.device).eval().requires_grad_(False)
    except (ImportError, AttributeError, ValueError, StopIteration) as error:
        raise UnsupportedModelError(
            f"transformers loads no module of multi-token prediction for {target.config.model_type}: {error}"
        ) from error
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CorruptModelError(f"the module of {target.config.name_or_path} cannot be read: {reason}") from error
    if any(parameter.is_meta for parameter in module.layers.parameters()):
        raise CorruptModelError(f"{target.config.name_or_path} lacks the weights of its multi-token module")
    return module


class _Nothing(Cache):
    """A cache that hands back what it is given: what came before is the `Attend`'s affair."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values."""
        return key_states, value_states


def _with_attention(config: Any) -> Any:
    """The configuration, asking for the attention below."""
    changed = copy.deepcopy(config)
    changed._attn_implementation = _ATTENTION
    return changed


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """query [1, h, N, d], key [1, g, N, d], value [1, g, N, e] to [1, N, h, e], by the current `Attend`."""
    attend = _ATTEND.get()
    assert attend is not None
    size, width = query.shape[-1], value.shape[-1]
    scaling = options.get("scaling")
    if scaling is not None:  # an `Attend` divides by the root of the size
        query = query * (scaling * size**0.5)
    if width < size:
        value = nn.functional.pad(value, (0, size - width))
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    return attend(query.contiguous(), key, value)[None, ..., :width], None


AttentionInterface.register(_ATTENTION, _attention)
