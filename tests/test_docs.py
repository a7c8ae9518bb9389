"""The documents tell the truth: every block of commands or Python in them runs, every link leads somewhere.

A fence that starts with ```bash, ```console (lines after `$ `) or ```python is run, in the order of the page, in one
scratch folder and one Python namespace a page. A page that loads a model or calls the command is a `real` test. A fence
marked ```bash no-run is left out; the line above it says why: <!-- no-run: the reason -->. The commands of a page share
the imports of one process.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Warm

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LANGUAGES = {"bash", "console", "python"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?P<goal>[^)\s]+)\)")
SECONDS_A_BLOCK = 600  # ends a block that hangs; nothing is measured by it

COMMAND = re.compile(r"^(\$ )?truedraft ", re.MULTILINE)
NEEDS_MODEL = re.compile(rf"\bload\(|{COMMAND.pattern}", re.MULTILINE)
REASON = re.compile(r"<!-- no-run: \S.* -->\n *$")

NOT_RUN = {
    "CONTRIBUTING.md": 2,
    "README.md": 1,
    "docs/choose-a-drafter.md": 1,
    "docs/losslessness.md": 1,
    "docs/measuring.md": 2,
    "docs/train-a-drafter.md": 1,
    "docs/using.md": 1,
}
"""How many blocks of a page are not run. Keep them few: nothing holds them true."""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, whether it is run, its text."""

    page: Path
    line: int
    language: str
    text: str
    is_run: bool = True

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, markdown: str) -> Iterator[Block]:
    """The blocks of a page that have a language. Any word after it must be a no-run with its reason above."""
    for match in FENCE.finditer(markdown):
        language, *words = match["info"].split() or [""]
        line = markdown[: match.start()].count("\n") + 2
        excused = words == ["no-run"] and REASON.search(markdown[: match.start()]) is not None
        assert not words or excused, f"{page.name}:{line}: expected no-run, and above it <!-- no-run: the reason -->"
        lines = [line.removeprefix(match["indent"]) for line in match["text"].splitlines()]
        yield Block(page, line, language, "\n".join(lines), is_run=not words)


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page, page.read_text("utf-8")) if block.language in LANGUAGES]


def commands(console: str) -> str:
    """What a console block's user types: the lines after `$ `, and their continuations after `> `."""
    typed = [line[2:] for line in console.splitlines() if line.startswith(("$ ", "> "))]
    return "\n".join(typed)


