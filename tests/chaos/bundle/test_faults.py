"""Tasks are hints: they may come twice, late, reordered, overlapping or never."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.devserver.server import DevServer
from tests.worlds.bundles import INLINE, Api, calls, dev_server
from tests.worlds.shell import Shell
from tests.worlds.waiting import until

STORY = [
    "run_started",
    "step_started one",
    "step_completed one",
    "step_handed_off one",
    "step_started two",
    "step_completed two",
    "step_handed_off two",
    "step_started three",
    "step_completed three",
    "run_completed",
]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[DevServer]:
    """Handlers run inline: where one runs makes no difference to its task."""
    with dev_server(folder, INLINE, tick_s=0.5) as server:
        yield server


def test_a_run_goes_through_the_functions(api: Api, folder: Path) -> None:
    run_id = api.start({"n": 1})

    run = api.ended(run_id)

    assert run["steps"]["three"]["output"] == '{"n":1,"done":["one","two","three"]}'
    assert api.story(run_id) == STORY
    assert [call[:2] for call in calls(folder, run_id)] == [
        ["one", "1"],
        ["two", "1"],
        ["three", "1"],
    ]


def test_a_load_test_measures_the_functions(api: Api, tmp_path: Path) -> None:
    words = ("loadtest", "notes", "--concurrency", "2", "--rate", "100", "--duration", "1s")

    answer = Shell(tmp_path).json(*words, "--url", api.url)

    (level,) = answer["levels"]
    assert level["ends"] == {"completed": level["started"]}
    measured = {(one["step"], one["phase"]) for one in level["phases"]}
    phases = ("bootstrap", "execution")
    assert measured == {(step, phase) for step in ("one", "two", "three") for phase in phases}


def test_a_failed_attempt_comes_again_at_its_backoff(api: Api) -> None:
    run_id = api.start({"fail": "two"})

    run = api.ended(run_id)

    assert run["steps"]["two"]["attempts"]["failed"] == 1
    assert "step_error two" in api.story(run_id)


@pytest.mark.parametrize("kind", ["twice", "late", "reordered", "lost", "overlapping"])
@pytest.mark.parametrize("step", ["one", "two", "three"])
def test_each_fault_of_the_queue_leaves_each_output_recorded_once(
    server: DevServer, api: Api, folder: Path, kind: str, step: str
) -> None:
    server.tasks.order_fault(kind, queue=step)
    fired_before = len(server.tasks.fired())

    first, second = api.start({"n": 1}), api.start({"n": 2})
    runs = [api.ended(first), api.ended(second)]

    fired = until(lambda: server.tasks.fired()[fired_before:])  # noted once it was delivered
    assert [(one.kind, one.queue.rpartition("/")[2]) for one in fired] == [(kind, step)]
    for run in runs:
        assert run["steps"]["three"]["output"].endswith('"done":["one","two","three"]}')
        story = api.story(run["runId"])
        assert [event for event in story if "redispatched" not in event] == STORY
        done = [call[0] for call in calls(folder, run["runId"])]
        assert done == ["one", "two", "three"]


@pytest.mark.parametrize("step", ["one", "two", "three"])
def test_a_delivery_that_overlaps_the_first_leaves_the_lease_alone(
    server: DevServer, api: Api, folder: Path, step: str
) -> None:
    """The first still runs when the second comes, which gets that answer and looks again later."""
    held = folder / f"hold-{step}"
    held.touch()
    server.tasks.order_fault("overlapping", queue=step)

    run_id = api.start({"n": 1})
    until(lambda: any(call[0] == step for call in calls(folder, run_id)))
    wake = until(lambda: waiting_tasks(server, step, run_id))
    running = api.call(f"/runs/{run_id}")
    held.unlink()
    run = api.ended(run_id)

    assert len(wake) == 1
    assert (running["status"], running["attempts"]["expired"]) == ("IN_PROGRESS", 0)
    assert run["fencingToken"] == 3
    assert api.story(run_id) == STORY
    assert [call[0] for call in calls(folder, run_id)] == ["one", "two", "three"]


def waiting_tasks(server: DevServer, step: str, run_id: str) -> list[str]:
    """The tasks of a run without a called handler: its wake tasks, while a step is held."""
    path = f"/v2/projects/local/locations/local/queues/{step}/tasks?responseView=FULL"
    with urllib.request.urlopen(f"{server.tasks_url}{path}", timeout=10) as answer:  # noqa: S310 - our own server
        tasks = json.load(answer).get("tasks", [])
    own = [t for t in tasks if run_id.encode() in base64.b64decode(t["httpRequest"]["body"])]
    return [task["name"] for task in own if not task.get("dispatchCount")]
