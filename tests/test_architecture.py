"""The house rules that a program can check: who imports whom, what is public, how large things are."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "truedraft"
MODULES = sorted(SOURCE.rglob("*.py"))

# Each part of the package (a file or a folder) with those right below it. It may import these, and all below them.
FOUNDATION = {
    "errors": "",
    "outputs": "errors",
    "core": "errors",
    "noise": "core",
    "dice": "noise",
    "drawing": "noise",
    "text": "core",
    "rows": "core",
    "sampling": "drawing rows",
    "request": "sampling text dice",
    "verify": "sampling",
    "decode": "verify",
    "results": "core",
    "model": "decode request results",
    "toy": "drawing",
    "models": "errors",
    "targets": "core models",
    "nets": "core",
    "drafters": "targets nets drawing outputs",
    "training": "nets model targets",
    "planning": "core",
    "bench": "model planning",
    "certify": "model planning drafters",
    "server": "model planning",
    "bridges": "nets",
    "web": "",
}
BELOW = FOUNDATION | {"build": " ".join(FOUNDATION), "": "build", "cli": "", "__main__": "cli"}
BELOW["cli"] = " build"  # "" is the package's own __init__, its public surface

HEART = [
    "errors",
    "core",
    "noise",
    "dice",
    "drawing",
    "text",
    "rows",
    "sampling",
    "request",
    "verify",
    "decode",
    "results",
    "model",
    "toy",
]
"""Parts that know no model: of the world outside they import the standard library and these two only."""
HEART_IMPORTS = {"torch", "numpy"}

PUBLIC = [
    "Chunk",
    "CorruptModelError",
    "DownloadError",
    "InputError",
    "LawError",
    "Model",
    "ModelError",
    "OutOfMemoryError",
    "ParameterError",
    "PromptError",
    "Result",
    "Stream",
    "TruedraftError",
    "UnknownModelError",
    "UnsupportedModelError",
    "VocabularyError",
    "load",
]
"""What `from truedraft import ...` offers."""

LONGER_FILES = {
    "core.py": (600, "the nouns and contracts are one page, meant to be read top-down in one go"),
}
LONGER_FUNCTIONS: dict[str, tuple[int, str]] = {}
MORE_PARAMETERS: dict[str, tuple[int, str]] = {}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(path: Path) -> str:
    """The part a file belongs to; "" for the package's own __init__."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


# ── imports point one way ─────────────────────────────────────────────────────────────────────────────────────────


@cache
def allowed(part: str) -> frozenset[str]:
    """All parts below this one."""
    right_below = BELOW[part].split(" ") if BELOW[part] else []
    return frozenset(right_below).union(*map(allowed, right_below))


