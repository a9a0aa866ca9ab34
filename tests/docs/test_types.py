"""Whoever pastes the code of the docs into a project with strict mypy is told of no error in it."""

from __future__ import annotations

import re
from pathlib import Path

import mypy.api

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


def test_a_checker_follows_a_handler_that_is_given_as_a_function(tmp_path: Path) -> None:
    (tmp_path / "catalog.py").write_text(CATALOG)
    settings = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache")

    said, _, _ = mypy.api.run([*map(str, settings), str(tmp_path)])

    first, second = re.findall(r"^.*catalog\.py:(\d+): error: (.*)$", said, re.MULTILINE)
    assert 'Argument "handler" to "StepDispatchEntry" has incompatible type' in first[1]
    assert 'Argument "check" to "GateEntry" has incompatible type' in second[1]


def test_the_code_of_the_pages_keeps_the_strictest_types(tmp_path: Path) -> None:
    """The page on the client has a test of its own, which says more of its types."""
    for text in code("docs/testing.md"):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    for page in ("handlers", "gates", "errors"):
        (tmp_path / f"{page}.py").write_text("\n\n".join(code(f"docs/{page}.md")))
    steps, test = code("README.md")
    (tmp_path / "readme.py").write_text(steps)
    (tmp_path / "test_readme.py").write_text(test.replace("import steps", "import readme as steps"))
    settings = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache")

    said, failed, _ = mypy.api.run([*map(str, settings), str(tmp_path)])

    assert (said, failed) == ("Success: no issues found in 12 source files\n", "")
