"""What the page on long steps shows runs as it stands there, and its tests pass."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs/long-steps.md").read_text()
BLOCKS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TESTS = re.findall(r"^def (test_\w+)", BLOCKS["test_steps"], re.MULTILINE)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The tests of the page, imported beside its steps."""
    for name, block in BLOCKS.items():
        (tmp_path / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("test_steps")
    for name in BLOCKS:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", TESTS)
def test_each_test_of_the_page_passes(
    page: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = getattr(page, name)
    given = {"tmp_path": tmp_path / "store", "monkeypatch": monkeypatch}

    test(**{wanted: given[wanted] for wanted in inspect.signature(test).parameters})


def test_the_command_of_the_page_runs(page: ModuleType, tmp_path: Path) -> None:
    (line,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    setting, _, *words = shlex.split(line.replace('"seconds": 0.5', '"seconds": 0'))
    name, _, value = setting.partition("=")

    done = Shell(tmp_path, {name: value}).run(*words, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"]["text"].startswith("Summarise: What page 1 says.")
