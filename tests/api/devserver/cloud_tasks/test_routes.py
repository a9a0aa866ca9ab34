"""The REST surface: queues and tasks with the official client, refusals in Google's format."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import urllib3
from google.api_core.exceptions import AlreadyExists, BadRequest, Conflict, NotFound
from google.cloud.tasks_v2 import CloudTasksClient, Task
from google.protobuf.field_mask_pb2 import FieldMask

from leasehold.adapters.clock import SystemClock
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from tests.api.devserver.cloud_tasks.conftest import LOCATION, QUEUE, official_client

TASKS = f"/v2/{QUEUE}/tasks"
WORK = {"url": "http://127.0.0.1:1/"}

Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(url: str) -> Ask:
    """Send a request as it is; return the status and the JSON of the answer."""

    def ask(method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        raw = body if isinstance(body, str | bytes) else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        answer = urllib3.request(method, url + path, body=raw, headers=headers, retries=False)
        return answer.status, answer.json()

    return ask


@pytest.fixture
def paused(client: CloudTasksClient) -> CloudTasksClient:
    """A client of a queue that delivers nothing."""
    client.create_queue(parent=LOCATION, queue={"name": QUEUE})
    client.pause_queue(name=QUEUE)
    return client


def task(name: str = "", **fields: Any) -> dict[str, Any]:
    named = {"name": f"{QUEUE}/tasks/{name}"} if name else {}
    return {"http_request": WORK, **named, **fields}


def test_a_queue_is_made_once_with_what_the_service_has_by_default(
    client: CloudTasksClient,
) -> None:
    queue = client.create_queue(parent=LOCATION, queue={"name": QUEUE})

    assert queue.state.name == "RUNNING"
    assert queue.rate_limits.max_dispatches_per_second == 500
    assert queue.rate_limits.max_burst_size == 100
    assert queue.rate_limits.max_concurrent_dispatches == 1000
    assert queue.retry_config.max_attempts == 100
    assert queue.retry_config.min_backoff == timedelta(seconds=0.1)
    assert queue.retry_config.max_backoff == timedelta(hours=1)
    assert queue.retry_config.max_doublings == 16
    assert client.get_queue(name=QUEUE) == queue
    with pytest.raises(Conflict, match="already exists"):
        client.create_queue(parent=LOCATION, queue={"name": QUEUE})


def test_an_update_makes_a_queue_that_is_missing_and_changes_only_what_its_mask_names(
    client: CloudTasksClient,
) -> None:
    """The deploy relies on both."""
    limits = {"max_concurrent_dispatches": 7, "max_dispatches_per_second": 9}
    client.update_queue(queue={"name": QUEUE, "rate_limits": limits})
    mask = FieldMask(paths=["retry_config", "rate_limits.max_concurrent_dispatches"])
    change = {
        "name": QUEUE,
        "retry_config": {"max_attempts": 3, "min_backoff": timedelta(seconds=10)},
        "rate_limits": {"max_concurrent_dispatches": 8, "max_dispatches_per_second": 1},
    }

    queue = client.update_queue(queue=change, update_mask=mask)

    assert queue.retry_config.max_attempts == 3
    assert queue.rate_limits.max_concurrent_dispatches == 8
    assert queue.rate_limits.max_dispatches_per_second == 9


def test_a_mask_that_names_no_setting_is_refused(client: CloudTasksClient) -> None:
    with pytest.raises(BadRequest, match="cannot be updated"):
        client.update_queue(queue={"name": QUEUE}, update_mask=FieldMask(paths=["state"]))


def test_queues_are_listed_by_location(client: CloudTasksClient) -> None:
    for name in ("b", "a"):
        client.create_queue(parent=LOCATION, queue={"name": f"{LOCATION}/queues/{name}"})
    other = "projects/p/locations/other"
    client.create_queue(parent=other, queue={"name": f"{other}/queues/c"})

    names = [queue.name for queue in client.list_queues(parent=LOCATION)]

    assert names == [f"{LOCATION}/queues/a", f"{LOCATION}/queues/b"]


def test_a_task_is_shown_as_it_was_created_its_body_only_in_full(paused: CloudTasksClient) -> None:
    at = SystemClock().now() + timedelta(hours=1)
    request = WORK | {"http_method": "PUT", "headers": {"X-Own": "1"}, "body": b"\xff\xfe?>"}
    paused.create_task(
        parent=QUEUE,
        task=task("a", http_request=request, schedule_time=at, dispatch_deadline=timedelta(0, 20)),
    )

    full = paused.get_task(request={"name": f"{QUEUE}/tasks/a", "response_view": Task.View.FULL})
    basic = paused.get_task(name=f"{QUEUE}/tasks/a")

    assert full.http_request.http_method.name == "PUT"
    assert full.http_request.headers["X-Own"] == "1"
    assert full.http_request.body == b"\xff\xfe?>"
    assert basic.http_request.body == b""
    assert basic.view == Task.View.BASIC
    assert (full.schedule_time, full.dispatch_deadline) == (at, timedelta(seconds=20))
    assert full.dispatch_count == 0


def test_tasks_are_listed_page_by_page(paused: CloudTasksClient) -> None:
    for number in range(5):
        paused.create_task(parent=QUEUE, task=task(f"t{number}"))

    pages = paused.list_tasks(request={"parent": QUEUE, "page_size": 2}).pages
    names = [[it.name.rpartition("/")[2] for it in page.tasks] for page in pages]

    assert names == [["t0", "t1"], ["t2", "t3"], ["t4"]]


def test_a_task_without_a_name_gets_one(paused: CloudTasksClient) -> None:
    names = {paused.create_task(parent=QUEUE, task=task()).name for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith(f"{QUEUE}/tasks/") for name in names)


def test_a_deleted_task_is_gone(paused: CloudTasksClient) -> None:
    name = paused.create_task(parent=QUEUE, task=task()).name

    paused.delete_task(name=name)

    with pytest.raises(NotFound):
        paused.get_task(name=name)
    with pytest.raises(NotFound):
        paused.delete_task(name=name)


def test_a_queue_that_was_not_created_is_not_found(client: CloudTasksClient) -> None:
    with pytest.raises(NotFound, match="queue does not exist"):
        client.get_queue(name=QUEUE)
    with pytest.raises(NotFound, match="queue does not exist"):
        client.get_task(name=f"{QUEUE}/tasks/a")


def test_a_queue_is_made_by_its_first_task_unless_the_double_is_strict(
    client: CloudTasksClient,
) -> None:
    client.create_task(parent=QUEUE, task=task())
    assert client.get_queue(name=QUEUE)

    with CloudTasksDouble(strict=True) as strict, official_client(strict.start()) as other:
        with pytest.raises(NotFound, match="queue does not exist"):
            other.create_task(parent=QUEUE, task=task())
        other.create_queue(parent=LOCATION, queue={"name": QUEUE})
        assert other.create_task(parent=QUEUE, task=task())


def test_enums_are_taken_and_given_as_integers_and_as_names(ask: Ask) -> None:
    by_number = {"task": {"httpRequest": WORK | {"httpMethod": 4}}, "responseView": 2}
    by_name = {"task": {"httpRequest": WORK | {"httpMethod": "PUT"}}, "responseView": "FULL"}

    _, created = ask("POST", f"{TASKS}?$alt=json;enum-encoding=int", by_number)
    _, named = ask("POST", TASKS, by_name)

    assert (created["httpRequest"]["httpMethod"], created["view"]) == (4, 2)
    assert (named["httpRequest"]["httpMethod"], named["view"]) == ("PUT", "FULL")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "Invalid JSON payload"),
        (b"\xff\xfe\xfd", "Invalid JSON payload"),
        ("[" * 100_000, "Invalid JSON payload"),
        ([], "allowed: a JSON object"),
        ({}, "Task must be set"),
        ({"task": 1}, "a JSON object is needed"),
        ({"task": {}}, "http_request must be set"),
        ({"task": {"httpRequest": {}}}, "must start with"),
        ({"task": {"httpRequest": {"url": "ftp://worker"}}}, "must start with"),
        ({"task": {"httpRequest": {"url": "http://worker:x/"}}}, "must start with"),
        ({"task": {"httpRequest": WORK | {"httpMethod": 99}}}, "TYPE_ENUM"),
        ({"task": {"httpRequest": WORK | {"httpMethod": "EAT"}}}, "TYPE_ENUM"),
        ({"task": {"httpRequest": WORK | {"body": "***"}}}, "TYPE_BYTES"),
        ({"task": {"httpRequest": WORK | {"body": "e30=", "httpMethod": "GET"}}}, "have a body"),
        ({"task": {"httpRequest": WORK | {"headers": {"a": 1}}}}, "a map of strings"),
        ({"task": {"httpRequest": WORK | {"body": "A" * 1_500_000}}}, "too large"),
        ({"task": {"httpRequest": WORK, "dispatchDeadline": "20"}}, "Duration"),
        ({"task": {"httpRequest": WORK, "dispatchDeadline": "1801s"}}, "dispatch_deadline"),
        ({"task": {"httpRequest": WORK, "scheduleTime": "soon"}}, "Timestamp"),
        ({"task": {"httpRequest": WORK, "scheduleTime": "2026-01-01T00:00:00"}}, "Timestamp"),
        ({"task": {"httpRequest": WORK, "scheduleTime": "0001-01-01T00:00:00+09:00"}}, "Timestamp"),
        ({"task": {"httpRequest": WORK, "scheduleTime": "9999-01-01T00:00:00Z"}}, "30 days"),
        ({"task": {"httpRequest": WORK, "name": "a"}}, "must be formatted"),
        ({"task": {"httpRequest": WORK, "name": f"{QUEUE}/tasks/a.b"}}, "must be formatted"),
        ({"task": {"httpRequest": WORK, "name": f"{QUEUE}/tasks/{'a' * 501}"}}, "formatted"),
        ({"task": {"httpRequest": WORK, "priority": 1}}, 'Unknown name "priority"'),
        ({"task": {"httpRequest": WORK, "retryConfig": {"maxAttempts": "x"}}}, "a number"),
        ({"task": {"httpRequest": WORK, "retryConfig": {"maxDoublings": 17}}}, "0 to 16"),
        ({"task": {"httpRequest": WORK, "retryConfig": {"minBackoff": "7200s"}}}, "max_backoff"),
    ],
)
def test_a_task_that_cannot_be_read_is_refused_in_googles_format(
    ask: Ask, body: Any, says: str
) -> None:
    status, answer = ask("POST", TASKS, body)

    assert status == 400
    assert answer["error"]["code"] == 400
    assert answer["error"]["status"] == "INVALID_ARGUMENT"
    assert says in answer["error"]["message"]


def test_the_service_takes_no_deadline_under_15_seconds() -> None:
    with CloudTasksDouble() as double, official_client(double.start()) as client:
        short = task(dispatch_deadline=timedelta(seconds=14))
        with pytest.raises(BadRequest, match=r"\[15s, 1800s\]"):
            client.create_task(parent=QUEUE, task=short)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v2/projects/p"),
        ("PUT", TASKS),
        ("POST", f"/v2/{QUEUE}:explode"),
        ("POST", f"{TASKS}/a:run"),
        ("POST", f"/{QUEUE}/tasks"),
    ],
)
def test_what_no_route_takes_is_not_found_in_googles_format(
    ask: Ask, method: str, path: str
) -> None:
    status, answer = ask(method, path, {})

    assert status == 404
    assert answer["error"]["status"] == "NOT_FOUND"
    assert path in answer["error"]["message"]


def test_a_body_over_every_limit_is_refused_without_being_read(ask: Ask) -> None:
    status, answer = ask("POST", TASKS, " " * (4 * 2**20 + 1))

    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_a_queue_with_a_name_that_cannot_be_is_refused(client: CloudTasksClient) -> None:
    for name in ("a_b", "a" * 101):
        with pytest.raises(BadRequest):
            client.create_queue(parent=LOCATION, queue={"name": f"{LOCATION}/queues/{name}"})
    with pytest.raises(BadRequest, match="must be formatted"):
        client.create_queue(parent=LOCATION, queue={"name": "projects/x/locations/l/queues/q"})


def test_a_duplicate_is_a_conflict_over_rest_and_not_already_exists(
    paused: CloudTasksClient,
) -> None:
    """Code that catches only AlreadyExists misses it."""
    paused.create_task(parent=QUEUE, task=task("a"))

    with pytest.raises(Conflict) as caught:
        paused.create_task(parent=QUEUE, task=task("a"))

    assert not isinstance(caught.value, AlreadyExists)
