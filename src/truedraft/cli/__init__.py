"""The command line: `truedraft COMMAND`. A mistake of the user's is one line on standard error and exit code 2."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

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


def app() -> typer.Typer:
    """The command line: what it offers is known at once, and what a command needs is imported when it runs."""
    made = typer.Typer(
        name="truedraft",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    for name in _COMMANDS:
        made.command(name)(_command(name))
    return made


def _command(name: str) -> Callable[..., Any]:
    """A command with its options and help, read from its file: to import that takes seconds, and waits for a call."""
    home = _HOMES.get(name, name.replace("-", "_"))
    said = _signature((Path(__file__).parent / f"{home}.py").read_text("utf-8"), name.replace("-", "_"))

    @wraps(said)
    def command(**options: Any) -> Any:
        try:
            run = getattr(import_module(f"truedraft.cli.{home}"), said.__name__)
            _mute()
            return run(**options)
        except KeyboardInterrupt:  # typer would end in silence
            raise typer.Abort from None

    return command


def _signature(source: str, name: str) -> Callable[..., Any]:
    """A function of this source with its parameters and docstring, and without what it does.

    Of all else in the source only what the parameters name is there.
    """
    tree = ast.parse(source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    named = {node.id for node in ast.walk(function.args) if isinstance(node, ast.Name)} | {"annotations"}
    function.body = function.body[:1]
    tree.body = [*filter(None, (_binding(node, named) for node in tree.body)), function]
    names: dict[str, Any] = {}
    exec(compile(tree, name, "exec"), names)
    made: Callable[..., Any] = names[name]
    return made


def _binding(node: ast.stmt, named: set[str]) -> ast.stmt | None:
    """An import or an assignment, cut down to what it binds of these names; None if it is nothing."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        node.names = [each for each in node.names if (each.asname or each.name) in named]
        return node if node.names else None
    stored = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return node if isinstance(node, ast.Assign) and named.intersection(stored) else None


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
    try:
        code = app()(args=said, standalone_mode=False)
        sys.stdout.flush()  # a reader that has left is noticed here, not at exit
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
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich saw it first
            return 0
        raise
    except OSError as error:  # the disk, most likely
        place = f" ({error.filename})" if error.filename else ""
        print(f"truedraft: {error.strerror or error}{place}", file=sys.stderr)
        return 2
