from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.shell import Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with nothing in it, no setting, and this repository's own catalog out of reach."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != ROOT])
    for name in [name for name in sys.modules if name.partition(".")[0] == "pipelines"]:
        monkeypatch.delitem(sys.modules, name)
    shell = Shell(tmp_path)
    (tmp_path / "shop.py").unlink()
    del shell.settings["LEASEHOLD_CATALOG"]
    return shell
