"""The code of the page on the client runs as it stands there, and keeps its types."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mypy.api
import pytest

from tests.worlds.ports import own_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/client.md").read_text()
SERVER = "http://127.0.0.1:8080"

#: What a program may rely on: each of these is refused where a type is another one.
TYPES = """
from collections.abc import Iterator
from typing import Any, assert_type

from leasehold import Manifest, Summary, TraceEvent

assert_type(client.run("answers", {"text": "why?"}, Answer), Answer)
assert_type(client.run("answers", {"text": "why?"}), Any)
assert_type(client.result(run, Answer), Answer)
assert_type(client.result(run.run_id, dict[str, int]), dict[str, int])
assert_type(client.start("answers", Question(text="why?")), Summary)
assert_type(client.wait(run), Manifest)
assert_type(client.cancel(run, reason="x", generation=1), Summary)
assert_type(client.runs(status="ERROR"), Iterator[Summary])
assert_type(client.trace(run), list[TraceEvent])
client.start(pipeline=1, input={})  # type: ignore[arg-type]
client.cancel(run, generations=1)  # type: ignore[call-arg]
client.runs(stat="ERROR")  # type: ignore[call-arg]


async def typed(client: AsyncClient) -> None:
    assert_type(await client.run("answers", {"text": "why?"}, Answer), Answer)
    assert_type(await client.result(run, Answer), Answer)
    assert_type(await client.start("answers", Question(text="why?"), labels={}), Summary)
    assert_type(await client.cancel(run, reason="x", generation=1), Summary)
    await client.start("answers", {}, label={})  # type: ignore[call-arg]
    async for found in client.runs(pipeline="answers"):
        assert_type(found, Summary)
"""


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
    """A `leasehold dev` that runs that pipeline."""
    environ = {name: value for name, value in os.environ.items() if "LEASEHOLD" not in name}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "leasehold", "dev", "--port", str(own_port())],
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


def test_a_program_that_uses_the_client_keeps_its_types(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYPY_CONFIG_FILE_DIR", str(ROOT))  # mypy sets it
    program = folder / "program.py"
    program.write_text(program.read_text() + TYPES)
    settings = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", ROOT / ".mypy_cache")

    said, failed, code_ = mypy.api.run([*map(str, settings), str(program)])

    assert (said, failed, code_) == ("Success: no issues found in 1 source file\n", "", 0)
