"""Deliveries, created with the official client, as a worker on loopback sees them."""

from __future__ import annotations

import base64
import json
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import urllib3
from google.api_core.exceptions import BadRequest, Conflict, NotFound
from google.cloud.tasks_v2 import CloudTasksClient

from leasehold.adapters.clock import SystemClock
from tests.api.devserver.cloud_tasks.conftest import QUEUE
from tests.api.devserver.cloud_tasks.target import Target
from tests.worlds.waiting import until


def create(client: CloudTasksClient, target: Target, name: str = "", **fields: Any) -> str:
    """Create a task; return its full name."""
    request = {"http_method": "POST", "url": f"{target.url}/work", "body": b"{}"}
    task: dict[str, Any] = {"http_request": request | fields.pop("http_request", {}), **fields}
    if name:
        task["name"] = f"{QUEUE}/tasks/{name}"
    return client.create_task(parent=QUEUE, task=task).name


def is_gone(client: CloudTasksClient, name: str) -> bool:
    try:
        client.get_task(name=name)
    except NotFound:
        return True
    return False


def test_a_delivery_has_every_header_of_the_service(
    client: CloudTasksClient, target: Target
) -> None:
    before = SystemClock().now().timestamp()
    own = {"Content-Type": "application/json", "X-Own": "1", "X-CloudTasks-TaskName": "forged"}

    create(client, target, "a-1", http_request={"headers": own, "body": b'{"runId": "r-1"}'})

    (delivery,) = target.wait_for(1)
    assert (delivery.method, delivery.path, delivery.body) == ("POST", "/work", '{"runId": "r-1"}')
    assert delivery.headers["User-Agent"] == "Google-Cloud-Tasks"
    assert delivery.headers["Content-Type"] == "application/json"
    assert delivery.headers["X-Own"] == "1"
    assert delivery.header("QueueName") == "steps"
    assert delivery.header("TaskName") == "a-1"
    assert delivery.header("TaskRetryCount") == "0"
    assert delivery.header("TaskExecutionCount") == "0"
    assert delivery.header("TaskPreviousResponse") is None
    assert delivery.header("TaskRetryReason") is None
    assert before <= float(delivery.header("TaskETA") or 0) <= before + 10


def test_a_body_without_a_type_is_octets_and_a_get_has_no_body(
    client: CloudTasksClient, target: Target
) -> None:
    create(client, target)
    first = target.wait_for(1)[0]
    create(client, target, http_request={"http_method": "GET", "body": b""})
    second = target.wait_for(2)[1]

    assert first.headers["Content-Type"] == "application/octet-stream"
    assert (second.method, second.body) == ("GET", "")
    assert "Content-Type" not in second.headers


def test_retries_count_all_attempts_but_executions_leave_5xx_out(
    client: CloudTasksClient, target: Target
) -> None:
    target.answer(500, 404, 302, 502)

    name = create(client, target)

    deliveries = target.wait_for(5)
    until(lambda: is_gone(client, name))
    assert [it.header("TaskRetryCount") for it in deliveries] == ["0", "1", "2", "3", "4"]
    assert [it.header("TaskExecutionCount") for it in deliveries] == ["0", "0", "1", "2", "2"]
    previous = [it.header("TaskPreviousResponse") for it in deliveries]
    assert previous == [None, "500", "404", "302", "502"]
    assert [it.header("TaskRetryReason") for it in deliveries] == [None, "", "", "", ""]


def test_retries_wait_as_their_queue_says(client: CloudTasksClient, target: Target) -> None:
    """20, 40 and 80 ms at least: by the worker's clock a wait is never shorter."""
    target.answer(500, 500, 500)

    create(client, target)

    times = [delivery.at for delivery in target.wait_for(4)]
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (0.02, 0.04, 0.08), strict=True))


def test_a_redirect_is_a_failure_and_is_not_followed(
    client: CloudTasksClient, target: Target
) -> None:
    target.answer(302, Location=f"{target.url}/elsewhere")

    create(client, target)

    deliveries = target.wait_for(2)
    assert [it.path for it in deliveries] == ["/work", "/work"]


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_2xx_ends_a_task(client: CloudTasksClient, target: Target, status: int) -> None:
    target.body = b""
    target.answer(status)

    name = create(client, target)

    target.wait_for(1)
    until(lambda: is_gone(client, name))
    assert len(target.deliveries) == 1


