"""Each fault that can be ordered, as a worker sees it, and the routes that order them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import urllib3
from google.cloud.tasks_v2 import CloudTasksClient

from leasehold.devserver.cloud_tasks import CloudTasksDouble
from tests.api.devserver.cloud_tasks.conftest import LOCATION
from tests.api.devserver.cloud_tasks.target import Target
from tests.worlds.waiting import until


def create(
    client: CloudTasksClient, target: Target, name: str, body: str = "{}", queue: str = "steps"
) -> None:
    parent = f"{LOCATION}/queues/{queue}"
    request = {"url": target.url, "http_method": "POST", "body": body.encode()}
    client.create_task(
        parent=parent, task={"name": f"{parent}/tasks/{name}", "http_request": request}
    )


def names(target: Target, count: int) -> list[str | None]:
    return [delivery.header("TaskName") for delivery in target.wait_for(count)]


def fired(double: CloudTasksDouble) -> list[tuple[str, str]]:
    return [(fault.kind, fault.task) for fault in double.fired()]


def test_twice_is_delivered_again_with_the_same_headers(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    double.order_fault("twice")
    create(client, target, "a")

    first, second = target.wait_for(2)

    assert first.headers == second.headers
    assert fired(double) == [("twice", "a")]
    create(client, target, "b")
    assert names(target, 3) == ["a", "a", "b"]


def test_late_comes_after_its_time_by_so_many_seconds(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    double.order_fault("late", seconds=2)  # in which a busy machine creates the other one
    began = time.monotonic()
    create(client, target, "a")
    create(client, target, "b")

    b, a = target.wait_for(2)

    assert [b.header("TaskName"), a.header("TaskName")] == ["b", "a"]
    assert a.at - began >= 2
    assert float(a.header("TaskETA") or 0) < float(b.header("TaskETA") or 0)
    assert fired(double) == [("late", "a")]


def test_reordered_swaps_with_the_next(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    double.order_fault("reordered", seconds=60)
    create(client, target, "a")
    create(client, target, "b")

    assert names(target, 2) == ["b", "a"]
    assert fired(double) == [("reordered", "a")]


def test_lost_is_accepted_and_never_comes(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    double.order_fault("lost")
    create(client, target, "a")
    create(client, target, "b")

    assert names(target, 1) == ["b"]
    assert fired(double) == [("lost", "a")]


def test_overlapping_comes_again_while_the_first_still_runs(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    double.order_fault("overlapping")
    target.hold()
    create(client, target, "a")

    first, second = target.wait_for(2)
    target.release()

    assert target.most_at_once == 2
    assert {first.header("TaskRetryCount"), second.header("TaskRetryCount")} == {"0", "1"}
    until(lambda: target.answered == 2)
    assert fired(double) == [("overlapping", "a")]


def test_a_fault_waits_for_the_queue_and_the_body_it_is_meant_for(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    double.order_fault("lost", count=2, queue="steps", containing='"r-2"')

    create(client, target, "a", '{"runId": "r-1"}')
    create(client, target, "b", '{"runId": "r-2"}', queue="other")
    create(client, target, "c", '{"runId": "r-2"}')
    create(client, target, "d", '{"runId": "r-2"}')
    create(client, target, "e", '{"runId": "r-2"}')

    assert sorted(map(str, names(target, 3))) == ["a", "b", "e"]
    assert fired(double) == [("lost", "c"), ("lost", "d")]


def test_a_task_that_is_refused_uses_no_fault_up(
    client: CloudTasksClient, double: CloudTasksDouble, target: Target
) -> None:
    create(client, target, "a")
    target.wait_for(1)
    double.order_fault("lost")

    with pytest.raises(Exception, match="already exists"):
        create(client, target, "a")

    assert [fault.kind for fault in double.faults.ordered] == ["lost"]


def ask(method: str, url: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    answer = urllib3.request(method, f"{url}/faults", json=body, retries=False)
    return answer.status, answer.json()


def test_faults_are_ordered_listed_and_forgotten_over_http(
    client: CloudTasksClient, url: str, target: Target
) -> None:
    order = {"kind": "lost", "count": 2, "queue": "steps", "containing": "{", "seconds": 2}
    status, listed = ask("POST", url, order)
    assert status == 200
    assert listed == {
        "ordered": [{"kind": "lost", "queue": "steps", "containing": "{", "seconds": 2}] * 2,
        "fired": [],
    }

    create(client, target, "a")
    _, listed = ask("GET", url)
    assert [(it["kind"], it["task"]) for it in listed["fired"]] == [("lost", "a")]
    assert len(listed["ordered"]) == 1

    assert ask("DELETE", url) == (200, {"ordered": [], "fired": []})


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"kind": "explode"},
        {"kind": "lost", "count": 0},
        {"kind": "lost", "count": 1.5},
        {"kind": "late", "seconds": "x"},
        {"kind": "late", "why": "x"},
        [],
    ],
)
def test_an_order_that_cannot_be_read_is_refused(url: str, order: Any) -> None:
    status, answer = ask("POST", url, order)

    assert status == 400
    assert answer["error"]["status"] == "INVALID_ARGUMENT"
    assert ask("GET", url)[1]["ordered"] == []
