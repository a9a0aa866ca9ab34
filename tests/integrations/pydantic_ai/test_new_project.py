"""`leasehold init --agent pydantic-ai`: a project that works with the wheel and its extra alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.clean_environment import CleanEnvironment, build, built_in, install, unpack
from tests.worlds.processes import run_to_end
from tests.worlds.warm_starts import PLAIN_PYTEST

INIT = ("init", "project", "--agent", "pydantic-ai")
START = ("start", "research", "--input", '{"text": "What is a lease?"}', "--in-process")
Do = Callable[..., str]


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr  # nothing here needs a second look
    return done.stdout


@pytest.fixture(scope="module")
def do_here(tmp_path_factory: pytest.TempPathFactory) -> Do:
    """Runs Python in a new project, in this environment."""
    folder = tmp_path_factory.mktemp("here")

    def do(*words: str, cwd: Path = folder / "project") -> str:
        return output_of(run_to_end([sys.executable, *words], cwd=cwd, env=os.environ))

    do("-m", "leasehold", *INIT, cwd=folder)
    return do


def test_its_tests_pass_without_a_warning(do_here: Do) -> None:
    assert "2 passed" in do_here(*PLAIN_PYTEST, "-W", "error")


def test_its_run_completes_without_a_key_of_any_model(do_here: Do) -> None:
    assert "COMPLETED" in do_here("-m", "leasehold", *START)


@pytest.fixture(scope="module")
def do(tmp_path_factory: pytest.TempPathFactory) -> Do:
    """Runs a command in a new project, in the environment in which a user has it."""
    folder = tmp_path_factory.mktemp("new")
    build(folder)
    _, wheel = built_in(folder)
    unpack(wheel, folder / "unpacked")
    extras, tools = ("pydantic-ai",), ("pytest", "mypy")
    install(folder / "unpacked", folder / "environment", extras=extras, tools=tools)
    environment = CleanEnvironment(folder / "environment")

    def do(*command: str, cwd: Path = folder / "project") -> str:
        return output_of(environment.run(*command, cwd=cwd))

    do("leasehold", *INIT, cwd=folder)
    return do


# The gate asks in `test_environment.py` whether the extra brings all that is imported.
@pytest.mark.nightly
def test_its_tests_pass_without_a_warning_as_a_user_has_it(do: Do) -> None:
    assert "2 passed" in do("python", "-m", "pytest", "-W", "error")


@pytest.mark.nightly
def test_its_run_completes_as_a_user_has_it(do: Do) -> None:
    assert "COMPLETED" in do("leasehold", *START)


@pytest.mark.nightly  # twenty seconds of CPU: the library has many types
def test_it_keeps_the_strictest_types(do: Do) -> None:
    assert "no issues found in 4 source files" in do("python", "-m", "mypy")
