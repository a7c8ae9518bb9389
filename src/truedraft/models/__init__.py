"""Models by name: a catalogue name, a folder, a GGUF file or a hub id becomes a folder that transformers can load.

    resolve("smollm2-135m")  →  ~/.cache/truedraft/models/smollm2-135m

Read `entries.py` for what has a name, `library.py` for what happens to a name. This package downloads, checks and
converts; it refuses to load models, to print, and to run code or unpickle weights that came with a model.
"""

from truedraft.models.entries import CATALOGUE, DEFAULT, ModelEntry, Wheel
from truedraft.models.library import Library, Listing, catalogue, pull, resolve
from truedraft.models.progress import Progress, Silent
from truedraft.models.store import cache_folder

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "Library",
    "Listing",
    "ModelEntry",
    "Progress",
    "Silent",
    "Wheel",
    "cache_folder",
    "catalogue",
    "pull",
    "resolve",
]
