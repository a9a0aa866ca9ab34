"""The code in the README runs unchanged."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.warm_starts import PLAIN_PYTEST

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with the files that the README has them write.

    Its first code is of docs/agents.md, and runs with the library: see tests/integrations/.
    """
    _, steps, test = blocks("python")
    (tmp_path / "steps.py").write_text(steps)
    (tmp_path / "test_steps.py").write_text(test)
    return tmp_path


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_pipeline_of_the_readme_runs(folder: Path) -> None:
    (line,) = (line for line in "".join(blocks("sh")).splitlines() if "start answers" in line)
    setting, *command = shlex.split(line)
    name, _, value = setting.partition("=")

    done = run(folder, "-m", *command, "--json", **{name: value})

    assert done.returncode == 0, done.stderr
    assert '"status":"COMPLETED"' in done.stdout.replace(" ", "")


def test_the_test_of_the_readme_passes(folder: Path) -> None:
    done = run(folder, *PLAIN_PYTEST, "-q", "test_steps.py", PYTHONPATH=str(folder))

    assert done.returncode == 0, done.stdout


def test_the_index_and_the_site_name_every_page_once_and_in_one_order() -> None:
    listed = re.findall(r"^- \[([\w-]+\.md)\]", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    site = re.findall(r"^ +- ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)

    assert sorted([*listed, "index.md"]) == sorted(
        page.name for page in (ROOT / "docs").glob("*.md")
    )
    assert site == listed


def test_the_files_that_the_docs_link_to_are_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert missing == []
