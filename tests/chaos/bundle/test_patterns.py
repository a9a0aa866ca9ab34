"""Every pattern in the functions, while their queue does what a queue may do to tasks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from leasehold.client.client import Client
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.devserver.cloud_tasks.request import ApiError
from leasehold.devserver.server import QUEUES
from tests.chaos.patterns.catalog import NOTES
from tests.chaos.patterns.scenario import LIMITED, STARTED, Aftermath, Storm
from tests.chaos.patterns.test_patterns import (
    check_handed_on,
    check_limits,
    check_lists,
    check_signals,
)
from tests.worlds.bundles import dev_server
from tests.worlds.waiting import until

pytestmark = pytest.mark.nightly

STORM = Storm("sqlite", rounds=2, kills=0, items=7)
#: So many tasks are to be faulty: of any step, also those that ask whether children are through.
FAULTY = 12
REFUSED = 0.5
PATIENCE_S = 240.0


class Refusing:
    """Refuses every other request for a task, by chance."""

    def __init__(self) -> None:
        self._chance = random.Random(1)  # noqa: S311 - no secret
        self.count = 0

    def __call__(self, method: str, path: str) -> None:
        if method == "POST" and path.endswith("/tasks") and self._chance.random() < REFUSED:
            self.count += 1
            raise ApiError("UNAVAILABLE", "It takes no task.")


@pytest.mark.parametrize("own_tasks", ["all", ""], ids=["a task a step", "same request"])
@pytest.mark.parametrize("kind", ["twice", "late", "reordered", "lost", "overlapping", "refused"])
def test_each_pattern_bears_each_fault_of_the_queue(
    tmp_path: Path, kind: str, own_tasks: str
) -> None:
    environ = {
        "LEASEHOLD_CATALOG": "tests.chaos.patterns.catalog",
        "PIPELINE_OWN_TASKS": own_tasks,
        NOTES: str(tmp_path / "notes"),
    }
    refusing = Refusing()
    double = CloudTasksDouble(QUEUES, on_request=refusing if kind == "refused" else None)
    with dev_server(tmp_path, environ, tasks=double, tick_s=0.5) as server:
        if kind != "refused":
            server.tasks.order_fault(kind, count=FAULTY)
        after = survive(server.url)
    after.notes = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]

    assert refusing.count or server.tasks.fired()
    assert {run.state for run in after.runs.values()} == {"COMPLETED"}
    check_handed_on(after)
    check_lists(after, STORM)
    check_signals(after)
    check_limits(after)


def survive(url: str) -> Aftermath:
    """Start the runs, send each signal twice, and wait for their ends."""
    client, after = Client(url), Aftermath()
    run_ids = []
    for number in range(STORM.rounds):
        for pipeline, signals in STARTED.items():
            for copy in range(STORM.calls if pipeline in LIMITED else 1):
                key = f"{pipeline}-{number}-{copy}"
                given = {"key": key, "model": "small", "items": STORM.items}
                run_id = client.start(pipeline, given, idempotency_key=key).run_id
                run_ids.append(run_id)
                for name, word in [*signals, *signals]:
                    client.signal(run_id, name, {"word": f"{key}-{word}"}, id=f"{key}-{word}")
    until(lambda: all(client.get(one).is_terminal for one in run_ids), PATIENCE_S)
    after.runs = {one: client.get(one) for one in run_ids}
    return after
