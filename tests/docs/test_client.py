"""The code of the page on the client runs as it stands there; test_types.py has its types."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.ports import own_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/client.md").read_text()
SERVER = "http://127.0.0.1:8080"


def code(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with the pipeline of the README, and a program that is the whole page."""
    (tmp_path / "steps.py").write_text(code(README)[1])
    (tmp_path / "program.py").write_text("\n".join(code(PAGE)))
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """A `leasehold serve` that runs that pipeline."""
    environ = {name: value for name, value in os.environ.items() if "LEASEHOLD" not in name}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "leasehold", "serve", "--port", str(own_port())],
            cwd=folder,
            env=environ | {"LEASEHOLD_CATALOG": "steps", "PYTHONPATH": str(folder)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert server.stdout is not None
    ready = server.stdout.readline()
    assert ready.startswith("ready http"), (folder / "log").read_text()
    yield ready.split()[1]
    server.terminate()
    assert server.wait(60) in (0, 143)
    server.stdout.close()


def test_the_code_of_the_page_runs(folder: Path, url: str) -> None:
    program = folder / "program.py"
    program.write_text(program.read_text().replace(SERVER, url))

    done = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    first, refused, *_, last = done.stdout.splitlines()
    assert first == "WHY?"
    assert refused.startswith("Cannot cancel run")
    assert last == "[Answer(text='WHY?'), Answer(text='HOW?'), Answer(text='WHEN?')]"
