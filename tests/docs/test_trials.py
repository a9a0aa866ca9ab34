"""The code on the page about trials runs unchanged."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.worlds.shell import Shell, only_line

PAGE = (Path(__file__).parents[2] / "docs/trials.md").read_text()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shell = Shell(tmp_path, {"LEASEHOLD_CATALOG": "steps"})
    (tmp_path / "steps.py").write_text(source)
    return shell


def test_the_pipeline_of_the_page_publishes_its_second_trial(shell: Shell) -> None:
    start, audit = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    setting, line = start.splitlines()
    assert setting == "export LEASEHOLD_CATALOG=steps"

    checked = shell.run("check")
    started = shell.run(*shlex.split(line)[1:])
    run_id = re.findall(r"r-\w+", started.stdout)[0]
    traced = shell.run("trace", run_id)
    shown = shell.run("show", run_id)
    document = shell.run("show", run_id, "--json").stdout
    reader = shlex.split(audit.partition("| ")[2])
    kept = subprocess.run(reader, input=document, capture_output=True, text=True, check=True)

    assert (checked.returncode, started.returncode) == (0, 0), started.stderr
    assert shell.run("output", run_id).stdout == '"On leases. It has 2 words."\n'
    assert only_line(kept.stdout) == '1 {"text":"On leases."}'
    assert "trials: 2 made; trial 2 counts, score 6" in shown.stdout
    header, *events = [row.split("\t") for row in traced.stdout.splitlines()]
    assert header == ["AT", "AFTER", "EVENT", "STEP", "TRIAL", "ATTEMPT", "WHY"]
    opened = next(row for row in events if row[2] == "author_slot_opened")
    assert opened[3:] == ["write", "2", "1", "step review did not settle, score 2"]
    assert "trial 2 begins at step write" in started.stderr
