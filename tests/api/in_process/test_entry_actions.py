"""Entry actions are called in each attempt, so each of them begins with the right file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.sandboxed
def test_a_kill_after_the_action_and_a_spoiled_file_both_end_with_the_right_one(
    environ: dict[str, str],
) -> None:
    def start() -> subprocess.CompletedProcess[str]:
        settings = {"LEASEHOLD_CATALOG": "tests.api.in_process.entered"}
        words = ("start", "read", "--input", '"given"', "--idempotency-key", "k")
        return subprocess.run(
            [sys.executable, "-m", "leasehold", *words, "--in-process", "--json"],
            cwd=ROOT,
            env=os.environ | environ | settings,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    killed = [start().returncode for _ in range(2)]
    done = start()

    assert killed == [-signal.SIGKILL] * 2
    assert json.loads(done.stdout)["output"] == "given in attempt 3", done.stderr
