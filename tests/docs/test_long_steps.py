"""The code on the page about long steps runs unchanged, and its tests pass."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.worlds.processes import run_to_end
from tests.worlds.shell import Shell
from tests.worlds.warm_starts import PLAIN_PYTEST

PAGE = (Path(__file__).parents[2] / "docs/long-steps.md").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with the two files that the page is."""
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    assert [name for name, _ in blocks] == ["steps.py", "test_steps.py"]
    return tmp_path


def test_the_tests_of_the_page_pass_without_a_warning(folder: Path) -> None:
    tested = run_to_end(
        [sys.executable, *PLAIN_PYTEST, "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=folder,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout


def test_the_command_of_the_page_runs(folder: Path) -> None:
    (line,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    setting, _, *words = shlex.split(line.replace('"seconds": 0.5', '"seconds": 0'))
    name, _, value = setting.partition("=")

    done = Shell(folder, {name: value}).run(*words, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"]["text"].startswith("Summarise: What page 1 says.")
