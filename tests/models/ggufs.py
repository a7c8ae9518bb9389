"""Tiny GGUF files, the model each was made from, and wheels that carry one in pieces."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from truedraft.models import ModelEntry, Wheel

TEMPLATE = "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"
SPECIALS = ["<|unknown|>", "<|start|>", "<|end|>", "<|stop|>"]
END, STOP = SPECIALS.index("<|end|>"), SPECIALS.index("<|stop|>")
LAYERS, HEADS, KV_HEADS = 2, 4, 2


def tokens() -> list[str]:
    """Special tokens, then the printable stand-ins of all bytes, then one merged token."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return [*SPECIALS, *bytes_to_unicode().values(), "ab"]


def source_model(*, seed: int = 0, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    """The model that the files hold; weights of that precision, kept in float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokens()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():  # and not `model.to`, which would round the rotary frequencies too
        parameter.data = parameter.data.to(dtype).float()
    return model


def tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The model's weights under their names in a GGUF file; rows of q and k in that format's rotary order."""
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    named = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for ours, theirs in _NAMES.items():
            named[f"blk.{layer}.{theirs}.weight"] = weights[f"{prefix}.{ours}.weight"]
        for projection, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
            name = f"blk.{layer}.{projection}.weight"
            named[name] = _interleaved(named[name], heads)
    return named


_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Each head's first half of rows and second half, taken in turns."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def write_gguf(
    path: Path,
    weights: dict[str, np.ndarray] | None = None,
    *,
    architecture: str = "llama",
    extra: Callable[[gguf.GGUFWriter], None] = lambda _: None,
) -> Path:
    """A whole GGUF file; `weights` replaces the tensors of `source_model()`, `extra` adds metadata."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens())
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens()) - len(SPECIALS)))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    extra(writer)
    for name, value in (tensors(source_model()) if weights is None else weights).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, wheel: Wheel, content: bytes, *, recorded: bytes | None = None) -> Path:
    """A wheel that carries `content`; `recorded` is what its record is made for, if that is something else."""
    stem = f"{wheel.project.replace('-', '_')}-{wheel.version}"
    digest = hashlib.sha256(content if recorded is None else recorded).digest()
    record = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    information = {
        "METADATA": f"Metadata-Version: 2.1\nName: {wheel.project}\nVersion: {wheel.version}\nRequires-Dist: absent\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": f"{wheel.member},sha256={record},{len(content)}\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(wheel.member, content)
        for name, text in information.items():
            bundle.writestr(f"{stem}.dist-info/{name}", text)
    return path


def entry_of(content: bytes, *, parts: int, name: str = "tiny", eos: Sequence[str] = ()) -> ModelEntry:
    """A catalogue entry for a GGUF file that comes in this many parts."""
    return ModelEntry(
        name=name,
        description="a tiny model",
        hub_id="nobody/tiny",
        licence="none",
        wheels=tuple(
            Wheel(f"{name}-part{part}", "1.0", f"{name}_part{part}/data/part{part:02}.bin")
            for part in range(1, parts + 1)
        ),
        sha256=hashlib.sha256(content).hexdigest(),
        gguf_bytes=len(content),
        parameters=1000,
        eos=tuple(eos),
    )


def pieces(content: bytes, parts: int) -> list[bytes]:
    """The content in this many pieces, the last one shorter."""
    size = -(-len(content) // parts)
    return [content[start : start + size] for start in range(0, len(content), size)]


@dataclass
class Steps:
    """A progress that remembers: per step its description, its total and how far it came, and whether it finished."""

    steps: list[list[object]] = field(default_factory=list)

    def start(self, description: str, total: int | None) -> None:
        self.steps.append([description, total, 0, False])

    def advance(self, amount: int) -> None:
        assert amount >= 0
        self.steps[-1][2] += amount  # type: ignore[operator]

    def finish(self) -> None:
        self.steps[-1][3] = True

    @property
    def descriptions(self) -> list[str]:
        return [str(step[0]) for step in self.steps]


def only_links(folder: Path) -> dict[str, str]:
    """An environment in which pip knows the wheels of a folder and nothing else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
