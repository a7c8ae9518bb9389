"""`truedraft` without the seconds that its imports take: a process that has done them forks for every command.

`Warm` starts it, and makes a folder with a `truedraft` in it that asks it, to stand before the real one on the path. A
command has its caller's arguments, folder, environment and standard streams, and gives its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ASK = """#!{python} -IS
import json, os, socket, sys
asking = socket.socket(socket.AF_UNIX)
asking.connect({address!r})
socket.send_fds(asking, [json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n"], [0, 1, 2])
sys.exit(int(asking.makefile().read() or 1))
"""


class Warm:
    """The process, and in `folder` the command that asks it. It ends with `close`, or when its parent does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        address, command = str(folder / "socket"), folder / "truedraft"
        self._process = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=-1)
        assert self._process.stdout is not None and self._process.stdout.readline() == b"ready\n"
        command.write_text(ASK.format(python=sys.executable, address=address))
        command.chmod(0o755)

    def close(self) -> None:
        """End it."""
        self._process.communicate()  # closes its standard input


def serve(address: str) -> None:
    """Import what takes long, then fork for whoever asks until standard input ends."""
    import truedraft.build  # noqa: F401
    from truedraft.cli import main

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    server = os.fork()
    if server:
        print("ready", flush=True)
        sys.stdin.read()
        os.kill(server, signal.SIGTERM)
        return
    while True:
        asked, _ = listening.accept()
        if os.fork() == 0:
            answer(asked, main)
        asked.close()


def answer(asked: socket.socket, main: Callable[[list[str]], int]) -> None:
    """Do what is asked for, as a process of its own."""
    code = 1
    try:
        said, streams, *_ = socket.recv_fds(asked, 1 << 20, 3)
        arguments, folder, environment = json.loads(said)
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        asked.sendall(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
