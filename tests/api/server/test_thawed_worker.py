"""A server that is frozen for longer than its lease, with all it started, and thaws."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.worker.sandbox.forking.memory import descendants_of
from tests.api.server.project import Project
from tests.worlds.waiting import freeze, until

#: Each call is paid for with a line in a file.
PAYS = """
import time
from pathlib import Path
def pay(key):
    with Path("paid").open("a") as paid:
        paid.write(key + "\\n")
    return key
def handle(ctx, given):
    ctx.once("a", pay, "a")
    Path(f"told-{ctx.attempt}").touch()
    while Path(f"hold-{ctx.attempt}").exists():
        time.sleep(0.001)
    return ctx.once("b", pay, "b")
"""

SHORT = {"PIPELINE_LEASE_TTL_S": "3", "PIPELINE_HEARTBEAT_S": "0.5"}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path, SHORT)
    yield project
    project.close()


@pytest.mark.sandboxed
def test_a_worker_that_thaws_after_its_lease_pays_for_no_further_call(project: Project) -> None:
    """Its threads go on all at once, and the one that looks at the clock may not be the first."""
    project.of_steps(a="")
    project.write(a=PAYS)
    for attempt in (1, 2):
        (project.folder / f"hold-{attempt}").touch()
    frozen = project.serve("--workers", "1")
    run_id = frozen.start("x", pipeline="p")
    until((project.folder / "told-1").exists)
    server = project.pids[-1]
    stopped = [server, *descendants_of(server)]
    freeze(stopped, project.folder / ".leasehold" / "leasehold.db")

    other = project.serve()
    until((project.folder / "told-2").exists)  # it has the next attempt
    (project.folder / "hold-2").unlink()
    other.ended(run_id)
    (project.folder / "hold-1").unlink()
    for pid in reversed(stopped):  # the handler first
        os.kill(pid, signal.SIGCONT)

    until(lambda: len(descendants_of(server)) < len(stopped) - 1)
    assert (project.folder / "paid").read_text().split() == ["a", "b"]
