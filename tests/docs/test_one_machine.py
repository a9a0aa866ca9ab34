"""docs/one-machine.md: its unit is one, and its backup can be opened."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS

PAGE = (Path(__file__).parents[2] / "docs/one-machine.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """With programs and users that are here, as systemd looks for them."""
    (text,) = blocks("ini")
    unit = configparser.ConfigParser(strict=False, delimiters="=", interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # its names have capitals
    unit.read_string(text)
    assert unit["Service"]["KillMode"] == "mixed"
    assert "leasehold serve --port 8080" in unit["Service"]["ExecStart"]
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    file = tmp_path / "leasehold.service"
    file.write_text(text.replace("/srv/pipelines/.venv/bin/leasehold", sys.executable))

    checked = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    about_it = [line for line in checked.stderr.splitlines() if "leasehold.service" in line]
    assert about_it == [], checked.stderr


@pytest.mark.skipif(shutil.which("cp") is None, reason="there is no cp")
def test_the_backup_has_the_runs_of_a_server_that_runs_on(tmp_path: Path) -> None:
    (backup,) = (block for block in blocks("sh") if "VACUUM INTO" in block)
    lives, copies = tmp_path / "lives", tmp_path / "copies"
    lives.mkdir()
    stores = {
        "LEASEHOLD_STORE": f"sqlite:///{lives / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{lives / 'artifacts'}",
    }
    environ = environ_of(tmp_path) | stores
    commands = backup.replace("/var/lib/leasehold", str(lives)).replace(
        "/var/backups/leasehold", str(copies)
    )

    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as engine:
        run = engine.show(engine.run("large_then", {"n": 1}).run_id)  # its archive is noted
        for _ in range(2):  # also over the last one
            subprocess.run(
                ["/bin/sh", "-e", "-c", commands], env=dict(os.environ), check=True, timeout=60
            )

    copy = {name: value.replace(str(lives), str(copies)) for name, value in stores.items()}
    with InProcessEngine(STEPS, PIPELINES, environ=environ | copy, workers=0) as engine:
        assert engine.show(run.run_id) == run
    assert list((copies / "artifacts").rglob("*.json"))
    assert (copies / "leasehold.db").stat().st_mode & 0o077 == 0
