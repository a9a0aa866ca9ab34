"""A bundle as it is deployed: built as its buildpack does, each function booted and called."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pip
import pytest

from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.bundle.deployed import Deployed, Image, deployed
from tests.worlds.emulators import need_firestore, need_pubsub
from tests.worlds.waiting import until

#: The functions that a run needs, with both kinds of gunicorn's workers.
NEEDED = ("execute_step", "serve_api")


def test_all_that_its_requirements_need_is_among_them(image: Image) -> None:
    """`pip check`, which a build fails with; pip is a guest, as `pip --python` has it."""
    program = str(Path(pip.__file__).parent)

    checked = image.environment.run("python", program, "check", cwd=image.environment.folder)

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


@pytest.mark.parametrize(
    "served",
    [NEEDED, pytest.param((*FUNCTIONS.keys(),), marks=pytest.mark.nightly)],
    ids=["those of a run", "all"],
)
def test_each_function_boots_from_it_and_does_its_part_of_a_run(
    image: Image, tmp_path: Path, served: tuple[str, ...]
) -> None:
    """A run is started, its steps are executed, it is swept, asked a lease for, and announced."""
    need_firestore()
    need_pubsub()
    (tmp_path / "logs").mkdir()
    # A server that is told this number ends each worker that is silent for longer.
    with deployed(image, tmp_path / "logs", served, CLOUD_RUN_TIMEOUT_SECONDS="1") as functions:
        check_run(functions, tmp_path, served)
        check_that_workers_outlive_an_idle_instance(functions)


def check_run(functions: Deployed, tmp_path: Path, served: tuple[str, ...]) -> None:
    (tmp_path / "page.md").write_text("# Page\n\nEach queue keeps 7 days of messages at most.\n")
    start = {"pipeline": "review", "input": {"folder": str(tmp_path)}}
    call = functions.answer

    run_id = until(lambda: call("serve_api", "/runs", start).get("runId"), 60)
    until(lambda: call("serve_api", f"/runs/{run_id}").get("status") == "COMPLETED", 60)
    others = (
        ("sweep_dead_letters", "/", {}),
        ("manage_lease", "/leases:acquire", {"runId": run_id, "holder": "vm-1"}),
        ("derive_budgets", "/", {}),
    )
    if served == NEEDED:
        (message,) = until(functions.published)
        announcement = ("deliver_notification", "/", message)
        swept, leased, derived, _ = functions.called(*others, announcement)
        assert f'"{run_id}"' in functions.log("called")
    else:
        until(lambda: f'"{run_id}"' in functions.log("deliver_notification"))
        swept, leased, derived = (until(partial(call, *other), 60) for other in others)

    assert swept["deadLettered"] == 0
    assert leased["error"]["message"] == f"Nothing to claim: run {run_id} is COMPLETED."
    assert "error" not in derived
    assert until(lambda: call("serve_api", f"/runs/{run_id}/output").get("verdict"))


def check_that_workers_outlive_an_idle_instance(functions: Deployed) -> None:
    """Have instances go without CPU, with both of gunicorn's kinds of workers.

    The arbiter wakes up first, as it may: it kills no worker that was silent for too long.
    """
    names = ("execute_step", "serve_api")
    arbiters = [functions.processes[name].pid for name in names]
    workers = [worker for arbiter in arbiters for worker in children(arbiter)]
    assert len(workers) == len(arbiters)

    for arbiter in arbiters:
        os.killpg(arbiter, signal.SIGSTOP)
    until(lambda: set(states(*arbiters, *workers)) == {"T"})
    for arbiter in arbiters:
        os.kill(arbiter, signal.SIGCONT)
    over = time.monotonic() + 4  # it looks at its workers once a second
    until(lambda: time.monotonic() > over)
    for arbiter in arbiters:
        os.killpg(arbiter, signal.SIGCONT)

    assert all(functions.answer(name, "/health") for name in names)
    assert [worker for arbiter in arbiters for worker in children(arbiter)] == workers


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def states(*pids: int) -> str:
    stats = (Path(f"/proc/{pid}/stat").read_text() for pid in pids)
    return "".join(stat.rpartition(") ")[2][0] for stat in stats)
