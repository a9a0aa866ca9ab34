"""A worker that is killed is noticed at once: its lease of 600 s is not waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.devserver.cloud_tasks import HttpTask
from leasehold.devserver.server import DevServer
from tests.worlds.bundles import Api, calls, dev_server
from tests.worlds.processes import is_running
from tests.worlds.waiting import freeze, until

SOON = 30.0  # far below the 600 s of a lease; in truth it takes some tenths


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[DevServer]:
    environ = {
        "LEASEHOLD_CATALOG": "tests.worlds.catalogs.bundle_of_children",
        "PIPELINE_LEASE_TTL_S": "600",
    }
    with dev_server(folder, environ) as server:
        yield server


@pytest.fixture
def held(folder: Path) -> Iterator[Path]:
    """While it is there, the steps `two`, `parent` and `leaver` do not end."""
    files = [folder / f"hold-{step}" for step in ("two", "parent", "leaver")]
    for file in files:
        file.touch()
    yield folder
    for file in files:
        file.unlink(missing_ok=True)


def start_parents(api: Api, pipeline: str = "parents") -> str:
    body = {"pipeline": pipeline, "input": {}}
    return str(api.call("/runs", body)["runId"])


def worker_of(run: Any) -> int:
    """The process that holds the lease of a run."""
    return int(run["lease"]["holder"].rpartition("/")[2].partition("@")[0])


def release(folder: Path, step: str) -> None:
    (folder / f"hold-{step}").unlink()


def times_called(folder: Path, run_id: str, step: str) -> int:
    return [call[0] for call in calls(folder, run_id)].count(step)


def children_of(folder: Path, run_id: str) -> list[int]:
    """The processes that the handlers of a run started."""
    file = folder / "children"
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[2]) for line in lines if line.startswith(run_id)]


def terminations(api: Api, run_id: str) -> list[tuple[str, str, str]]:
    events = api.call(f"/runs/{run_id}/trace")["events"]
    ended = [event for event in events if event["type"] == "step_terminated"]
    return [(event["step"], event["reason"], event["detail"]) for event in ended]


GONE = ("two", "lease_expired", "The holder's process is gone.")
STORY = [
    "run_started",
    "step_started one",
    "step_completed one",
    "step_handed_off one",
    "step_started two",
    "step_terminated two",
    "step_completed two",
    "step_handed_off two",
    "step_started three",
    "step_completed three",
    "run_completed",
]


def test_each_run_of_a_killed_worker_goes_on_at_once(api: Api, held: Path) -> None:
    run_ids = [api.start() for _ in range(4)]
    until(lambda: all(times_called(held, run_id, "two") for run_id in run_ids))
    of = {run_id: worker_of(api.call(f"/runs/{run_id}")) for run_id in run_ids}
    victim = of[run_ids[0]]

    os.kill(victim, signal.SIGKILL)
    lost = [run_id for run_id in run_ids if of[run_id] == victim]
    until(lambda: all(times_called(held, run_id, "two") == 2 for run_id in lost), SOON)
    release(held, "two")

    for run_id in run_ids:
        run, is_lost = api.ended(run_id), run_id in lost
        assert terminations(api, run_id) == ([GONE] if is_lost else [])
        assert run["steps"]["two"]["attempts"]["expired"] == is_lost
        called = ["one", "two", "two", "three"] if is_lost else ["one", "two", "three"]
        assert [call[0] for call in calls(held, run_id)] == called
        assert api.story(run_id).count("step_handed_off two") == 1
    assert api.story(lost[0]) == STORY


def test_what_a_killed_worker_left_behind_is_killed(api: Api, held: Path) -> None:
    run_id = start_parents(api)
    (child,) = until(lambda: children_of(held, run_id))
    worker = worker_of(api.call(f"/runs/{run_id}"))

    os.kill(worker, signal.SIGKILL)
    second = until(lambda: children_of(held, run_id)[1:], SOON)[0]

    assert not is_running(child)  # before the step ran again
    assert is_running(second)
    release(held, "parent")
    release(held, "two")
    api.ended(run_id)


def test_what_living_workers_left_to_the_system_is_left_alone(api: Api, held: Path) -> None:
    """It is an orphan as much as that of the dead one, and may be in its own session."""
    lost = start_parents(api, "leavers")
    until(lambda: len(children_of(held, lost)) == 2)
    victim = worker_of(api.call(f"/runs/{lost}"))
    freeze([victim], held / "data" / "leasehold.db")  # so that the other worker takes a run
    others = [start_parents(api, "leavers") for _ in range(3)]
    kept = until(lambda: next((it for it in others if len(children_of(held, it)) == 2), None))
    os.kill(victim, signal.SIGCONT)
    until(lambda: all(len(children_of(held, it)) == 2 for it in others))
    run_ids = [lost, *others]
    dead, living = children_of(held, lost), children_of(held, kept)

    os.kill(victim, signal.SIGKILL)
    again = until(lambda: children_of(held, lost)[2:], SOON)

    assert not any(map(is_running, dead))  # before the step ran again
    assert all(map(is_running, [*living, *again]))
    release(held, "leaver")
    for run_id in run_ids:
        api.ended(run_id)


def test_a_connection_that_drops_while_its_worker_lives_changes_nothing(
    server: DevServer, api: Api, held: Path
) -> None:
    run_id = start_parents(api)
    (child,) = until(lambda: children_of(held, run_id))
    before = api.call(f"/runs/{run_id}")
    assert server.crash_detector is not None

    for body in (f'{{"runId": "{run_id}", "generation": 1}}', '{"runId": "r-none"}', "[]", "{"):
        task = HttpTask("t", "http://nobody", SystemClock().now(), body=body.encode())
        server.crash_detector.on_dropped(task)
    server.crash_detector.wait_until_idle()

    after = api.call(f"/runs/{run_id}")
    assert after["lease"]["leaseId"] == before["lease"]["leaseId"]
    assert after["dispatch"] == before["dispatch"]
    assert is_running(child)
    release(held, "parent")
    release(held, "two")
    api.ended(run_id)
    assert terminations(api, run_id) == []
