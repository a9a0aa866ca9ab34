"""The commands of docs/remote-workers.md, as a user pastes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from leasehold.domain.artifact_name import files_folder
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.docs.examples.conftest import ended
from tests.worlds.bundles import ROOT


@pytest.fixture
def environ(environ: dict[str, str]) -> dict[str, str]:
    """Nothing renews the lease between two commands."""
    return environ | {"PIPELINE_LEASE_TTL_S": "30"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_docs_do_what_they_say(
    engine: InProcessEngine, run: Manifest, url: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "remote-workers.md").read_text()
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    done = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        cwd=tmp_path,
        env=os.environ | {"LEASES": url},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout

    assert done.count('"expiresAt"') == 3
    assert done.endswith('{"outcome":"handed_off"}')
    assert ended(engine, run).status == "COMPLETED"
    assert engine.engine.artifacts.get(f"{files_folder(run)}/note.txt") == b"by hand"
