"""A limit that is learnt reaches the task, the lease and the kill; people and variables beat it.

All in `leasehold dev`: real functions, handlers in processes, and a real server of the REST API of
Cloud Tasks.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold.devserver.server import DevServer
from leasehold.domain.lease import LEASE_MARGIN
from tests.worlds.bundles import INLINE, Api, dev_server
from tests.worlds.waiting import until

CATALOG = "tests.chaos.bundle.catalog_of_limits"
QUEUE = "v2/projects/local/locations/local/queues/learn"
RUNS = 12
VARIABLE = "PIPELINE_LEARN_DEADLINE_S"


@dataclass(frozen=True)
class World:
    """A dev server, its runs API, and its queue."""

    server: DevServer
    api: Api

    @property
    def function_url(self) -> str:
        (url,) = [
            one.function.url
            for one in self.server._processes  # noqa: SLF001 - Cloud Scheduler's
            if one.function.name == "derive_budgets"
        ]
        return url

    def derive(self) -> Any:
        return _call(self.function_url, {})

    def queue(self, verb: str) -> Any:
        return _call(f"{self.server.tasks_url}/{QUEUE}:{verb}", {})

    def task_of(self, run_id: str) -> Any:
        """The task of a run, as the server of the REST API has it; None: there is none yet."""
        answer = _call(f"{self.server.tasks_url}/{QUEUE}/tasks?responseView=FULL")
        for task in answer.get("tasks", []):
            if run_id in base64.b64decode(task["httpRequest"]["body"]).decode():
                return task
        return None

    def registry(self) -> Any:
        (step,) = self.api.call("/registry")["steps"]
        return step["dispatchDeadlineS"], step["agentTimeoutMs"]


def _call(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def world_of(folder: Path, **environ: str) -> Iterator[World]:
    """Open a dev server on the folder's store; a buffer of 20 s makes a limit above the entry's."""
    budgets = {"PIPELINE_BUDGET_BUFFER_S": "20", "PIPELINE_BUDGET_ROUNDING_S": "1"}
    of_learnt = {"LEASEHOLD_CATALOG": CATALOG, **budgets, **environ}
    with dev_server(folder, of_learnt, tick_s=0.5) as server:
        yield World(server, Api(server.url))


@pytest.fixture(scope="module")
def world(folder: Path) -> Iterator[World]:
    yield from world_of(folder)


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_limit_is_learnt_applied_and_kept_by_task_lease_and_kill(
    world: World, folder: Path
) -> None:
    deadline, _ = world.registry()
    assert deadline == {"value": 15.0, "source": "entry"}
    runs = [world.api.start({}, pipeline="learns") for _ in range(RUNS)]
    steps = [world.api.ended(run)["steps"]["learn"] for run in runs]
    assert {step["firstTool"] for step in steps} == {"search"}
    assert {step["coldStart"] for step in steps} == {True, False}, "each process was new once"

    assert world.derive() == {"derived": 1, "changed": ["learn"], "problems": {}}

    (budget,) = world.api.call("/budgets")["budgets"]
    assert (budget["counts"]["cold"] + budget["counts"]["warm"], budget["counts"]["clipped"]) == (
        RUNS,
        0,
    )
    limit = budget["applied"]
    assert 15 < limit["totalS"] <= 30
    # functions read what is in force at their next dispatch, and at most every 10 s
    until(lambda: world.registry()[0] == {"value": limit["totalS"], "source": "derived"}, 20)

    world.queue("pause")
    run_id = _start_under_the_limit(world)
    task = until(lambda: world.task_of(run_id), 10)
    waiting = world.api.call(f"/runs/{run_id}")["dispatch"]
    assert task["dispatchDeadline"] == f"{limit['totalS']:.0f}s"
    assert waiting["deadlineS"] == limit["totalS"]
    assert waiting["timeoutMs"] == round(limit["timeoutS"] * 1000)

    world.queue("resume")
    lease = until(lambda: world.api.call(f"/runs/{run_id}").get("lease"), 10)
    cap = time_of(lease["maxExpiresAt"]) - time_of(lease["acquiredAt"])
    assert cap == timedelta(seconds=limit["totalS"]) + LEASE_MARGIN

    left = until(lambda: _given_up(world, run_id), limit["totalS"] + 20)
    (killed,) = left["steps"]["learn"]["earlierAttempts"]
    assert killed["reason"] == "agent_timeout_exceeded"
    took = killed["bootstrapSeconds"] + killed["executionSeconds"]
    assert limit["timeoutS"] - 1 <= took <= limit["totalS"] + 1

    report = world.api.call("/budgets/learn")
    assert report["budget"]["counts"]["clipped"] == 1
    assert len(report["samples"]) == RUNS + 1


def _start_under_the_limit(world: World) -> str:
    """Start a run that hangs; one of fifty has the longest limit, and is cancelled."""
    while True:
        run_id = world.api.start({"hangs": True}, pipeline="learns")
        dispatch = world.api.call(f"/runs/{run_id}")["dispatch"]
        if dispatch["sources"]["dispatchDeadline"] != "tail_probe":
            return run_id
        world.api.call(f"/runs/{run_id}:cancel", {"reason": "it is a tail probe"})


def _given_up(world: World, run_id: str) -> Any:
    run = world.api.call(f"/runs/{run_id}")
    return run if run["deadLettered"] else None


def test_an_override_goes_over_the_learnt_limit_and_a_variable_over_both(
    world: World, folder: Path
) -> None:
    body = {
        "deadlineS": 77,
        "timeoutS": 33,
        "until": "2999-01-01T00:00:00Z",
        "why": "a slow provider",
    }
    world.api.call("/overrides/learn:set", body)
    until(lambda: world.registry()[0] == {"value": 77.0, "source": "override"}, 20)
    assert world.registry()[1] == {"value": 33_000, "source": "override"}
    world.server.stop()

    for other in world_of(folder, **INLINE, **{VARIABLE: "88"}):
        assert other.registry() == (
            {"value": 88.0, "source": VARIABLE},
            {"value": 33_000, "source": "override"},
        )
        other.api.ended(other.api.start({}, pipeline="learns"))  # the first task makes its queue
        other.queue("pause")
        run_id = other.api.start({}, pipeline="learns")
        task = until(partial(other.task_of, run_id), 10)
        assert task["dispatchDeadline"] == "88s"
