"""The command line: `truedraft COMMAND`. A mistake of the user's is one line on standard error and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from transformers.utils import logging as transformers_logging

from truedraft.cli.bench import bench
from truedraft.cli.certify import certify
from truedraft.cli.chat import chat
from truedraft.cli.data import data
from truedraft.cli.experiment import experiment
from truedraft.cli.fill_memory import fill_memory
from truedraft.cli.find_layers import find_layers
from truedraft.cli.generate import generate
from truedraft.cli.lab import lab
from truedraft.cli.models import models, pull
from truedraft.cli.plan import plan
from truedraft.cli.profile import profile
from truedraft.cli.train import train
from truedraft.errors import TruedraftError

__all__ = ["app", "main"]

app = typer.Typer(
    name="truedraft",
    help="Lossless speculative decoding: faster text, distributed exactly as the model alone would write it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    generate,
    chat,
    profile,
    bench,
    plan,
    experiment,
    certify,
    find_layers,
    fill_memory,
    pull,
    models,
    lab,
    data,
    train,
):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. 2: the request is at fault; 130: interrupted."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except TruedraftError as error:
        print(f"truedraft: {error}", file=sys.stderr)
        return 2
    except typer.TyperException as error:
        message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        print(f"truedraft: {' '.join(message.split())} (see --help)", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("truedraft: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has left; there is nobody to tell, and the interpreter must not try once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
