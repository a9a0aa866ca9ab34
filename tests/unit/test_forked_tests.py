"""Tests in forks: none of them is lost, whatever one does to its process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOOD = "def test_a(tmp_path):\n    assert tmp_path.is_dir()\n"
BAD = "def test_b():\n    print('three')\n    assert 3 == 4\n"
DEADLY = "import os\ndef test_c():\n    os.kill(os.getpid(), 9)\ndef test_d():\n    pass\n"


@pytest.mark.parametrize("forks", ["1", pytest.param("3", marks=pytest.mark.nightly)])
def test_each_file_is_run_once_and_what_ends_its_process_has_failed(
    tmp_path: Path, forks: str
) -> None:
    """Another process goes on with the files that are left."""
    for name, text in (("a", DEADLY), ("b", BAD), ("c", GOOD), ("d", GOOD)):
        (tmp_path / f"test_{name}.py").write_text(text)

    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.worlds.forked_tests"),
            *("-c", os.devnull, "--rootdir", ".", "--forks", forks, "-rA"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert sorted(re.findall(r"^(PASSED|FAILED) (\S+)", done.stdout, re.MULTILINE)) == [
        ("FAILED", "test_a.py::test_c"),
        ("FAILED", "test_b.py::test_b"),
        ("PASSED", "test_c.py::test_a"),
        ("PASSED", "test_d.py::test_a"),
    ]
    assert "its process ended with -9" in done.stdout
    assert "three" in done.stdout
    assert "2 failed, 2 passed" in done.stdout
