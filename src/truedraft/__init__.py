"""truedraft: lossless speculative decoding for any Hugging Face causal language model.

import truedraft
model = truedraft.load("smollm2-135m")
print(model.generate("Once upon a time").text)
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from truedraft.errors import (
    CorruptModelError,
    DownloadError,
    InputError,
    LawError,
    ModelError,
    OutOfMemoryError,
    ParameterError,
    PromptError,
    TruedraftError,
    UnknownModelError,
    UnsupportedModelError,
    VocabularyError,
)

# PyTorch reads this once, when it first allocates: weights in large pages are read up to a fifth faster on CPUs.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Threads of OpenMP wait for each other awake for longer than pays: beside a second busy program a pass took more than a
# second, now 0.3, and alone it takes as long as before. Set either variable to have it your way.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

if TYPE_CHECKING:
    from truedraft.build import load
    from truedraft.model import Model, Stream
    from truedraft.results import Chunk, Result

__all__ = [
    "Chunk",
    "CorruptModelError",
    "DownloadError",
    "InputError",
    "LawError",
    "Model",
    "ModelError",
    "OutOfMemoryError",
    "ParameterError",
    "PromptError",
    "Result",
    "Stream",
    "TruedraftError",
    "UnknownModelError",
    "UnsupportedModelError",
    "VocabularyError",
    "load",
]

_HOMES = {
    "load": "truedraft.build",
    "Model": "truedraft.model",
    "Stream": "truedraft.model",
    "Chunk": "truedraft.results",
    "Result": "truedraft.results",
}


def __getattr__(name: str) -> Any:
    """Import the parts that need torch and transformers, seconds of work, only when they are used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'truedraft' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
