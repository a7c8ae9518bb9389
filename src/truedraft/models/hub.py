"""Models by hub id, through huggingface_hub and its cache, which other tools share.

Only safetensors, config and tokenizer files are taken. Which revision a pull took is noted, so that an id stands for
the same weights, without asking the hub again, until the next pull. It refuses to fetch code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedraft.errors import DownloadError, ModelError, UnknownModelError, UnsupportedModelError
from truedraft.models.folder import check_folder
from truedraft.models.progress import Meter, Progress
from truedraft.models.store import check_space

__all__ = ["HubModel", "is_hub_id", "wanted"]

_TIMEOUT_SECONDS = 5.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SMALL = re.compile(
    r"config\.json|generation_config\.json|tokenizer.*|vocab\.(json|txt)|merges\.txt|added_tokens\.json"
    r"|special_tokens_map\.json|chat_template\.(jinja|json)"
)
_SAFE = re.compile(r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json")
_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin|pytorch_model\.bin\.index\.json")


def is_hub_id(name: str) -> bool:
    """Whether a name has the form owner/name, and is one that the hub gives."""
    if _HUB_ID.fullmatch(name) is None:
        return False
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def wanted(files: Mapping[str, int], hub_id: str, *, allow_pickle: bool) -> dict[str, int]:
    """Of a repository's files (name to bytes), those that make a model folder; the weights come last.

    Raises `UnsupportedModelError` if they do not make one.
    """
    small = {name: size for name, size in files.items() if _SMALL.fullmatch(name)}
    weights = {name: size for name, size in files.items() if _SAFE.fullmatch(name)}
    pickled = {name: size for name, size in files.items() if _PICKLED.fullmatch(name)}
    if "config.json" in small and weights:
        return small | weights
    if "config.json" in small and pickled and allow_pickle:
        return small | pickled
    if "config.json" in small and pickled:
        raise UnsupportedModelError(
            f"{hub_id} holds pickled weights only, and loading those can run any code: "
            "pass --allow-pickle (allow_pickle=True) if you trust their source"
        )
    ggufs = sorted(name for name in files if name.endswith(".gguf"))
    instead = f"download a GGUF file of it, such as {ggufs[0]}, and give that file" if ggufs else "give another model"
    raise UnsupportedModelError(f"{hub_id} holds no config.json with safetensors weights: {instead}")


@dataclass(frozen=True)
class HubModel:
    """A model of the hub; `note` is the file in which its pulled revision is kept."""

    hub_id: str
    note: Path
    allow_pickle: bool = False

    def cached(self) -> Path | None:
        """The folder of the revision pulled last, if all its files are there in full size."""
        try:
            noted = json.loads(self.note.read_bytes())
            folder = self._snapshot(noted["revision"])
            whole = folder and all((folder / name).stat().st_size == size for name, size in noted["files"].items())
        except (OSError, ValueError, KeyError):
            return None
        if not whole or folder is None:
            return None
        check_folder(folder, allow_pickle=self.allow_pickle)
        return folder

    def foreign(self) -> Path | None:
        """The folder that another tool has downloaded, if it is whole."""
        folder = self._snapshot("main")
        try:
            if folder is not None:
                check_folder(folder, allow_pickle=self.allow_pickle)
        except ModelError:
            return None
        return folder

    def fetch(self, progress: Progress) -> Path:
        """Download what is missing of the newest revision and note it.

        Raises `UnknownModelError` if the hub has no such model, `DownloadError` if it cannot be reached or refuses, or
        what arrives cannot be kept, and `UnsupportedModelError`, before any weights, for a model of its own code.
        """
        from huggingface_hub import HfApi, hf_hub_download  # half a second to import, and most runs need no hub

        self._note_down(None)
        with self._explained():
            info = HfApi().model_info(self.hub_id, files_metadata=True, timeout=_TIMEOUT_SECONDS)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        files = wanted(sizes, self.hub_id, allow_pickle=self.allow_pickle)
        self._require_space(info.sha, files)
        progress.start(f"downloading {self.hub_id}", sum(files.values()))
        meter, end = Meter(progress), 0
        for name in sorted(files, key=lambda name: name != "config.json"):
            end += files[name]
            with self._explained():
                file = hf_hub_download(
                    self.hub_id, name, revision=info.sha, etag_timeout=_TIMEOUT_SECONDS, tqdm_class=_bar(meter, end)
                )
            meter.reach(end)
            if name == "config.json":
                self._refuse_code(Path(file))
        progress.finish()
        return self._finished(info.sha, files)

    def _finished(self, revision: str | None, files: Mapping[str, int]) -> Path:
        """Note the revision whose files have all arrived."""
        self._note_down({"revision": revision, "files": files})
        folder = self.cached()
        if folder is None:
            raise DownloadError(f"{self.hub_id}: files are missing although the hub reported no error: try again")
        return folder

    def _note_down(self, what: Mapping[str, Any] | None) -> None:
        """Write the note in one step, whoever else does; None only tries whether it could be written."""
        draft = self.note.with_name(f"{self.note.name}.{os.getpid()}.tmp")
        try:
            self.note.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(what, indent=2) + "\n", encoding="utf-8")
            if what is None:
                draft.unlink()
            else:
                draft.replace(self.note)
        except OSError as error:
            raise DownloadError(
                f"cannot write to the cache {self.note.parent}: {error.strerror}. Set TRUEDRAFT_CACHE to another folder"
            ) from error

    def _refuse_code(self, config: Path) -> None:
        """Raise `UnsupportedModelError` for a model that transformers knows only with the code beside it."""
        try:
            said = json.loads(config.read_bytes())
        except ValueError:
            return  # what is wrong with it is said where it is read
        if not isinstance(said, dict) or not said.get("auto_map"):
            return
        from transformers import CONFIG_MAPPING  # seconds to import, which loading the model would take as well

        if said.get("model_type") not in CONFIG_MAPPING:
            raise UnsupportedModelError(
                f"{self.hub_id} needs code of its own, which is never fetched: download the repository, look at its "
                "code, and give the folder with --trust-remote-code (trust_remote_code=True)"
            )

    def _snapshot(self, revision: str | None) -> Path | None:
        """The folder of a revision in the hub's cache, if its config is there."""
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(self.hub_id, "config.json", revision=revision)
        return Path(config).parent if isinstance(config, str) else None

    def _require_space(self, revision: str | None, files: Mapping[str, int]) -> None:
        from huggingface_hub import constants

        folder, snapshot = Path(constants.HF_HUB_CACHE), self._snapshot(revision)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DownloadError(
                f"cannot write to the hub's cache {folder}: {error.strerror}. Set HF_HOME to another folder"
            ) from error
        missing = sum(size for name, size in files.items() if snapshot is None or not (snapshot / name).exists())
        check_space(folder, missing, self.hub_id)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The client's many errors as one of ours, in one line."""
        from huggingface_hub import errors

        try:
            yield
        except errors.GatedRepoError as error:
            raise DownloadError(
                f"{self.hub_id} is gated: accept its terms on the model hub, then log in with `hf auth login`"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise UnknownModelError(
                f"unknown model {self.hub_id!r}: no such folder here and no such public model on the hub; "
                "if it is private, log in with `hf auth login`"
            ) from error
        except OSError as error:
            raise DownloadError(f"{self.hub_id}: the download failed: {_line(error)}. Try again") from error
        except Exception as error:  # the transport's own errors share no base with anything we can name
            raise DownloadError(
                f"{self.hub_id}: the model hub cannot be reached: {_line(error)}. Check the network"
            ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def _bar(meter: Meter, end: int) -> Any:
    """A tqdm class that shows nothing and moves the meter, up to `end`."""
    from tqdm import tqdm  # type: ignore[import-untyped]  # it ships no types

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": True})

        def update(self, n: float | None = 1) -> None:
            meter.reach(min(meter.done + int(n or 0), end))

    return Bar
