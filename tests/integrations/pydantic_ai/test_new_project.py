"""`leasehold init --agent pydantic-ai`: a project that works with the wheel and its extra alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.package.clean_environment import CleanEnvironment, build, built_in, install, unpack


class Project:
    """A new project, and the environment in which a user has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        build(folder)
        _, wheel = built_in(folder)
        unpack(wheel, folder / "unpacked")
        environment, tools = folder / "environment", ("pytest", "mypy")
        install(folder / "unpacked", environment, extras=("pydantic-ai",), tools=tools)
        self.environment = CleanEnvironment(environment)
        done = self.environment.run(
            "leasehold", "init", "project", "--agent", "pydantic-ai", cwd=folder
        )
        assert done.returncode == 0, done.stderr

    def do(self, *command: str) -> str:
        done = self.environment.run(*command, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stderr  # nothing here needs a second look
        return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("new"))


def test_its_tests_pass_without_a_warning(project: Project) -> None:
    assert "2 passed" in project.do("python", "-m", "pytest", "-W", "error")


def test_its_run_completes_without_a_key_of_any_model(project: Project) -> None:
    question = ("--input", '{"text": "What is a lease?"}')

    assert "COMPLETED" in project.do("leasehold", "start", "research", *question, "--in-process")


@pytest.mark.nightly  # twenty seconds of CPU: the library has many types
def test_it_keeps_the_strictest_types(project: Project) -> None:
    assert "no issues found in 4 source files" in project.do("python", "-m", "mypy")
