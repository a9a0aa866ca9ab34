"""The task queue port on the official client, against the double of the service."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from google.cloud.tasks_v2 import Task as WireTask

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.cloud_tasks import CloudTasks
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.domain.effect import Task
from leasehold.errors import StoreUnavailableError
from tests.api.devserver.cloud_tasks.conftest import LOCATION, QUEUE, official_client
from tests.worlds.loopback_http import LoopbackHttp

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FUNCTION = "http://127.0.0.1:1/execute_step?x=1"


def task(name: str = "a", after: float = 3600, **fields: Any) -> Task:
    return Task(
        **{
            "name": name,
            "queue": "steps",
            "run_id": "r-1",
            "generation": 7,
            "not_before": SystemClock().now() + timedelta(seconds=after),
            "deadline": timedelta(minutes=10),
        }
        | fields
    )


@pytest.fixture
def url() -> Iterator[str]:
    with CloudTasksDouble() as double:
        yield double.start()


@pytest.fixture
def tasks(url: str) -> CloudTasks:
    return CloudTasks("p", "l", FUNCTION, "caller@p.example", emulator_url=url)


def stored(url: str, name: str = "a") -> WireTask:
    with official_client(url) as client:
        view = WireTask.View.FULL
        return client.get_task(request={"name": f"{QUEUE}/tasks/{name}", "response_view": view})


def test_a_task_says_which_run_and_generation_is_due_and_who_calls(
    tasks: CloudTasks, url: str
) -> None:
    given = task()

    tasks.create(given)

    kept = stored(url)
    assert kept.http_request.url == FUNCTION
    assert kept.http_request.http_method.name == "POST"
    assert kept.http_request.headers["Content-Type"] == "application/json"
    assert json.loads(kept.http_request.body) == {"runId": "r-1", "generation": 7}
    assert kept.http_request.oidc_token.service_account_email == "caller@p.example"
    assert kept.http_request.oidc_token.audience == "http://127.0.0.1:1"
    assert kept.schedule_time.timestamp() == given.not_before.timestamp()


def test_a_task_carries_the_trace_of_its_run(tasks: CloudTasks, url: str) -> None:
    tasks.create(task("a"))
    tasks.create(task("b", traceparent=TRACEPARENT))

    assert "traceparent" not in stored(url, "a").http_request.headers
    assert stored(url, "b").http_request.headers["traceparent"] == TRACEPARENT


def test_without_an_account_there_is_no_token(url: str) -> None:
    CloudTasks("p", "l", FUNCTION, emulator_url=url).create(task())

    assert not stored(url).http_request.oidc_token.service_account_email


@pytest.mark.parametrize(
    ("requested", "given"), [(1, 15), (15, 15), (900, 900), (1800, 1800), (9000, 1800)]
)
def test_the_deadline_is_brought_into_what_the_service_takes(
    tasks: CloudTasks, url: str, requested: int, given: int
) -> None:
    tasks.create(task(deadline=timedelta(seconds=requested)))

    assert stored(url).dispatch_deadline == timedelta(seconds=given)


def test_a_task_that_is_due_has_no_schedule_of_its_own(tasks: CloudTasks, url: str) -> None:
    with official_client(url) as client:
        client.create_queue(parent=LOCATION, queue={"name": QUEUE})
        client.pause_queue(name=QUEUE)
    long_ago = datetime(2020, 1, 1, tzinfo=SystemClock().now().tzinfo)

    tasks.create(task(not_before=long_ago))

    kept = stored(url)
    assert kept.schedule_time == kept.create_time


def test_a_task_that_was_announced_before_is_no_error(tasks: CloudTasks) -> None:
    tasks.create(task())

    tasks.create(task())

    assert tasks.exists(task())


def test_a_task_exists_from_its_creation_to_its_end(tasks: CloudTasks, url: str) -> None:
    assert not tasks.exists(task())
    tasks.create(task())
    assert tasks.exists(task())

    with official_client(url) as client:
        client.delete_task(name=f"{QUEUE}/tasks/a")

    assert not tasks.exists(task())


def test_many_threads_share_one_client(tasks: CloudTasks) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tasks.create(task(f"t{number}")), range(40)))

    assert all(tasks.exists(task(f"t{number}")) for number in range(40))


def test_a_queue_that_does_not_exist_is_said_to_be_missing_at_once() -> None:
    with CloudTasksDouble(strict=True) as double:
        tasks = CloudTasks("p", "l", FUNCTION, emulator_url=double.start())

        with pytest.raises(StoreUnavailableError, match="queue does not exist"):
            tasks.create(task())


def test_what_the_service_refuses_for_good_is_not_repeated(tasks: CloudTasks) -> None:
    began = time.monotonic()

    with pytest.raises(StoreUnavailableError, match="must be formatted"):
        tasks.create(task(name="not a name"))

    assert time.monotonic() - began < 5


def test_a_service_that_does_not_answer_is_given_up_after_a_while() -> None:
    patience = timedelta(seconds=0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        nobody = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tasks = CloudTasks("p", "l", FUNCTION, emulator_url=nobody, patience=patience)

        with pytest.raises(StoreUnavailableError, match=nobody) as caught:
            tasks.create(task())
        with pytest.raises(StoreUnavailableError):
            tasks.exists(task())

    assert caught.value.retryable


def test_a_create_is_repeated_until_the_service_is_back() -> None:
    with closing(_Failing([503, 429, 500, 200])) as failing:
        CloudTasks("p", "l", FUNCTION, emulator_url=failing.url).create(task())

        assert failing.left == []


def test_a_create_whose_answer_was_lost_is_known_the_second_time() -> None:
    with closing(_Failing([502, 409])) as failing:
        CloudTasks("p", "l", FUNCTION, emulator_url=failing.url).create(task())

        assert failing.left == []


def test_google_is_imported_with_the_first_call_and_not_before() -> None:
    program = (
        "import sys; from leasehold.adapters.cloud_tasks import CloudTasks; "
        "CloudTasks('p', 'l', 'http://f', 'a@b'); "
        "sys.exit(any(name == 'google' or name.startswith('google.') for name in sys.modules))"
    )

    assert (
        subprocess.run([sys.executable, "-S", "-c", _with_paths(program)], check=False).returncode
        == 0
    )


def _with_paths(program: str) -> str:
    """Without site: what it puts into sys.modules is not ours."""
    return f"import sys; sys.path[:] = {sys.path!r}; {program}"


class _Failing(LoopbackHttp):
    """A service that answers with these statuses, one after the other."""

    def __init__(self, statuses: list[int]) -> None:
        self.left = list(statuses)
        super().__init__(self._answer)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        request.send_response(self.left.pop(0))
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"{}")
