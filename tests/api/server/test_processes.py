"""`leasehold serve` as people run it: real processes on one file, real signals."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.devserver.server_process import running_processes
from tests.api.server.project import Project
from tests.worlds.bundles import calls
from tests.worlds.processes import is_stopped
from tests.worlds.servers import Begun, servers
from tests.worlds.waiting import until

pytestmark = pytest.mark.sandboxed


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Begun]]:
    """Starts servers on the test's own file; each is ready when it returns."""
    with servers(tmp_path) as begin:
        yield begin


def test_one_that_is_killed_is_replaced_and_one_that_is_stopped_drains(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """What is killed is noticed by the others; who is stopped releases what it has."""
    first, api = begin()
    second, other = begin()
    (tmp_path / "hold-two").touch()
    run_id = api.start()
    until(lambda: any(call[0] == "two" for call in calls(tmp_path, run_id)))
    by_pid = {str(first.pid): first, str(second.pid): second}
    worker = by_pid.pop(calls(tmp_path, run_id)[-1][2])
    ((_, survivor),) = by_pid.items()

    worker.kill()

    until(lambda: len(calls(tmp_path, run_id)) == 3)
    assert calls(tmp_path, run_id)[-1] == ["two", "2", str(survivor.pid)]
    (tmp_path / "hold-two").unlink()
    api = other if survivor is second else api
    assert api.ended(run_id)["attempts"]["expired"] <= 1

    killed, run_id = run_id, api.start({}, pipeline="listens")
    until((tmp_path / "told").exists)
    survivor.send_signal(signal.SIGTERM)
    _, said = survivor.communicate(timeout=60)

    assert survivor.returncode == 0, said
    assert f" INFO run={killed} step=two attempt=2 leasehold.step: noted\n" in said
    assert "Traceback" not in said
    _, api = begin()
    ended = api.ended(run_id)
    assert ended["steps"]["listens"]["attempts"]["interrupted"] == 1


def test_a_second_signal_ends_it_at_once(begin: Callable[..., Begun], tmp_path: Path) -> None:
    """The handler ignores its stop; its run goes on at the next start."""
    process, api = begin()
    run_id = api.start({}, pipeline="ignores")
    until((tmp_path / "told").exists)

    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("stopping:")
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 0
    lines = [line for line in process.stderr.read().splitlines() if not line.startswith("{")]
    assert lines == ["killed: what was running goes on at the next start"]
    _, api = begin()
    assert api.ended(run_id)["status"] == "COMPLETED"


def test_a_sigterm_that_comes_with_another_signal_is_one(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """Some service managers and wrappers send two; the leases are released all the same.

    Both wait for the process while it is stopped, so it hears them at once however busy the
    machine is. Two of one number would come as one, so here Ctrl-C is the other.
    """
    process, api = begin()
    run_id = api.start({}, pipeline="ignores")
    until((tmp_path / "told").exists)

    process.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(process.pid))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)

    assert process.wait(60) == 0
    assert process.stderr is not None
    said = process.stderr.read()
    assert "stopping:" in said
    assert "killed: what was running" not in said
    _, api = begin()
    run = api.ended(run_id)
    assert run["steps"]["ignores"]["attempts"]["interrupted"] == 1


@pytest.mark.parametrize(
    ("isolation", "ending", "more"),
    [
        ("", "killed_and_released", " The handler did not end, and was killed."),
        ("inline", "released", ""),
    ],
)
def test_what_handlers_left_behind_keeps_no_server_from_ending(
    begin: Callable[..., Begun], tmp_path: Path, isolation: str, ending: str, more: str
) -> None:
    """A pool's threads and processes, which Python waits for in the end."""
    process, api = begin(LEASEHOLD_ISOLATION=isolation)
    run_id = api.start({}, pipeline="pools")
    pids = tmp_path / "pids"
    (pid,) = until(lambda: pids.exists() and pids.read_text().split())

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 0
    assert process.stderr is not None
    logged = [json.loads(line) for line in process.stderr if line.startswith("{")]
    assert logged[0]["event"] == "INSTANCE_SHUTDOWN"
    logged.sort(key=lambda facts: facts["event"])  # the attempt and the shutdown end side by side
    assert [(facts["event"], facts.get("leases"), facts.get("ending")) for facts in logged] == [
        ("INSTANCE_SHUTDOWN", 1, None),
        ("LEASE_AT_SHUTDOWN", None, ending),
        ("STEP_TERMINATED", None, None),
    ]
    said = "SIGTERM: the instance was shut down; the lease was released."
    assert logged[2]["detail"] == said + more
    until(lambda: int(pid) not in running_processes())
    _, api = begin()
    assert api.ended(run_id)["attempts"]["interrupted"] == 1


def test_beyond_this_machine_it_says_that_a_proxy_is_believed(tmp_path: Path) -> None:
    with servers(tmp_path, "--host", "0.0.0.0") as begin:  # noqa: S104 - that is it
        process, _ = begin(says="http://0.0.0.0", LEASEHOLD_IDENTITY_HEADER="X-Forwarded-User")
        assert process.stderr is not None

        assert "let only the proxy reach it" in process.stderr.readline()


GATE = """
import time
from pathlib import Path
def check(ctx, output):
    Path("asked").open("a").write("once\\n")
    while Path("hold").exists():
        time.sleep(0.05)
"""
PAID = """
from pathlib import Path
def handle(ctx, given):
    Path("paid").open("a").write("once\\n")
    return "a text"
"""
WITH_GATE = """
from leasehold import GateEntry
GATES = Registry("gates", [GateEntry(name="judge", check="app.judge:check")])
"""


def test_one_that_is_killed_while_a_gate_judges_leaves_the_output(tmp_path: Path) -> None:
    """It was written while the gate took its time, and the next server asks the gate alone."""
    with contextlib.closing(Project(tmp_path)) as project:
        project.of_steps(write='gates=("judge",)')
        catalog = tmp_path / "app" / "catalog.py"
        catalog.write_text(catalog.read_text() + WITH_GATE)
        project.write(write=PAID, judge=GATE)
        (tmp_path / "hold").touch()
        api = project.serve()
        run_id = api.start("x", pipeline="p")
        until(lambda: api.call(f"/runs/{run_id}")["steps"]["write"].get("output"))

        project.close()
        (tmp_path / "hold").unlink()
        ended = project.serve().ended(run_id)

    assert ended["status"] == "COMPLETED"
    assert (tmp_path / "paid").read_text() == "once\n"
    assert (tmp_path / "asked").read_text() == "once\n" * 2
