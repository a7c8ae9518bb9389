"""A small server for the pages of the lab, on the loopback address."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

__all__ = ["FOLDER", "LabServer"]

FOLDER = Path(__file__).parent
"""Where the pages lie; `index.html` can be opened right there."""

_ADDRESS = "127.0.0.1"
_PAGES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# The pages never ask for anything but their own files; the browser holds them to it.
_POLICY = "default-src 'self'; img-src 'self' data:; connect-src 'none'; base-uri 'none'; form-action 'none'"


class _Handler(SimpleHTTPRequestHandler):
    """Hands out the pages, quietly, and nothing else that lies beside them."""

    def send_head(self) -> object:  # type: ignore[override]
        """Refuse requests that were meant for another host, listings of folders, and files that are not pages."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        path = Path(self.translate_path(self.path))
        if host not in {_ADDRESS, "localhost"}:
            self.send_error(HTTPStatus.FORBIDDEN, "This server answers to 127.0.0.1 and localhost only")
        elif path != FOLDER and path.suffix not in _PAGES:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            return super().send_head()
        return None

    def guess_type(self, path: object) -> str:
        """The types of pages, whatever the machine thinks of their suffixes."""
        return f"{_PAGES[Path(str(path)).suffix]}; charset=utf-8"

    def end_headers(self) -> None:
        """Add what keeps a page from talking to anybody."""
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal belongs to the person who opened the lab."""


class LabServer:
    """Serves the lab until it is closed; a context manager."""

    def __init__(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 takes a free one. Raises `OSError` if the port is taken or forbidden."""
        self._server = ThreadingHTTPServer((_ADDRESS, port), partial(_Handler, directory=str(FOLDER)))
        self.address = f"http://{_ADDRESS}:{self._server.server_port}/"

    def serve(self) -> None:
        """Answer requests until `shutdown` is called from another thread, or an exception ends it."""
        self._server.serve_forever()

    def shutdown(self) -> None:
        """Make `serve` return."""
        self._server.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()
