"""The package's surface: what it offers, how errors are related, and that importing it is light."""

import os
import subprocess
import sys

import pytest

import truedraft

TREE = {
    "InputError": "TruedraftError",
    "ParameterError": "InputError",
    "PromptError": "InputError",
    "ModelError": "TruedraftError",
    "UnknownModelError": "ModelError",
    "DownloadError": "ModelError",
    "CorruptModelError": "ModelError",
    "UnsupportedModelError": "ModelError",
    "VocabularyError": "ModelError",
    "OutOfMemoryError": "TruedraftError",
    "LawError": "TruedraftError",
}


@pytest.mark.parametrize("name", TREE)
def test_errors_are_a_tree(name):
    assert getattr(truedraft, name).__bases__[0] is getattr(truedraft, TREE[name])


@pytest.mark.parametrize("name", ["Chunk", "Model", "Result", "Stream", "load"])
def test_what_is_offered_is_there(name):
    assert getattr(truedraft, name).__name__ == name


def test_what_is_not_offered_is_not_there():
    with pytest.raises(AttributeError, match="lode"):
        _ = truedraft.lode


def test_importing_the_package_does_not_import_torch():
    code = "import sys, truedraft; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "idle"),
    [
        (["models"], "torch"),
        (["plan", "--alpha", "0.7"], "transformers"),
        (["--version"], "torch"),
        (["--help"], "torch"),
    ],
)
def test_commands_that_need_no_model_do_not_wait_for_its_libraries(arguments, idle, tmp_path):
    code = f"import sys; from truedraft.cli import main; assert main({arguments}) == 0 and {idle!r} not in sys.modules"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_help_and_refusals_come_at_once():
    """Of every command: nobody waits for the imports of what is not run."""
    code = """
import sys
from truedraft.cli import app, main
for command in app().registered_commands:
    assert main([command.name, "--help"]) == 0 and main([command.name, "--no-such-option"]) == 2, command.name
assert not {"torch", "transformers", "numpy"} & set(sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("No such option: --no-such-option") > 10


def test_input_errors_are_value_errors():
    assert issubclass(truedraft.InputError, ValueError)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "20000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_waiting_threads_are_the_users_to_command(given, expected):
    code = "import os, truedraft; print(os.environ.get('GOMP_SPINCOUNT'))"
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    ran = subprocess.run([sys.executable, "-c", code], env=clean | given, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected
