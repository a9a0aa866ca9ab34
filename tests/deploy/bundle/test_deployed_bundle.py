"""A bundle as it is deployed: built as its buildpack does, each function booted and called."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.bundle.deployed import Deployed, Image, deployed
from tests.worlds.emulators import need_firestore, need_pubsub
from tests.worlds.waiting import until


@pytest.fixture
def functions(image: Image, tmp_path: Path) -> Iterator[Deployed]:
    need_firestore()
    need_pubsub()
    (tmp_path / "logs").mkdir()
    with deployed(image, tmp_path / "logs") as functions:
        yield functions


def test_all_that_its_requirements_need_is_among_them(image: Image) -> None:
    """`pip check`, which a build fails with."""
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(image.environment.folder / "bin" / "python"),
    )

    checked = image.environment.run(*pip, "check", cwd=image.environment.folder)

    assert checked.stdout == "No broken requirements found.\n", checked.stdout + checked.stderr


def test_an_import_loads_the_requested_entry_and_no_other(image: Image) -> None:
    program = """
import gc, os, sys
sys.path.append(".")
import main
entries = lambda: [name for name in sys.modules if name.startswith("functions.")]
print(entries(), main.sweep_dead_letters.__name__, entries())
print(gc.get_freeze_count() > 10_000, gc.isenabled())
os.environ["LEASEHOLD_CATALOG"] = "missing"
try:
    main.serve_api
except Exception as error:
    print(type(error).__name__, gc.isenabled())
"""

    done = image.environment.run("python", "-P", "-c", program, cwd=image.bundle)

    assert done.stdout.splitlines() == [
        "[] sweep_dead_letters ['functions.sweep_dead_letters']",
        "True True",  # what it imported is never looked through for garbage; all else is
        "MissingCatalogError True",
    ], done.stderr


def test_its_byte_code_outlives_the_times_that_files_get_in_an_image(image: Image) -> None:
    """Each is checked by the hash of its source (PEP 552)."""
    compiled = [*image.bundle.rglob("*.pyc")]

    assert len(compiled) > 300
    assert {path.read_bytes()[4:8] for path in compiled} == {b"\3\0\0\0"}


def test_each_function_boots_from_it_and_does_its_part_of_a_run(
    functions: Deployed, tmp_path: Path
) -> None:
    """A run is started, its steps are executed, it is swept, asked a lease for, and announced."""
    (tmp_path / "page.md").write_text("# Page\n\nEach queue keeps 7 days of messages at most.\n")
    start = {"pipeline": "review", "input": {"folder": str(tmp_path)}}
    call = functions.answer

    run_id = until(lambda: call("serve_api", "/runs", start).get("runId"), 60)
    until(lambda: call("serve_api", f"/runs/{run_id}").get("status") == "COMPLETED", 60)
    until(lambda: call("sweep_dead_letters", "/", {}).get("deadLettered") == 0)
    acquire = {"runId": run_id, "holder": "vm-1"}
    refused = f"Nothing to claim: run {run_id} is COMPLETED."
    until(lambda: refused in str(call("manage_lease", "/leases:acquire", acquire)))
    until(lambda: f'"{run_id}"' in functions.log("deliver_notification"))

    assert until(lambda: call("serve_api", f"/runs/{run_id}/output").get("verdict"))


@pytest.mark.parametrize("name", ["execute_step", "serve_api"])  # gunicorn's two kinds of workers
def test_a_worker_outlives_that_its_instance_was_idle_without_cpu(
    image: Image, tmp_path: Path, name: str
) -> None:
    """The arbiter wakes up first, as it may: it kills no worker that was silent for too long."""
    store = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/files",
    }
    function = Deployed(image, tmp_path, store)
    try:
        arbiter = function.start(FUNCTIONS[name], CLOUD_RUN_TIMEOUT_SECONDS="1").pid
        until(lambda: function.answer(name, "/health"), 60)
        (worker,) = children(arbiter)

        os.killpg(arbiter, signal.SIGSTOP)
        until(lambda: states(arbiter, worker) == "TT")
        os.kill(arbiter, signal.SIGCONT)
        over = time.monotonic() + 4  # it looks at its workers once a second
        until(lambda: time.monotonic() > over)
        os.killpg(arbiter, signal.SIGCONT)

        assert function.answer(name, "/health")
        assert children(arbiter) == [worker]
    finally:
        function.stop()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def states(*pids: int) -> str:
    stats = (Path(f"/proc/{pid}/stat").read_text() for pid in pids)
    return "".join(stat.rpartition(") ")[2][0] for stat in stats)
