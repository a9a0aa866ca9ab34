"""What is not installed or not there: one line on stderr that says what to type, and exit 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.cli.deploy import COMMANDS
from tests.package.clean_environment import CleanEnvironment

Built = tuple[Path, Path]

SETTINGS = {
    "LEASEHOLD_STORE": "firestore://project/database",
    "LEASEHOLD_ARTIFACTS": "gs://bucket",
    "LEASEHOLD_TASKS": "cloud-tasks://project/location",
}

LOOK = """
from leasehold import *
from leasehold.cli.commands import COMMANDS, program
from leasehold.testing import *

for name in COMMANDS:
    assert program.get_command(None, name).get_short_help_str()
"""


def refused(environment: CleanEnvironment, folder: Path, *words: str, **settings: str) -> str:
    """Run a command that exits with 2; return its one line."""
    done = environment.run("leasehold", *words, cwd=folder, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def from_the_wheel(built: Built, extra: str) -> str:
    """Return what to type: an index may have anything under the name of the package."""
    return f"Type: pip install '{built[1]}[{extra}]'"


def test_dev_without_its_extra_says_what_to_install(
    bare: CleanEnvironment, built: Built, tmp_path: Path
) -> None:
    line = refused(bare, tmp_path, "dev")

    assert line.startswith("error: `leasehold dev` needs functions_framework")
    assert line.endswith(from_the_wheel(built, "functions"))


@pytest.mark.parametrize("command", COMMANDS)
def test_deploy_without_its_extra_says_what_to_install(
    bare: CleanEnvironment, built: Built, tmp_path: Path, command: str
) -> None:
    line = refused(bare, tmp_path, "deploy", command)

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
def project(bare: CleanEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, in which nothing is written."""
    folder = tmp_path_factory.mktemp("project")
    bare.run("leasehold", "init", cwd=folder)
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_googles_services_without_their_extra_say_what_to_install(
    bare: CleanEnvironment, built: Built, project: Path, name: str
) -> None:
    settings = {name: SETTINGS[name], "LEASEHOLD_FUNCTION_URL": "http://localhost"}
    settings["LEASEHOLD_TASK_ACCOUNT"] = "runner@project.example"

    line = refused(bare, project, "start", "summary", "--input", '{"text": "One."}', **settings)

    assert line.startswith(f"error: {name}={SETTINGS[name]} needs google.")
    assert line.endswith(from_the_wheel(built, "google"))
    assert not (project / ".leasehold").exists()
