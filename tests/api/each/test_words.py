"""The words for people on a run that waits for lanes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.worlds.shell import Shell


def test_a_run_says_which_of_its_lanes_waits_for_what(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"LEASEHOLD_CATALOG": "tests.worlds.catalogs.lists"})

    started = shell.run(
        "start", "squares", "--input", '{"name": "w!3", "count": 6}', "--in-process"
    )
    run_id = re.findall(r"r-\w+", started.stdout)[0]
    shown = shell.run("show", run_id).stdout
    why = shell.run("why", run_id).stdout
    listed = shell.run("runs").stdout

    assert started.returncode == 1
    assert "5 of 6 items done, 0 lanes at work, 1 lane blocked" in shown
    assert "lane 2" in shown
    assert "Item 3: PERMANENT_FAILURE" in why
    assert "retry" in why
    assert re.findall(r"\bl-\w+", listed) == []
