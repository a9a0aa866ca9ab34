"""The code on the page about testing runs unchanged, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from leasehold.domain.lifecycle.operate import Operation
from leasehold.testing import InProcessEngine
from tests.worlds.processes import run_to_end
from tests.worlds.warm_starts import PLAIN_PYTEST

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()


def test_the_tests_of_the_page_pass_without_a_warning(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    before = {name for name, _ in blocks}

    checked = run(tmp_path, "-m", "leasehold", "check", LEASEHOLD_CATALOG="steps")
    tested = run(tmp_path, *PLAIN_PYTEST, "-q", "-W", "error", "-p", "no:cacheprovider")

    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout == "nothing found: 2 steps, 1 gate, 1 pipeline\n"
    assert tested.returncode == 0, tested.stdout
    assert "17 passed" in tested.stdout
    assert {path.name for path in tmp_path.iterdir()} == before
    assert PAGE.count("```python\n") == len(blocks) == 7
    assert re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) == [
        "export LEASEHOLD_CATALOG=steps\nleasehold check\npytest -q\n"
    ]


def test_the_page_says_which_operations_an_engine_has_and_which_not() -> None:
    has, looks, lacks = re.findall(
        r"^(?:The engine has|To look, it has|It has no) (.*)$", PAGE, re.MULTILINE
    )
    names = re.findall(r"`(\w+)[`(]", f"{has} {looks}")

    assert {*Operation} | {"batch"} <= {*names}
    assert [name for name in names if name not in {"reason", "generation", "step"}] == [
        name for name in names if hasattr(InProcessEngine, name)
    ]
    missing = re.findall(r"`(\w+)`", lacks.partition(":")[0])
    assert missing
    assert not [name for name in missing if hasattr(InProcessEngine, name)]


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_to_end(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | environ,
    )
