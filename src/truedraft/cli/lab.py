"""`truedraft lab`: open the pages that show how drafts are judged, what they cost, and what a run did."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from truedraft.errors import ParameterError
from truedraft.web import LabServer

__all__ = ["lab"]


def lab(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
) -> None:
    """Open the lab: dice, account and round viewer, in the browser and without a network."""
    try:
        server = LabServer(port)
    except OSError as error:
        raise ParameterError(f"port is {port}: cannot listen there ({error.strerror}); choose another one") from error
    with server:
        typer.echo(f"truedraft lab: {server.address} (Ctrl+C ends it)")
        if not no_browser:
            webbrowser.open(server.address)
        try:
            server.serve()
        except KeyboardInterrupt:
            typer.echo("")