def test_a_worker_that_is_not_there_is_tried_again(client: CloudTasksClient) -> None:
    request = {"url": "http://127.0.0.1:1/nobody", "http_method": "POST"}

    name = client.create_task(parent=QUEUE, task={"http_request": request}).name

    until(lambda: client.get_task(name=name).dispatch_count >= 3)
    assert client.get_task(name=name).response_count == 0


@pytest.mark.parametrize(
    "headers",
    [{"X-Bad": "a\nb"}, {"X-Bad": "a\r\nHost: b"}, {"X-Odd": "\u20ac"}, {"X Bad": ""}, {"": "a"}],
)
def test_a_header_that_no_request_can_carry_is_refused(
    client: CloudTasksClient, target: Target, headers: dict[str, str]
) -> None:
    """It was taken, failed each delivery in the log, and could have begun its own header."""
    with pytest.raises(BadRequest, match="headers"):
        create(client, target, http_request={"headers": headers})

    create(client, target, "good")
    assert target.wait_for(1)[0].header("TaskName") == "good"


def test_a_worker_that_trickles_its_answer_is_not_heard_after_the_deadline(
    client: CloudTasksClient, target: Target
) -> None:
    target.trickle, target.body = 0.03, b"slow" * 5

    name = create(client, target, dispatch_deadline=timedelta(milliseconds=100))

    target.wait_for(2)
    assert client.get_task(name=name).response_count == 0


def test_a_name_is_refused_while_its_task_waits_and_after_it_ran_or_was_deleted(
    client: CloudTasksClient, target: Target
) -> None:
    target.hold()
    name = create(client, target, "once")
    with pytest.raises(Conflict, match="already exists"):
        create(client, target, "once")

    target.release()
    until(lambda: is_gone(client, name))
    with pytest.raises(Conflict, match="already exists"):
        create(client, target, "once")

    client.pause_queue(name=QUEUE)
    client.delete_task(name=create(client, target, "dropped"))
    with pytest.raises(Conflict, match="already exists"):
        create(client, target, "dropped")
    assert len(target.deliveries) == 1


def test_after_its_deadline_a_delivery_is_not_heard_and_the_retry_overlaps_it(
    client: CloudTasksClient, target: Target
) -> None:
    target.hold()
    began = time.monotonic()

    create(client, target, dispatch_deadline=timedelta(milliseconds=100))

    second = target.wait_for(2)[1]
    assert target.answered == 0
    assert second.at - began >= 0.12
    assert second.header("TaskRetryCount") == "1"
    assert second.header("TaskExecutionCount") == "0"
    assert second.header("TaskPreviousResponse") is None


def test_a_task_is_not_delivered_before_its_time(client: CloudTasksClient, target: Target) -> None:
    began = time.monotonic()
    scheduled = SystemClock().now() + timedelta(milliseconds=300)

    create(client, target, schedule_time=scheduled)

    (delivery,) = target.wait_for(1)
    assert delivery.at - began >= 0.25
    assert abs(float(delivery.header("TaskETA") or 0) - scheduled.timestamp()) < 0.001


def test_a_sooner_task_is_not_held_up_by_one_for_later(
    client: CloudTasksClient, target: Target
) -> None:
    far = SystemClock().now() + timedelta(days=29)
    create(client, target, "far", schedule_time=far)

    create(client, target, "near")

    (delivery,) = target.wait_for(1)
    assert delivery.header("TaskName") == "near"


def test_a_queue_runs_no_more_at_once_than_it_may(client: CloudTasksClient, target: Target) -> None:
    limits = {"rate_limits": {"max_concurrent_dispatches": 2}}
    client.update_queue(queue={"name": QUEUE, **limits})
    target.hold()
    names = [create(client, target) for _ in range(6)]

    target.wait_for(2)
    counts = [client.get_task(name=name).dispatch_count for name in names]
    target.release()
    target.wait_for(6)

    assert sorted(counts) == [0, 0, 0, 0, 1, 1]
    assert target.most_at_once == 2


