"""What the runtime is held against: the same model through transformers' own forward, one whole text at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, Gemma2Config, Gemma2ForCausalLM, PreTrainedModel

from truedraft.targets.cached import CachedModel, Nodes

VOCABULARY = 48
KINDS = [("sdpa", torch.float32), ("sdpa", torch.float64), ("eager", torch.float32), ("eager", torch.float64)]
"""Attention and dtype. Eager attention takes its softmax in float32 whatever the dtype."""


def tolerance(attention: str, dtype: torch.dtype) -> float:
    """On logits of size 5."""
    return 1e-10 if (attention, dtype) == ("sdpa", torch.float64) else 1e-4


def grown(model: PreTrainedModel) -> PreTrainedModel:
    """The model with weights so large that every part of the context moves the logits."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def tiny_gemma2() -> PreTrainedModel:
    """Its scores are capped, which transformers' sdpa cannot do."""
    size = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "query_pre_attn_scalar": 16, "sliding_window": 8}
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 128}
    return grown(Gemma2ForCausalLM(Gemma2Config(**size, **heads, **caps, **ends)))


def text(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(3, VOCABULARY), k=length)


@torch.inference_mode()
def plain(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Logits [T, V] of a text."""
    return model(torch.tensor([list(tokens)], device=model.device), use_cache=False).logits[0]


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def one_path_at_a_time(
    model: PreTrainedModel, prefix: Sequence[int], tokens: Sequence[int], parents: Sequence[int]
) -> Tensor:
    """Logits [N, V] after every node, each from a pass over its whole text."""
    paths = [path_to(node, parents) for node in range(len(tokens))]
    return torch.stack([plain(model, [*prefix, *(tokens[node] for node in path)])[-1] for path in paths])


def random_nodes(rng: random.Random, count: int, before: int = 0) -> Nodes:
    """A random tree, or forest, that grows on `before` earlier nodes."""
    parents = tuple(rng.randrange(-1, before + node) for node in range(count))
    return Nodes(tuple(rng.choices(range(3, VOCABULARY), k=count)), parents)


def random_path(rng: random.Random, parents: Sequence[int]) -> list[int]:
    """A path from the committed tokens to a random node, or to nowhere."""
    return path_to(rng.randrange(-1, len(parents)), parents)


def state(model: CachedModel, key: object) -> list[Tensor]:
    """The keys and values of a row's committed tokens."""
    row, length = model._rows.index(key), model.cached(key)
    return [buffer[:, row, :, :length] for buffer in model._cache._buffers]


@torch.inference_mode()
def fresh_state(model: CachedModel, tokens: Sequence[int]) -> list[Tensor]:
    """The keys and values that transformers' own cache holds of just these tokens, read at once, in the same order."""
    cache = DynamicCache()
    if tokens:
        model.model(torch.tensor([list(tokens)]), cache=cache, use_cache=True)
        return [torch.stack([part[0] for layer in cache.layers for part in (layer.keys, layer.values)])]
    return [buffer[:, 0, :, :0] for buffer in model._cache._buffers]


def largest_difference(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Over all tensors; the shapes must agree."""
    assert [tensor.shape for tensor in some] == [tensor.shape for tensor in others]
    return max((float((a - b).abs().max()) for a, b in zip(some, others, strict=True) if a.numel()), default=0.0)
