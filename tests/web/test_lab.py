"""The server of the lab: the pages and nothing else, to this machine and nobody else; and the command."""

from __future__ import annotations

import http.client
import socket
import webbrowser
from urllib.parse import urlsplit

import pytest

from tests.web.conftest import Open
from truedraft.cli.lab import lab as command
from truedraft.errors import ParameterError
from truedraft.web import FOLDER, LabServer


def get(address: str, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


@pytest.mark.parametrize("path", ["/", "/index.html", "/dice.html?x=1", "/js/rules.js", "/vendor/uplot/uPlot.min.css"])
def test_pages_are_served(lab: str, path: str) -> None:
    status, headers, body = get(lab, path)
    assert status == 200 and body
    assert "connect-src 'none'" in headers["content-security-policy"]
    assert headers["content-type"].endswith("; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "/serve.py",
        "/__init__.py",
        "/js/",
        "/vendor",
        "/nothing.html",
        "/../errors.py",
        "/%2e%2e/py.typed",
        "//etc/passwd",
    ],
)
def test_nothing_else_is_served(lab: str, path: str) -> None:
    assert get(lab, path)[0] == 404


def test_requests_for_another_host_are_refused(lab: str) -> None:
    assert get(lab, "/", host="evil.example:80")[0] == 403
    assert get(lab, "/", host=f"localhost:{urlsplit(lab).port}")[0] == 200


def test_only_this_machine_is_listened_to(lab: str) -> None:
    assert urlsplit(lab).hostname == "127.0.0.1"


@pytest.mark.parametrize("name", ["index", "dice", "account", "rounds"])
def test_pages_run_under_the_policy_of_the_server(open_page: Open, lab: str, name: str) -> None:
    page = open_page(name, base=lab)
    assert page.inner_text("h1")
    if name == "dice":
        page.click("#run-1000")
        page.wait_for_function("document.querySelector('#yield-rounds').textContent === '1,000'")


def test_a_taken_port_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ParameterError, match=f"port is {port}: cannot listen there"):
            command(port=port, no_browser=True)


@pytest.mark.parametrize("no_browser", [False, True])
def test_the_command_serves_and_opens_the_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_browser: bool
) -> None:
    opened: list[str] = []

    def interrupted(server: LabServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(LabServer, "serve", interrupted)
    command(port=0, no_browser=no_browser)
    address = capsys.readouterr().out.split()[2]
    assert address.startswith("http://127.0.0.1:")
    assert opened == ([] if no_browser else [address])


def test_pages_lie_in_the_package() -> None:
    assert (FOLDER / "index.html").is_file()
