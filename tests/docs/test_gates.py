"""The code on the page about gates runs unchanged."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/gates.md").read_text()


def block(language: str) -> str:
    """Return the first block in a language; the recipe behind it builds on that."""
    text, *_ = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_gate_of_the_page_blocks_its_run(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(block("python"))
    setting, start, runs = block("sh").splitlines()
    name, _, value = setting.removeprefix("export ").partition("=")

    started = run(tmp_path, start, {name: value})
    listed = run(tmp_path, runs, {name: value})

    assert started.returncode == 1, started.stderr
    assert "BLOCKED" in started.stdout
    assert "The answer to 'why?' names no source. Check the answer." in started.stdout
    assert (listed.returncode, listed.stdout.count("BLOCKED GATE_POLICY_FAILURE")) == (0, 1)


def run(folder: Path, line: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(line)
    assert program == "leasehold"
    return subprocess.run(
        [sys.executable, "-m", "leasehold", *arguments],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
