"""Tasks are hints: they may come twice, late, reordered, overlapping or never."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.devserver.server import DevServer
from tests.bundle.conftest import Api, calls

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

    assert len(server.tasks.fired()) > fired_before
    for run in runs:
        assert run["steps"]["three"]["output"].endswith('"done":["one","two","three"]}')
        story = api.story(run["runId"])
        assert [event for event in story if "redispatched" not in event] == STORY
        done = [call[0] for call in calls(folder, run["runId"])]
        assert done == ["one", "two", "three"]
