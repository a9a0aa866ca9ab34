from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.worlds.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with a project in order."""
    shutil.copy(Path(__file__).with_name("letters.py"), tmp_path)
    shell = Shell(tmp_path, {"LEASEHOLD_CATALOG": "letters"})
    (tmp_path / "shop.py").unlink()
    return shell
