"""What holds for every page: both languages, both themes, two widths, the keyboard, no network, sound files."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import DESK, PHONE, Open
from truedraft.web import FOLDER

PAGES = ["index", "dice", "account", "rounds"]
VOID = {"meta", "link", "input", "br", "img"}

each_page = pytest.mark.parametrize("name", PAGES)


class Elements(HTMLParser):
    """The elements of a page as (tag, attributes, text right inside), and what does not close."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[int] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(len(self.all) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.all[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.all[self.open[-1]][2].append(data)


def source(name: str) -> str:
    return (FOLDER / f"{name}.html").read_text("utf-8")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_page
def test_a_page_names_only_files_that_lie_beside_it(name: str) -> None:
    elements = Elements(source(name))
    assert not elements.open
    named = [
        attrs.get("src") or attrs.get("href") for tag, attrs, _ in elements.all if tag in {"script", "link", "a", "img"}
    ]
    for reference in named:
        assert reference and (reference == "data:," or (FOLDER / reference).is_file()), reference
    assert not any(tag == "script" and text for tag, _, text in elements.all)  # the policy forbids scripts in the page


@each_page
def test_everything_is_said_in_both_languages(name: str) -> None:
    elements = Elements(source(name)).all
    languages = [attrs["lang"] for tag, attrs, _ in elements if "lang" in attrs and tag != "html"]
    assert languages[::2] == ["en"] * (len(languages) // 2)
    assert languages[1::2] == ["zh-CN"] * (len(languages) // 2)
    for _, attrs, _ in elements:
        assert ("data-label-en" in attrs) == ("data-label-zh" in attrs)
        assert "aria-label" not in attrs and "title" not in attrs and "placeholder" not in attrs
    for tag, attrs, text in elements:
        if attrs.get("lang") == "zh-CN":
            assert "\n" not in "".join(text).strip()  # a line end would show as a space between two characters
            assert tag == "span" or re.search("[一-鿿]|English", "".join(text))


def test_the_frame_is_the_same_on_every_page() -> None:
    def frame(name: str) -> str:
        page = source(name)
        header = page[page.index("<header") : page.index("</header>")]
        return re.sub(' aria-current="page"', "", header) + page[page.index("<footer") : page.index("</footer>")]

    assert len({frame(name) for name in PAGES}) == 1


def test_the_vendored_library_comes_with_its_licence() -> None:
    folder = FOLDER / "vendor" / "uplot"
    assert "MIT License" in (folder / "LICENSE").read_text("utf-8")
    version = re.search(r"\(v([\d.]+)\)", (folder / "uPlot.iife.min.js").read_text("utf-8"))
    assert version and version[1] in (FOLDER / "LICENSES.md").read_text("utf-8")


def test_scripts_pass_the_type_checker() -> None:
    compiler = shutil.which("tsc")
    if compiler is None:
        pytest.skip("tsc is not installed: npm install --global typescript")
    checked = subprocess.run([compiler, "-p", Path(__file__).parent], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


# ── in the browser ────────────────────────────────────────────────────────────────────────────────────────────────


@each_page
def test_language_and_theme_switch_and_are_remembered(open_page: Open, name: str) -> None:
    page = open_page(name, "")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert _lightness(page) < 0.2
    page.click("#language")
    assert page.get_attribute("html", "lang") == "zh-CN" and "lang=zh" in page.url
    assert "实验室" in page.title()
    if name in {"index", "account"}:  # the others show English tokens
        assert not re.search(r"\b(the|and|tokens?|speedup)\b", page.inner_text("body"), re.I)
    page.reload()
    assert page.get_attribute("html", "lang") == "zh-CN" and _lightness(page) < 0.2
    page.click("#language")
    assert page.get_attribute("html", "lang") == "en"
    assert not re.search("[一-鿿]", page.inner_text("main"))
    page.click("#theme")
    assert _lightness(page) > 0.9


def _lightness(page: Any) -> float:
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number)")[
        :3
    ]
    return float(red + green + blue) / 3 / 255


@each_page
@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_is_wider_than_a_phone(open_page: Open, name: str, language: str) -> None:
    page = open_page(name, f"lang={language}", viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.set_viewport_size(DESK)
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]


@each_page
def test_text_stands_out_from_its_ground(open_page: Open, name: str) -> None:
    """WCAG's contrast of at least 4.5 between the colours of text and the grounds it stands on."""
    page = open_page(name)
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        for ink in ("ink", "muted", "accent", "good", "bad"):
            for ground in ("paper", "surface", "sunken", *({"good": ["good-soft"], "bad": ["bad-soft"]}.get(ink, []))):
                if ink in ("good", "bad", "accent") and ground == "sunken":
                    continue
                assert _contrast(page, ink, ground) >= 4.5, (theme, ink, ground)


def _contrast(page: Any, ink: str, ground: str) -> float:
    bright, dim = sorted((_luminance(page, ink), _luminance(page, ground)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(page: Any, name: str) -> float:
    channels = page.evaluate("name => Page.colour(name).match(/[\\d.]+/g).slice(0, 3).map(v => Number(v) / 255)", name)
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@each_page
def test_every_control_has_a_name_and_is_reached_by_the_keyboard(open_page: Open, name: str) -> None:
    page = open_page(name)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")]
            .filter(node => node.getClientRects().length)
            .filter(node => !(node.ariaLabel || node.textContent.trim() || node.labels?.length))
            .map(node => node.outerHTML)"""
    )
    assert nameless == []
    wanted = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")]
            .filter(node => node.type !== "radio" && node.getClientRects().length && !node.disabled)
            .filter(node => !node.closest("details:not([open])") || node.matches("summary")).length"""
    )
    page.evaluate("window.reached = new Set()")
    for _ in range(wanted + 12):
        page.keyboard.press("Tab")
        page.evaluate("reached.add(document.activeElement)")
    reached = page.evaluate("[...reached].filter(node => !node.matches('body, input[type=radio]')).length")
    assert reached == wanted


def test_links_carry_the_language(open_page: Open) -> None:
    page = open_page("index", "lang=zh")
    page.click(".cards a:nth-child(2)")
    page.wait_for_url("**/account.html#lang=zh")
    page.click("nav a:nth-child(1)")
    page.wait_for_url("**/dice.html#lang=zh")
    assert page.get_attribute("html", "lang") == "zh-CN"


def test_the_language_follows_the_browser_unless_asked(open_page: Open) -> None:
    assert open_page("index", "", locale="zh-CN").get_attribute("html", "lang") == "zh-CN"
    assert open_page("index", "", locale="de-DE").get_attribute("html", "lang") == "en"
    assert open_page("index", "lang=en", locale="zh-CN").get_attribute("html", "lang") == "en"
