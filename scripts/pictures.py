#!/usr/bin/env python3
"""Takes the pictures of docs/how-it-works.md from the pages of the lab. Needs playwright and Chromium."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "src" / "truedraft" / "web"
PICTURES = ROOT / "docs" / "pictures"


def one_round(page: Any) -> None:
    while page.inner_text("#yield-rounds") == "0":
        page.click("#step")


def thousand_rounds(page: Any) -> None:
    page.click("#run-1000")
    page.wait_for_function("document.querySelector('#yield-rounds').textContent === '1,000'")


def nothing(page: Any) -> None:
    pass


SHOTS: dict[str, tuple[str, Callable[[Any], None], str]] = {
    "dice-stage": ("dice.html#lang=en&preset=code&seed=27", one_round, "section:has(#stage)"),
    "dice-pair": ("dice.html#lang=en", nothing, "section:has(#pair)"),
    "dice-wrong": ("dice.html#lang=en&rule=careless", thousand_rounds, "section:has(#fit)"),
    "account-curve": ("account.html#lang=en", nothing, "section:has(#curve)"),
    "account-map": ("account.html#lang=en", nothing, "section:has(#map)"),
    "rounds-tree": ("rounds.html#lang=en&round=14", nothing, "section:has(#tree)"),
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        for name, (address, act, part) in SHOTS.items():
            page.goto("about:blank")
            page.goto(f"{PAGES.as_uri()}/{address}")
            act(page)
            page.evaluate("document.activeElement.blur()")
            page.locator(part).screenshot(path=PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
