"""A worker or a server that ends takes no other with it, and its place is filled at once."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.devserver.server import DevServer
from leasehold.devserver.server_process import running_processes
from leasehold.worker.stopping.system_signals import ENDING
from tests.chaos.bundle.test_many_workers import children_of
from tests.worlds.bundles import INLINE, Api, calls, dev_server
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until

#: Far below the 600 s of a lease, on any machine.
SOON = 60.0


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The output of the dev server."""
    return []


@pytest.fixture(scope="module")
def server(folder: Path, lines: list[str]) -> Iterator[DevServer]:
    environ = INLINE | {"PIPELINE_LEASE_TTL_S": "600"}
    with dev_server(folder, environ, say=lines.append) as server:
        yield server
        (folder / "go-on").touch()


def start(api: Api, pipeline: str, **given: int) -> str:
    return str(api.call("/runs", {"pipeline": pipeline, "input": given})["runId"])


def processes_of(folder: Path, run_id: str) -> list[int]:
    """The worker of each attempt of a run that wrote down when it began."""
    file = folder / "told"
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [int(row[3]) for row in rows if row[0] == run_id and row[2] == "began"]


def masters() -> set[int]:
    """The servers of functions, each the first of its session."""
    return {it.pid for it in running_processes().values() if it.pid == it.session}


@pytest.mark.parametrize(
    "code", [3, 4, *(pytest.param(code, marks=pytest.mark.nightly) for code in (0, 1, 255))]
)
def test_a_handler_that_ends_its_process_ends_no_other(
    api: Api, folder: Path, lines: list[str], code: int
) -> None:
    """3 and 4 are how gunicorn's own workers say that they could not begin: it ended for them."""
    held = folder / "hold-two"
    held.touch()
    neighbours = [api.start() for _ in range(6)]
    until(lambda: all(len(calls(folder, run_id)) == 2 for run_id in neighbours))
    worker_of = {run_id: int(calls(folder, run_id)[1][2]) for run_id in neighbours}

    run_id = start(api, "exits", code=code)
    run = api.ended(run_id, SOON)
    dead = processes_of(folder, run_id)[0]
    lost = {run_id for run_id in neighbours if worker_of[run_id] == dead}
    until(lambda: all(len(calls(folder, run_id)) == 3 for run_id in lost), SOON)
    held.unlink()
    ended = {run_id: api.ended(run_id, SOON) for run_id in neighbours}

    assert run["steps"]["exits"]["attempts"]["expired"] == 1
    assert not any(line.startswith("execute_step") for line in lines)
    for neighbour, its_run in ended.items():
        assert its_run["steps"]["two"]["attempts"]["expired"] == (neighbour in lost)


def test_a_server_that_is_told_to_end_is_replaced_while_it_drains(
    api: Api, folder: Path, lines: list[str]
) -> None:
    """Its worker hangs, so it drains for as long as it may, 7 s; the next one has begun by then."""
    hanging = start(api, "ignores")
    (worker,) = until(lambda: processes_of(folder, hanging))
    master = parent_of(worker)
    known = masters()

    os.kill(master, signal.SIGTERM)
    until(lambda: masters() - known)
    was_draining = Path(f"/proc/{worker}").exists()
    other = api.start()
    api.ended(other, SOON)
    api.ended(hanging, SOON)
    until(lambda: not Path(f"/proc/{worker}").exists(), SOON)

    assert was_draining
    first, *more = [line for line in lines if line.startswith("execute_step")]
    assert first == "execute_step was asked to stop; it starts again in 0.2 s"
    assert more in ([], ["execute_step did not end in time and is killed"])  # the machine is busy
    assert [process == worker for process in processes_of(folder, hanging)] == [True, False]


@pytest.mark.parametrize("number", ENDING)
def test_a_worker_that_is_told_to_end_while_it_begins_ends(
    api: Api, folder: Path, number: signal.Signals
) -> None:
    """It has the handlers of its master still: it noted the signal, stayed, and refused all."""
    first = api.start()
    api.ended(first)
    worker = int(calls(folder, first)[0][2])
    master = parent_of(worker)
    known = set(children_of(master))

    os.kill(worker, signal.SIGTERM)
    while not (begun := set(children_of(master)) - known):
        pass  # at once: it begins in milliseconds
    (young,) = begun
    os.kill(young, number)

    until(lambda: young not in children_of(master), SOON)


def test_its_queues_repeat_as_a_deployed_one_does(api: Api, server: DevServer) -> None:
    """A run that met an outage is hidden for 10 s at most after it."""
    api.ended(api.start())
    name = "v2/projects/local/locations/local/queues/one"

    with urllib.request.urlopen(f"{server.tasks_url}/{name}", timeout=10) as answer:  # noqa: S310 - our own server
        retry = json.load(answer)["retryConfig"]

    assert (retry["maxAttempts"], retry["maxBackoff"]) == (-1, "10s")
