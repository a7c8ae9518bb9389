"""A headless Chromium, and pages that must neither complain nor reach for the network."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from truedraft.web import FOLDER, LabServer

Open = Callable[..., Any]

ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
]
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed: pip install truedraft[test]")
    with sync_playwright() as playwright:
        found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
        executable = next((path for path in (*found, playwright.chromium.executable_path) if path), "")
        if not os.path.exists(executable):
            pytest.skip("no chromium is installed: apt-get install chromium")
        chromium = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open a page from the file system; afterwards it must have logged nothing and asked nobody for anything."""
    contexts, complaints = [], []

    def open_(name: str, state: str = "lang=en", *, base: str = "", **settings: Any) -> Any:
        base = base or f"{FOLDER.as_uri()}/"
        context = browser.new_context(**{"viewport": DESK, "color_scheme": "light", **settings})
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: complaints.extend(_foreign(request.url, base)))
        page.goto(f"{base}{name}.html" + (f"#{state}" if state else ""))
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture(scope="session")
def scripts(browser: Any) -> Iterator[Callable[[str], Any]]:
    """A page by name, opened once, for tests that only call its scripts."""
    context = browser.new_context()

    @cache
    def page(name: str) -> Any:
        page = context.new_page()
        page.goto(f"{FOLDER.as_uri()}/{name}.html")
        return page

    yield page
    context.close()


def _foreign(url: str, base: str) -> list[str]:
    own = url.startswith((base, "data:", "blob:"))
    return [] if own else [f"request: {url}"]


@pytest.fixture
def lab() -> Iterator[str]:
    """The address of a running lab."""
    with LabServer() as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()