class Runner:
    """Runs the blocks of one page in one folder and one namespace; ends what they left running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._groups: list[int] = []
        self._environment = dict(os.environ)
        self.prefer(Path(sys.executable).parent)  # as in an activated environment

    def prefer(self, folder: Path) -> None:
        """Let the commands in a folder come first."""
        self._environment["PATH"] = os.pathsep.join([str(folder), self._environment.get("PATH", "")])

    def run(self, block: Block) -> None:
        if block.language == "python":
            # Blank lines above make a traceback name the line in the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), self._namespace)
        else:
            self._shell(block, commands(block.text) if block.language == "console" else block.text)

    def _shell(self, block: Block, script: str) -> None:
        # Output goes to a file: a server left running would hold a pipe open for ever.
        log = self._folder / ".log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            status = process.wait(SECONDS_A_BLOCK)
        assert status == 0, f"{block} ended with status {status}:\n{script}\n{log.read_text('utf-8', 'replace')}"

    def close(self) -> None:
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:  # nothing was left running
                continue


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    runner = Runner(tmp_path)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    warm = Warm(tmp_path_factory.mktemp("warm"))
    yield warm
    warm.close()


def page_to_run(page: Path) -> Any:
    """The page as a test parameter, marked by what its blocks need."""
    needs_model = any(block.is_run and NEEDS_MODEL.search(block.text) for block in runnable(page))
    marks = [pytest.mark.real] if needs_model else []
    return pytest.param(page, marks=marks, id=page.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", [page_to_run(page) for page in PAGES if runnable(page)])
def test_every_block_runs(page: Path, runner: Runner, request: pytest.FixtureRequest) -> None:
    to_run = [block for block in runnable(page) if block.is_run]
    if any(COMMAND.search(block.text) for block in to_run):
        runner.prefer(request.getfixturevalue("warm").folder)
    for block in to_run:
        runner.run(block)


def test_few_blocks_are_not_run() -> None:
    left_out = {page.relative_to(ROOT).as_posix(): [not block.is_run for block in runnable(page)] for page in PAGES}
    assert {name: sum(marks) for name, marks in left_out.items() if any(marks)} == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_fences_are_well_formed(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```") == 2 * len(FENCE.findall(text)), "an opening fence without its end"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text("utf-8"))
    goals = [match["goal"] for match in LINK.finditer(prose)]
    broken = [goal for goal in goals if not re.match(r"https?:|mailto:", goal) and not leads_somewhere(page, goal)]
    assert not broken


def leads_somewhere(page: Path, goal: str) -> bool:
    """Whether a relative link names a file, and a heading in it if it names one."""
    name, _, heading = goal.partition("#")
    file = page.parent / name if name else page
    return file.exists() and (not heading or heading in headings(file))


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# ── the checks above, checked ─────────────────────────────────────────────────────────────────────────────────────


def test_a_block_knows_its_place_and_language() -> None:
    markdown = "# Title\n\n```python\nx = 1\n```\n\n- item\n\n  ```console\n  $ echo 1\n  1\n  ```\n"
    first, second = blocks(ROOT / "README.md", markdown)
    assert (first.line, first.language, first.text, first.is_run) == (4, "python", "x = 1", True)
    assert (second.line, second.language) == (10, "console")
    assert commands(second.text) == "echo 1"


def test_a_block_is_left_out_only_for_a_reason() -> None:
    fence = "```bash no-run\nrm -r /\n```\n"
    (block,) = blocks(ROOT / "README.md", "<!-- no-run: it would be a pity -->\n" + fence)
    assert not block.is_run
    for markdown in (fence, "<!-- no-run: -->\n" + fence, "```bash slow\n```\n"):
        with pytest.raises(AssertionError, match="no-run"):
            list(blocks(ROOT / "README.md", markdown))


def test_blocks_share_a_folder_and_a_namespace(runner: Runner, tmp_path: Path) -> None:
    page = ROOT / "README.md"
    runner.run(Block(page, 1, "bash", "echo 41 > number"))
    runner.run(Block(page, 1, "python", "number = int(open('number').read())"))
    runner.run(Block(page, 1, "python", "open('next', 'w').write(str(number + 1))"))
    assert (tmp_path / "next").read_text() == "42"


def test_a_block_that_fails_is_named(runner: Runner) -> None:
    with pytest.raises(AssertionError, match=r"README.md:7 ended with status 1"):
        runner.run(Block(ROOT / "README.md", 7, "console", "$ false | true\n"))
    with pytest.raises(AssertionError, match=r"README.md:7 ended with status 3"):
        runner.run(Block(ROOT / "README.md", 7, "bash", "exit 3"))


def test_a_command_asks_the_process_that_is_warm(runner: Runner, warm: Warm, tmp_path: Path) -> None:
    runner.prefer(warm.folder)
    asked = (
        "cd / && truedraft plan --alpha 0.7 --cost 0.1 --draft-tokens 4 --json > {0}/plan && which truedraft > {0}/it"
    )
    runner.run(Block(ROOT / "README.md", 7, "bash", asked.format(tmp_path)))
    assert "speedup" in (tmp_path / "plan").read_text()
    assert (tmp_path / "it").read_text() == f"{warm.folder / 'truedraft'}\n"
    with pytest.raises(AssertionError, match=r"(?s)ended with status 2:.*truedraft: draft_tokens"):
        runner.run(Block(ROOT / "README.md", 7, "bash", "truedraft plan --alpha 0.7 --cost 0.1 --draft-tokens -4"))


SERVER = """
(trap 'touch ended; exit' TERM; touch ready; while :; do sleep 0.05; done) &
until [ -e ready ]; do sleep 0.05; done
"""


def test_what_a_block_leaves_running_is_ended(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.run(Block(ROOT / "README.md", 1, "bash", SERVER))
    assert not (tmp_path / "ended").exists()
    runner.close()
    while not (tmp_path / "ended").exists():
        time.sleep(0.05)
