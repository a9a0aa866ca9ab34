"""The code on the page about agents runs unchanged, and what is wrong is found before a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.pages import output_of_tests, write_files
from tests.worlds.processes import run_to_end


def test_the_agent_of_the_readme_is_that_of_the_page(tmp_path: Path) -> None:
    write_files("Pydantic AI", tmp_path)
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    _, _, shown = readme.partition("```python\n")

    agent, handler = shown.partition("```")[0].split("\n\n\n")

    steps = (tmp_path / "steps.py").read_text()
    assert agent in steps
    assert handler in steps


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leasehold", "check"]
    return run_to_end(command, cwd=folder, env={"LEASEHOLD_CATALOG": "steps", "PATH": ""})


def test_the_tests_of_the_page_pass_without_a_warning(tmp_path: Path) -> None:
    assert write_files("Pydantic AI", tmp_path) == ["steps.py", "test_steps.py"]

    assert "1 passed" in output_of_tests(tmp_path)


@pytest.mark.parametrize(
    ("found", "instead", "words"),
    [
        ('    name="researcher",\n', "", "needs to have a unique `name`"),
        (
            "capabilities=[Lease",
            "toolsets=[FunctionToolset()], capabilities=[Lease",
            "need to have a unique `id`",
        ),
    ],
    ids=["an agent without a name", "a toolset without an id"],
)
def test_what_cannot_be_recorded_is_found_by_a_check(
    tmp_path: Path, found: str, instead: str, words: str
) -> None:
    write_files("Pydantic AI", tmp_path)
    steps = (tmp_path / "steps.py").read_text().replace(found, instead)
    steps = steps.replace("import Agent", "import Agent, FunctionToolset")
    (tmp_path / "steps.py").write_text(steps)
    done = checked(tmp_path)

    assert done.returncode == 1
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if words in line]
    assert "steps" in line