def test_a_queue_goes_no_faster_than_its_rate(client: CloudTasksClient, target: Target) -> None:
    """Ten at once, its burst, then one each 50 ms."""
    limits = {"rate_limits": {"max_dispatches_per_second": 20}}
    client.update_queue(queue={"name": QUEUE, **limits})
    client.pause_queue(name=QUEUE)
    for _ in range(16):
        create(client, target)
    began = time.monotonic()

    client.resume_queue(name=QUEUE)

    assert target.wait_for(16)[15].at - began >= 0.3


def test_a_429_holds_up_other_tasks_of_the_queue_too(
    client: CloudTasksClient, target: Target
) -> None:
    target.answer(429)
    first = create(client, target, "refused")
    until(lambda: client.get_task(name=first).response_count == 1)

    create(client, target, "other")

    times = [delivery.at for delivery in target.wait_for(3)]
    assert times[1] - times[0] >= 0.9


def test_a_paused_queue_takes_tasks_and_delivers_them_when_it_goes_on(
    client: CloudTasksClient, target: Target
) -> None:
    create(client, target, "before")
    target.wait_for(1)
    assert client.pause_queue(name=QUEUE).state.name == "PAUSED"
    create(client, target, "while")
    assert client.get_task(name=f"{QUEUE}/tasks/while").dispatch_count == 0

    assert client.resume_queue(name=QUEUE).state.name == "RUNNING"

    assert target.wait_for(2)[1].header("TaskName") == "while"


def test_a_purged_queue_delivers_nothing_of_what_it_had(
    client: CloudTasksClient, target: Target
) -> None:
    create(client, target, "first")
    target.wait_for(1)
    client.pause_queue(name=QUEUE)
    for _ in range(3):
        create(client, target)

    purged = client.purge_queue(name=QUEUE)
    client.resume_queue(name=QUEUE)
    create(client, target, "after")

    assert purged.purge_time is not None
    assert target.wait_for(2)[1].header("TaskName") == "after"
    assert len(target.deliveries) == 2


def test_a_task_gives_up_when_its_attempts_are_used_up(
    client: CloudTasksClient, target: Target
) -> None:
    target.answer(500, 500, 500)

    name = create(client, target, retry_config={"max_attempts": 2})

    until(lambda: is_gone(client, name))
    assert len(target.deliveries) == 2


def test_the_token_says_who_calls_and_whom_and_is_not_signed(
    client: CloudTasksClient, target: Target
) -> None:
    token = {"service_account_email": "caller@p.example", "audience": "https://service"}

    create(client, target, http_request={"oidc_token": token})

    kind, _, jwt = target.wait_for(1)[0].headers["Authorization"].partition(" ")
    claims = json.loads(base64.urlsafe_b64decode(jwt.split(".")[1] + "=="))
    assert (kind, claims["email"], claims["aud"]) == (
        "Bearer",
        "caller@p.example",
        "https://service",
    )
    assert jwt.endswith(".")


def test_each_delivery_has_its_own_connection(client: CloudTasksClient, target: Target) -> None:
    """A kept one leads to one process: frozen, it would hide the next task while others wait."""
    for number in range(5):
        name = create(client, target, f"t{number}")
        until(lambda name=name: is_gone(client, name))

    assert len({delivery.peer for delivery in target.deliveries}) == 5


def test_hundreds_of_tasks_pass_in_seconds(
    client: CloudTasksClient, target: Target, url: str
) -> None:
    client.update_queue(queue={"name": QUEUE})
    client.pause_queue(name=QUEUE)
    began = time.monotonic()
    task = {"task": {"httpRequest": {"url": target.url}}}
    with urllib3.PoolManager() as caller:  # the client takes most of the time for each
        for _ in range(200):
            assert caller.request("POST", f"{url}/v2/{QUEUE}/tasks", json=task).status == 200
    created = time.monotonic()
    client.resume_queue(name=QUEUE)

    target.wait_for(200)
    assert time.monotonic() - created < 5 + (created - began)  # the machine may be busy
