"""The API is as its specification says, tried with requests that are made from it.

The gate asks each call for a right and for wrong requests, in tests/api/functions.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.dashboard.conftest import serve

_CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance")


@pytest.mark.nightly
def test_every_answer_is_one_that_the_specification_has(tmp_path: Path) -> None:
    """Schemathesis makes the requests: right ones and wrong ones, of runs that are there."""
    with serve(tmp_path, LEASEHOLD_ISOLATION="inline", PIPELINE_STUCK_TIMEOUT_MS="900000") as pages:
        run_id = pages.start("dead")
        pages.wait(run_id, lambda run: run["deadLettered"])
        (tmp_path / "schemathesis.toml").write_text(
            f'[parameters]\n"path.runId" = "{run_id}"\n"path.step" = "draft"\n'
        )
        tried = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run"),
                f"{pages.api.url}/openapi.json",
                *("--checks", ",".join((*_CHECKS, "response_schema_conformance"))),
                *("--phases", "fuzzing", "--max-examples", "200"),
                *("--generation-deterministic", "--no-color", "--suppress-health-check", "all"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )

    assert tried.returncode == 0, tried.stdout + tried.stderr
