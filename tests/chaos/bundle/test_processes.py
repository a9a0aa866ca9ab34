"""`leasehold dev` as people run it: real processes, real signals, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.worker.stopping.holder import host_name
from tests.chaos.bundle.conftest import Begin
from tests.worlds.bundles import INLINE, ROOT, calls, settings
from tests.worlds.ports import own_port
from tests.worlds.processes import is_running
from tests.worlds.waiting import until
from tests.worlds.warm_starts import is_zygote


def servers_of(process: subprocess.Popen[str]) -> set[int]:
    """The processes of a dev server, and their children."""
    found, look = set(), {process.pid}
    while look:
        found |= look
        look = {child for pid in look for child in children(pid)} - found
    return found


def children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task")
    try:
        texts = [(task / "children").read_text() for task in tasks.iterdir()]
    except OSError:
        return set()
    found = {int(child) for text in texts for child in text.split()}
    return {child for child in found if not is_zygote(child)}


def running(pids: set[int]) -> set[int]:
    return {pid for pid in pids if is_running(pid)}


def hold(folder: Path, step: str) -> Path:
    """Have the step wait from now on, until the file is gone."""
    held = folder / f"hold-{step}"
    held.touch()
    return held


def test_runs_go_on_after_everything_was_killed_and_no_holder_keeps_it_from_starting(
    begin: Begin, tmp_path: Path
) -> None:
    """The store is all that is left; a second start takes the run up where it was.

    Remote workers choose their own names, and one may be taken for one of this host.
    """
    process, api = begin(**INLINE)
    held = hold(tmp_path, "two")
    run_id = api.start()
    odd = {api.start(): pid for pid in ("²", "9" * 5000, "1\0", "")}
    until(lambda: all(calls(tmp_path, it)[1:] for it in (run_id, *odd)))
    everything = servers_of(process)

    process.kill()  # first: it would end the lease of a worker that dies before it
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none is to hear of the death of another
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    until(lambda: not running(everything))
    for other, holder in odd.items():
        set_holder(tmp_path, other, f"{host_name()}/{holder}@x")
    held.unlink()
    process, api = begin(**INLINE)
    run = api.ended(run_id)

    assert process.poll() is None
    assert [api.call(f"/runs/{other}")["runId"] for other in odd] == [*odd]
    assert "resuming 5 live runs" in (tmp_path / "log").read_text()
    assert run["steps"]["three"]["output"] == '{"done":["one","two","three"]}'
    assert [call[0] for call in calls(tmp_path, run_id)] == ["one", "two", "two", "three"]
    story = api.story(run_id)
    assert [event for event in story if "handed_off" in event] == [
        "step_handed_off one",
        "step_handed_off two",
    ]
    assert "step_terminated two" in story


def set_holder(folder: Path, run_id: str, holder: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "data" / "leasehold.db")) as store, store:
        (body,) = store.execute("SELECT body FROM runs WHERE id = ?", (run_id,)).fetchone()
        manifest = json.loads(body)
        manifest["position"]["lease"]["holder"] = holder
        store.execute("UPDATE runs SET body = ? WHERE id = ?", (json.dumps(manifest), run_id))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_a_signal_drains_it_and_leaves_no_process(
    begin: Begin, tmp_path: Path, number: signal.Signals
) -> None:
    process, api = begin()
    run_id = api.start()
    api.ended(run_id)
    everything = servers_of(process)

    process.send_signal(number)
    code = process.wait(15)

    assert code == 0
    assert len(everything) > 4
    assert running(everything) == set()
    said = (tmp_path / "log").read_text()
    assert f" INFO run={run_id} step=two attempt=1 leasehold.step: noted\n" in said


def test_a_function_server_that_dies_is_started_again_and_a_killed_dev_server_takes_all_along(
    begin: Begin, tmp_path: Path
) -> None:
    """Its workers die with it, and their leases of 600 s are not waited for."""
    process, api = begin(PIPELINE_LEASE_TTL_S="600", **INLINE)
    held = hold(tmp_path, "two")
    run_id = api.start()
    until(lambda: calls(tmp_path, run_id)[1:])
    worker = int(calls(tmp_path, run_id)[1][2])
    masters = children(process.pid)
    master = next(pid for pid in masters if worker in children(pid))

    os.kill(master, signal.SIGKILL)
    until(lambda: children(process.pid) - masters)
    until(lambda: calls(tmp_path, run_id)[2:])
    held.unlink()
    run = api.ended(run_id)

    assert run["steps"]["two"]["attempts"]["expired"] == 1
    assert [call[0] for call in calls(tmp_path, run_id)] == ["one", "two", "two", "three"]
    events = api.call(f"/runs/{run_id}/trace")["events"]
    ended = [event["detail"] for event in events if event["type"] == "step_terminated"]
    assert ended == ["The holder's process is gone."]
    assert api.story(run_id).count("step_handed_off two") == 1
    assert "execute_step ended with -9; it starts again" in (tmp_path / "log").read_text()
    everything = servers_of(process)
    check_nothing_listens_beyond_loopback(everything)

    process.kill()

    assert process.wait(30) == -signal.SIGKILL
    until(lambda: not running(everything))


def check_nothing_listens_beyond_loopback(servers: set[int]) -> None:
    inodes = set()
    for pid in servers:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = str(link.readlink()) if link.is_symlink() else ""
            if target.startswith("socket:["):
                inodes.add(target[8:-1])

    listening = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[9] in inodes
    ]
    assert len(listening) >= 4
    assert {fields[1].partition(":")[0] for fields in listening} == {"0100007F"}


@pytest.mark.parametrize(
    ("words", "environ", "says"),
    [
        (("--port", "0"), {}, "--port"),
        (("--port", "TAKEN"), {}, "--port"),
        (("--workers", "0"), {}, "--workers"),
        ((), {"LEASEHOLD_CATALOG": "nowhere"}, "LEASEHOLD_CATALOG"),
        ((), {"PIPELINE_LEASE_TTL_S": "many"}, "PIPELINE_LEASE_TTL_S"),
        ((), {"LEASEHOLD_STORE": "sqlite:////proc/none/x.db"}, "LEASEHOLD_STORE"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    tmp_path: Path, words: tuple[str, ...], environ: dict[str, str], says: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = str(somebody.getsockname()[1])
        given = [taken if word == "TAKEN" else word for word in words]
        given = given or ["--port", str(own_port())]

        done = subprocess.run(
            [sys.executable, "-m", "leasehold", "dev", *given, "--data", str(tmp_path / "data")],
            env=settings(tmp_path) | environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert done.returncode == 2
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("starting: ")]
    assert len(lines) == 1  # beside what it was doing, where that took long
    assert not (tmp_path / "data").exists()
    assert says in done.stderr
