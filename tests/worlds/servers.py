"""Servers as people run them: real processes of `leasehold serve` on one file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.worlds.bundles import ROOT, Api, settings
from tests.worlds.ports import own_port

Begun = tuple[subprocess.Popen[str], Api]


@contextmanager
def servers(folder: Path, *options: str) -> Iterator[Callable[..., Begun]]:
    """Give what starts servers on the file of this folder; each is ready when it returns."""
    started: list[subprocess.Popen[str]] = []

    def begin(says: str = "http://127.0.0.1", **others: str) -> Begun:
        port = own_port()
        stores = {
            "LEASEHOLD_STORE": f"sqlite:///{folder / 'leasehold.db'}",
            "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
            "PIPELINE_LEASE_TTL_S": "600",  # nobody waits for the end of one
            "LEASEHOLD_ISOLATION": os.environ["LEASEHOLD_ISOLATION"],  # as tests/conftest.py has it
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", "serve", "--port", str(port), *options],
            env=settings(folder) | stores | others,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready {says}:{port}\n"
        return process, Api(f"http://127.0.0.1:{port}")

    try:
        yield begin
    finally:
        for process in started:
            process.kill()
            process.communicate()
