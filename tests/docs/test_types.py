"""The code of the docs has no error in a project with strict mypy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def code(page: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )


CATALOG = '''
from datetime import timedelta

from leasehold import GateContext, GateEntry, StepContext, StepDispatchEntry


def ask(ctx: StepContext, given: str) -> str:
    return given


async def ask_later(ctx: StepContext, given: str) -> str:
    return given


def short(ctx: GateContext, output: str) -> None:
    """Pass."""


def alone(ctx: StepContext) -> str:
    return ""


LIMITS = (timedelta(seconds=30), timedelta(seconds=60))


def entry(number: int) -> StepDispatchEntry:
    return [
        StepDispatchEntry(
            step_type="a", handler=each, agent_timeout=LIMITS[0], dispatch_deadline=LIMITS[1]
        )
        for each in (ask, ask_later, "shop:ask")
    ][number]


GATE = GateEntry(name="short", check=short)
WRONG = StepDispatchEntry(
    step_type="a", handler=alone, agent_timeout=LIMITS[0], dispatch_deadline=LIMITS[1]
)
WRONG_GATE = GateEntry(name="short", check=alone)
PATH: str = WRONG.handler
'''


VALUES = """
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Lease
from leasehold.domain.stored import make, replace


def changed(run: Manifest, lease: Lease) -> Manifest:
    run = replace(run, paused=True, position=replace(run.position, lease=lease))
    replace(run, paused="yes")
    replace(run.position, leese=lease)
    make(Lease, lease_id="one")
    run.paused = False
    return run
"""


#: What a program like that of the page on the client may rely on: each of these is refused where a
#: type is another one.
CLIENT_TYPES = """
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

#: What a test of a new project imports, where its modules lie beside those of the pages.
NEW_IMPORTS = """
import new_project_catalog as catalog
import new_project_summary as summary
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a checker says of all code at once: it reads the package before it reads any of it."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "functions.py").write_text(CATALOG)
    (folder / "values.py").write_text(VALUES)
    for text in code("docs/testing.md"):
        file = folder / text.splitlines()[0].removeprefix("# ")
        assert not file.exists()
        file.write_text(text)
    for page in ("handlers", "gates", "errors"):
        (folder / f"{page}.py").write_text("\n\n".join(code(f"docs/{page}.md")))
    _, steps, test = code("README.md")
    (folder / "readme.py").write_text(steps)
    (folder / "test_readme.py").write_text(test.replace("import steps", "import readme as steps"))
    client = "\n".join(code("docs/client.md")).replace("from steps import", "from readme import")
    (folder / "client_program.py").write_text(client + CLIENT_TYPES)
    _write_new_project(folder)
    # Of the package it reads what a program sees of it: the gate checks what is within.
    settings = (
        *("--config-file", ROOT / "pyproject.toml", "--follow-imports", "silent"),
        *("--cache-dir", ROOT / ".mypy_cache/pages"),
    )

    done = subprocess.run(  # all that it makes is let go at once when it ends
        [sys.executable, "-m", "mypy", *map(str, settings), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == "", done.stdout
    *lines, last = done.stdout.splitlines()
    assert last.endswith("errors in 2 files (checked 19 source files)"), done.stdout
    return lines


def _write_new_project(folder: Path) -> None:
    """Write what `leasehold init` does, in one folder under names that nothing else has."""
    for file in (ROOT / "shared/leasehold/cli/new-project").rglob("*.py"):
        name = f"new_project_{file.name}"
        text = file.read_text().replace("from pipelines import catalog, summary", NEW_IMPORTS)
        (folder / name).write_text(text)


def errors_of(file: str, lines: list[str]) -> list[tuple[str, str]]:
    """Return line and text of each error in a file."""
    return re.findall(rf"^.*/{file}:(\d+): error: (.*)$", "\n".join(lines), re.MULTILINE)


def test_a_checker_follows_a_handler_that_is_given_as_a_function(checked: list[str]) -> None:
    first, second = errors_of("functions.py", checked)

    assert 'Argument "handler" to "StepDispatchEntry" has incompatible type' in first[1]
    assert 'Argument "check" to "GateEntry" has incompatible type' in second[1]


def test_the_code_of_the_pages_and_of_a_new_project_keeps_the_strictest_types(
    checked: list[str],
) -> None:
    assert [line for line in checked if not re.match(r".*/(functions|values)\.py:", line)] == []


def test_a_program_that_uses_the_client_keeps_its_types(checked: list[str]) -> None:
    assert errors_of("client_program.py", checked) == []


def test_a_checker_knows_the_fields_of_the_values_of_a_run(checked: list[str]) -> None:
    found = errors_of("values.py", checked)

    assert sorted({int(number) for number, _ in found}) == [9, 10, 11, 12]
    assert 'Argument "paused" to "replace" of "Manifest" has incompatible type' in found[0][1]
    assert 'Unexpected keyword argument "leese" for "replace" of "Position"' in found[1][1]
    assert "read-only" in found[-1][1]
