"""What the wheel does without an extra; of what needs one, it says in one line what to type."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leasehold.cli.deploy import COMMANDS
from tests.worlds.clean_environment import ROOT, CleanEnvironment
from tests.worlds.forked_commands import forked_commands

Built = tuple[Path, Path]

SETTINGS = {
    "LEASEHOLD_STORE": "firestore://project/database",
    "LEASEHOLD_ARTIFACTS": "gs://bucket",
    "LEASEHOLD_TASKS": "cloud-tasks://project/location",
}

LOOK = """
import leasehold.deploy.tables  # `dev` reads them, with the extra `functions` alone
from leasehold import *
from leasehold.cli.commands import COMMANDS, program
from leasehold.testing import *

for name in COMMANDS:
    assert program.get_command(None, name).get_short_help_str()
"""


@pytest.fixture(scope="module")
def forking(bare: CleanEnvironment) -> Iterator[CleanEnvironment]:
    """That environment, which imports its package once for all commands but `dev`."""
    with forked_commands(bare.environ) as environ:
        first, *_ = environ["PATH"].split(os.pathsep)
        yield replace(bare, first=Path(first))


def refused(environment: CleanEnvironment, folder: Path, *words: str, **settings: str) -> str:
    """Run a command that exits with 2; return its one line."""
    done = environment.run("leasehold", *words, cwd=folder, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def from_the_wheel(built: Built, extra: str) -> str:
    """Return what to type: an index may have anything under the name of the package."""
    return f"Type: pip install '{built[1]}[{extra}]'"


def test_what_the_readme_and_init_say_completes_a_run(
    forking: CleanEnvironment, tmp_path: Path
) -> None:
    """Four commands: make the environment, install (both are `bare`), init, start."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (pasted,) = (block for block in blocks if "leasehold init" in block)
    make, install, *rest = pasted.splitlines()
    assert (make.split()[:3], install.split()[:2]) == (
        ["python3", "-m", "venv"],
        ["pip", "install"],
    )
    assert len(rest) == 2

    done = forking.run("sh", "-ec", "\n".join(rest), cwd=tmp_path)
    init = forking.run("leasehold", "init", "my project", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "COMPLETED" in done.stdout
    next_ = init.stderr.splitlines()[0].removeprefix("next: ")
    assert shlex.split(next_) == ["cd", "my project", "&&", *shlex.split(rest[1])]


def test_dev_without_its_extra_says_what_to_install(
    bare: CleanEnvironment, built: Built, tmp_path: Path
) -> None:
    line = refused(bare, tmp_path, "dev")

    assert line.startswith("error: `leasehold dev` needs functions_framework")
    assert line.endswith(from_the_wheel(built, "functions"))


@pytest.mark.parametrize("command", COMMANDS)
def test_deploy_without_its_extra_says_what_to_install(
    forking: CleanEnvironment, built: Built, tmp_path: Path, command: str
) -> None:
    line = refused(forking, tmp_path, "deploy", command)

    assert line.startswith(f"error: `leasehold deploy {command}` needs google.cloud.")
    assert line.endswith(from_the_wheel(built, "deploy"))
    assert list(tmp_path.iterdir()) == []


def test_every_command_and_public_name_is_there_without_an_extra(
    bare: CleanEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "look.py").write_text(LOOK)

    done = bare.run("python", "look.py", cwd=tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def project(forking: CleanEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, in which nothing is written."""
    folder = tmp_path_factory.mktemp("project")
    forking.run("leasehold", "init", cwd=folder)
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_googles_services_without_their_extra_say_what_to_install(
    forking: CleanEnvironment, built: Built, project: Path, name: str
) -> None:
    settings = {name: SETTINGS[name], "LEASEHOLD_FUNCTION_URL": "http://localhost"}
    settings["LEASEHOLD_TASK_ACCOUNT"] = "runner@project.example"

    line = refused(forking, project, "start", "summary", "--input", '{"text": "One."}', **settings)

    assert line.startswith(f"error: {name}={SETTINGS[name]} needs google.")
    assert line.endswith(from_the_wheel(built, "google"))
    assert not (project / ".leasehold").exists()
