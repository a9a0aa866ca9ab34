"""`leasehold init --agent pydantic-ai`: a project that works as it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.pages import output_of_tests


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    leasehold(folder, "init", "--agent", "pydantic-ai")
    return folder


def leasehold(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", *words],
        cwd=folder,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_tests_pass_without_a_warning(project: Path) -> None:
    assert "2 passed" in output_of_tests(project)


def test_its_run_completes_without_a_key_of_any_model(project: Path) -> None:
    said = leasehold(
        project, "start", "research", "--input", '{"text": "What is a lease?"}', "--in-process"
    )

    assert "COMPLETED" in said
