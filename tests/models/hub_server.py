"""A model hub on the loopback interface, small enough to break on purpose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Hub:
    """Repositories by id, each a revision and its files; what was asked for; what goes wrong.

    status: answers every question with this code. cut: closes the connection after so many bytes of a file's body.
    """

    repositories: dict[str, tuple[str, dict[str, bytes]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    address: str = ""

    def publish(self, hub_id: str, files: dict[str, bytes]) -> str:
        """A new revision of a repository; its hash."""
        revision = hashlib.sha1(b"".join(files.values())).hexdigest()
        self.repositories[hub_id] = (revision, files)
        return revision


@contextmanager
def serve(hub: Hub) -> Iterator[None]:
    """Serve a hub at its `address`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            parts = self.path.split("?")[0].strip("/").split("/")
            if hub.status is not None:
                self.answer(hub.status, b"{}", hub.headers)
            elif parts[:2] == ["api", "models"] and "/".join(parts[2:4]) in hub.repositories:
                self.answer(200, self.information("/".join(parts[2:4])), {"Content-Type": "application/json"})
            elif parts[2:3] == ["resolve"] and "/".join(parts[:2]) in hub.repositories:
                self.file("/".join(parts[:2]), "/".join(parts[4:]))
            else:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

        def information(self, hub_id: str) -> bytes:
            revision, files = hub.repositories[hub_id]
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            return json.dumps({"id": hub_id, "sha": revision, "siblings": siblings, "tags": []}).encode()

        def file(self, hub_id: str, name: str) -> None:
            revision, files = hub.repositories[hub_id]
            content = files[name]
            headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": revision}
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.answer(206 if start else 200, content[start:], headers, may_cut=True)

        def answer(self, status: int, body: bytes, headers: dict[str, str], *, may_cut: bool = False) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                cut = hub.cut if may_cut and hub.cut is not None else len(body)
                self.wfile.write(body[:cut])
                self.close_connection = cut < len(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