def imported(path: Path) -> Iterator[str]:
    """The dotted names a file imports, wherever in it: also inside functions and for type checkers only."""
    package = ["truedraft", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for dotted in imported(path):
        package, _, rest = dotted.partition(".")
        if package == "truedraft":
            first = rest.partition(".")[0]
            is_part = (SOURCE / first).is_dir() or (SOURCE / f"{first}.py").is_file()
            parts.add(first if first and is_part else "")
    return parts


def test_the_import_order_has_no_circle() -> None:
    order = list(TopologicalSorter({part: below.split() for part, below in FOUNDATION.items()}).static_order())
    assert set(order) == set(FOUNDATION)


@each_module
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    assert part in BELOW, f"give {part} its place in BELOW"
    above = imported_parts(path) - allowed(part) - {part}
    assert not above, f"{name_of(path)} may not import {sorted(above)}"


@each_module
def test_the_heart_knows_no_library_of_models(path: Path) -> None:
    if part_of(path) in HEART:
        outside = {name.partition(".")[0] for name in imported(path)} - {"truedraft"} - HEART_IMPORTS
        assert outside <= sys.stdlib_module_names


def test_the_architecture_page_lists_every_part() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)(?:\.py|/)` \|", page, re.MULTILINE)
    parts = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert sorted(listed) == sorted(part for part in parts if not part.startswith("__"))


# ── what is public ────────────────────────────────────────────────────────────────────────────────────────────────


def public_names(path: Path) -> list[str] | None:
    """The literal `__all__` of a file, or None."""
    for node in tree_of(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(targets[0]) == "__all__":
            return list(ast.literal_eval(node.value or ast.List([])))
    return None


@each_module
def test_a_module_says_what_it_is_and_what_it_offers(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "no module docstring"
    names = public_names(path)
    assert names is not None, "no __all__"
    definitions = [node for node in tree_of(path).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    hidden = {node.name for node in definitions if not node.name.startswith("_")} - set(names)
    assert not hidden, f"neither in __all__ nor marked as private with an underscore: {sorted(hidden)}"


@each_module
def test_all_names_that_exist(path: Path) -> None:
    dotted = ".".join(["truedraft", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    if dotted != "truedraft.__main__":
        module = importlib.import_module(dotted)
        assert [name for name in public_names(path) or [] if not hasattr(module, name)] == []


def test_the_public_surface() -> None:
    assert sorted(importlib.import_module("truedraft").__all__) == sorted(PUBLIC)


def test_what_is_public_is_tested() -> None:
    tests = [test.read_text("utf-8") for test in (ROOT / "tests").rglob("*.py") if test != Path(__file__)]
    assert set(PUBLIC) <= set(re.findall(r"\w+", "\n".join(tests)))


# ── how large ─────────────────────────────────────────────────────────────────────────────────────────────────────


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name_of(path)}:{node.name}", node


def is_command(name: str) -> bool:
    """Whether this is a command of the command line: its options are its parameters, a line or more each."""
    return re.fullmatch(r"cli/(\w+)\.py:\1", name) is not None


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [parameter.arg for parameter in [*function.args.posonlyargs, *function.args.args]]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def sizes(measure: str) -> dict[str, int]:
    if measure == "lines of a file":
        return {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    every = [(name, node) for path in MODULES for name, node in functions(path) if not is_command(name)]
    if measure == "lines of a function":
        return {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in every}
    return {name: positional(node) for name, node in every}


@pytest.mark.parametrize(
    ("measure", "limit", "exceptions"),
    [
        ("lines of a file", 300, LONGER_FILES),
        ("lines of a function", 40, LONGER_FUNCTIONS),
        ("positional parameters", 6, MORE_PARAMETERS),
    ],
)
def test_sizes(measure: str, limit: int, exceptions: dict[str, tuple[int, str]]) -> None:
    found = {name: size for name, size in sizes(measure).items() if size > limit}
    allowed_sizes = {name: size for name, (size, _) in exceptions.items()}
    too_large = {name: size for name, size in found.items() if size > allowed_sizes.get(name, limit)}
    assert not too_large, f"at most {limit} {measure}, or an exception with its reason"
    assert set(exceptions) <= set(found), "an exception that is no longer needed"


# ── what is not written ───────────────────────────────────────────────────────────────────────────────────────────

BINARY = {".npz", ".safetensors", ".png"}

WRITTEN = sorted(
    path
    for pattern in ("*.md", "*.toml", ".ci/*", "docs/**/*", "scripts/*", "src/**/*", "tests/**/*")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix not in BINARY and not {"__pycache__", "vendor"} & set(path.parts)
)
NEVER_WRITTEN = {
    "a path of one machine": r"(?<![\w.])/(root|home|work|Users)/\w",
    "an address of a package index": r"https?://[\w.-]*(pypi|pythonhosted|npmjs|debian)\b",
    "a note to do it later": r"\b([T]ODO|[F]IXME|[X]XX|[H]ACK)\b",
}
OUTDATED_NAME = re.compile(r"[a-z0-9]_(v\d+|new|old|legacy|tmp)$")


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_words_that_are_never_written(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", errors="replace")
    found = {what: match[0] for what, pattern in NEVER_WRITTEN.items() if (match := re.search(pattern, text))}
    assert not found


@each_module
def test_names_tell_what_a_thing_is_not_when_it_came(path: Path) -> None:
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = [path.stem, *(node.name for node in ast.walk(tree_of(path)) if isinstance(node, definitions))]
    assert not [name for name in names if OUTDATED_NAME.search(name)]
