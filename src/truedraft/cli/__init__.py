"""The command line: `truedraft COMMAND`. A mistake of the user's is one line on standard error and exit code 2."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from truedraft.errors import TruedraftError

__all__ = ["app", "main"]

_COMMANDS = (
    "generate",
    "chat",
    "profile",
    "bench",
    "plan",
    "experiment",
    "certify",
    "find-layers",
    "fill-memory",
    "pull",
    "models",
    "lab",
    "data",
    "train",
)
"""In the order of the help. Each is a function, in a file of its own name unless `_HOMES` says otherwise."""

_HOMES = {"pull": "models"}


def app(first: str | None = None) -> typer.Typer:
    """The command line for commands that begin with this word: each imports only what it uses, and help nothing."""
    made = typer.Typer(
        name="truedraft",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    if first in _COMMANDS:
        made.command(first)(getattr(import_module(f"truedraft.cli.{_home(first)}"), first.replace("-", "_")))
        return made
    for name in _COMMANDS:
        made.command(name, help=_help(name))(_nothing)
    return made


def _home(name: str) -> str:
    """The module of a command."""
    return _HOMES.get(name, name.replace("-", "_"))


def _help(name: str) -> str:
    """What a command says of itself, read without the seconds that importing it would take."""
    source = (Path(__file__).parent / f"{_home(name)}.py").read_text("utf-8")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    return ast.get_docstring(functions[name.replace("-", "_")]) or ""


def _nothing() -> None:
    """In the place of a command where none can be run: on a help page, or behind a word that is none."""


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"truedraft {version('truedraft')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Lossless speculative decoding: faster text, distributed exactly as the model alone would write it."""


def _mute() -> None:
    """Let transformers say nothing of its own, where it was imported."""
    if "transformers" in sys.modules:
        logging = import_module("transformers.utils.logging")
        logging.disable_progress_bar()
        logging.set_verbosity_error()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. 2: the request is at fault; 130: interrupted."""
    said = list(sys.argv[1:] if arguments is None else arguments)
    commands = app(said[0] if said else None)
    _mute()
    try:
        code = commands(args=said, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except TruedraftError as error:
        print(f"truedraft: {error}", file=sys.stderr)
        return 2
    except typer.TyperException as error:
        message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        if message:  # none where the help was printed because nothing was said
            print(f"truedraft: {' '.join(message.split())} (see --help)", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("truedraft: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has left; there is nobody to tell, and the interpreter must not try once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
