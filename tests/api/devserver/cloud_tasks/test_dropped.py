"""A caller can ask for dropped connections: their worker may have died."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from queue import Empty, SimpleQueue

import pytest
from google.cloud.tasks_v2 import CloudTasksClient

from leasehold.devserver.cloud_tasks import CloudTasksDouble, HttpTask
from tests.api.devserver.cloud_tasks.conftest import QUEUE
from tests.api.devserver.cloud_tasks.target import PATIENCE, Target


@pytest.fixture
def dropped(double: CloudTasksDouble) -> Iterator[SimpleQueue[HttpTask]]:
    drops: SimpleQueue[HttpTask] = SimpleQueue()
    double.on_dropped(drops.put)
    return drops


def create(client: CloudTasksClient, url: str, seconds: float = 15) -> None:
    request = {"url": url, "http_method": "POST", "body": b"{}"}
    deadline = timedelta(seconds=seconds)
    task = {"http_request": request, "dispatch_deadline": deadline}
    client.create_task(parent=QUEUE, task=task)


def test_a_connection_that_is_closed_without_an_answer_is_told_and_the_task_comes_again(
    client: CloudTasksClient, target: Target, dropped: SimpleQueue[HttpTask]
) -> None:
    target.drops = 1

    create(client, target.url)

    assert dropped.get(timeout=PATIENCE).body == b"{}"
    target.wait_for(2)
    assert dropped.empty()


def test_a_worker_that_is_not_there_is_told(
    client: CloudTasksClient, dropped: SimpleQueue[HttpTask]
) -> None:
    create(client, "http://127.0.0.1:1/nobody")

    assert dropped.get(timeout=PATIENCE).url == "http://127.0.0.1:1/nobody"


def test_a_worker_that_is_only_slow_or_refuses_is_not_told(
    client: CloudTasksClient, target: Target, dropped: SimpleQueue[HttpTask]
) -> None:
    target.answer(500, 404)
    target.hold()

    create(client, target.url, seconds=0.05)
    target.wait_for(2)
    target.release()
    target.wait_for(3)

    with pytest.raises(Empty):
        dropped.get_nowait()
