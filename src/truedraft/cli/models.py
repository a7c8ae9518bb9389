"""`truedraft pull` and `truedraft models`: bring a model to this machine; see which ones have a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from truedraft import models as library
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.models import DEFAULT, Listing, cache_folder

__all__ = ["models", "pull"]

_PULLED = "A name that `truedraft models` lists, a GGUF file, a hub id, or a folder to check."


def pull(
    name: Annotated[str, typer.Argument(help=_PULLED)] = DEFAULT,
    allow_pickle: opt.AllowPickle = False,
    json_: opt.Json = False,
) -> int:
    """Download, check and convert a model, so that it loads in a second and without a network."""
    with RichProgress(Console(stderr=True)) as progress:
        folder = library.pull(name, progress=progress, allow_pickle=allow_pickle)
    if json_:
        print(json.dumps({"name": name, "path": str(folder), "bytes": _bytes(folder)}, ensure_ascii=False))
    else:
        print(f"{name} is ready in {folder} ({_readable(_bytes(folder))})")
    return 0


def models(json_: opt.Json = False) -> int:
    """List the models that have a name, and which of them are on this machine."""
    listings = library.catalogue()
    if json_:
        print(json.dumps({"cache": str(cache_folder()), "models": [_facts(each) for each in listings]}))
        return 0
    console = Console(highlight=False)
    for each in listings:
        _show(console, each)
    console.print(
        f"A folder, a .gguf file or a hub id works as well. The cache is {cache_folder()}", style="dim", soft_wrap=True
    )
    return 0


def _show(console: Console, listing: Listing) -> None:
    """A named model in three lines."""
    entry, here = listing.entry, listing.path is not None
    default = " (the default)" if entry.name == DEFAULT else ""
    console.print(f"[bold]{entry.name}[/bold]{default}  {entry.description}", soft_wrap=True)
    console.print(f"  {'here:    ' if here else 'not here:'} {_where(listing)}", soft_wrap=True)
    console.print(f"  original: {entry.hub_id}, {entry.licence}", soft_wrap=True)


def _where(listing: Listing) -> str:
    entry = listing.entry
    if listing.path is not None:
        return f"{listing.path} ({_readable(listing.bytes)})"
    return (
        f"`truedraft pull {entry.name}` downloads {_readable(entry.gguf_bytes)}, keeps {_readable(entry.folder_bytes)}"
    )


def _facts(listing: Listing) -> dict[str, Any]:
    entry = listing.entry
    return {
        "name": entry.name,
        "description": entry.description,
        "hub_id": entry.hub_id,
        "licence": entry.licence,
        "sha256": entry.sha256,
        "parameters": entry.parameters,
        "default": entry.name == DEFAULT,
        "path": None if listing.path is None else str(listing.path),
        "bytes": listing.bytes,
    }


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _readable(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
