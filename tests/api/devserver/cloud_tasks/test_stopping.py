"""Starting and stopping: what runs may end, and nothing is left behind."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from leasehold.devserver.cloud_tasks import CloudTasksDouble
from tests.api.devserver.cloud_tasks.conftest import QUEUE, official_client
from tests.api.devserver.cloud_tasks.target import Target
from tests.worlds.ports import own_port
from tests.worlds.waiting import until


def create(url: str, target: Target, count: int = 1) -> None:
    with official_client(url) as client:
        for _ in range(count):
            request = {"url": target.url, "http_method": "POST", "body": b"{}"}
            client.create_task(parent=QUEUE, task={"http_request": request})


@pytest.fixture
def threads() -> Callable[[], set[str]]:
    """What threads run for this test's doubles: one of another test may still be ending."""
    others = set(threading.enumerate())

    def of_this_test() -> set[str]:
        started = (it.name for it in threading.enumerate() if it not in others)
        return {name for name in started if name.startswith("tasks-")}

    return of_this_test


def test_a_stop_waits_for_the_deliveries_that_run_and_takes_their_tasks(
    target: Target, threads: Callable[[], set[str]]
) -> None:
    double = CloudTasksDouble()
    url = double.start()
    target.hold()
    create(url, target)
    target.wait_for(1)

    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(double.stop, drain_seconds=10)
        create(url, target)
        target.release()
        assert stopping.result(10) is True

    assert target.answered >= 1
    assert not threads()


def test_tasks_are_taken_but_not_delivered_before_the_stop(target: Target) -> None:
    """So that workers that are ending can still create the next task."""
    with CloudTasksDouble() as double:
        url = double.start()
        target.hold()
        create(url, target)
        target.wait_for(1)

        double.stop_deliveries()
        create(url, target)
        target.release()

        with official_client(url) as client:
            until(lambda: [it.dispatch_count for it in client.list_tasks(parent=QUEUE)] == [0])
        assert target.answered == 1


def test_a_stop_leaves_a_delivery_that_takes_too_long(
    target: Target, threads: Callable[[], set[str]]
) -> None:
    double = CloudTasksDouble()
    target.hold()
    create(double.start(), target)
    target.wait_for(1)

    assert double.stop(drain_seconds=0.05) is False

    assert target.answered == 0
    target.release()
    until(lambda: not threads())


def test_nothing_is_started_after_a_stop(target: Target) -> None:
    double = CloudTasksDouble()
    url = double.start(port=own_port())  # so that nobody else listens there afterwards
    create(url, target)
    target.wait_for(1)

    double.stop(drain_seconds=5)

    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=1)
    assert len(target.deliveries) == 1


def test_a_double_that_was_never_started_can_be_stopped() -> None:
    with CloudTasksDouble() as double:
        assert double.fired() == []


def test_it_listens_on_loopback_only() -> None:
    with CloudTasksDouble() as double:
        port = urlsplit(double.start()).port
        lines = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        ]
        listening = [it[1] for it in lines if it[3] == "0A" and it[1].endswith(f":{port:04X}")]

        assert listening == [f"0100007F:{port:04X}"]


def test_a_port_in_use_is_an_error_and_not_an_exit() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        double = CloudTasksDouble()

        with pytest.raises(OSError, match="in use"):
            double.start(port=taken.getsockname()[1])


def test_a_port_can_be_had_again_at_once(target: Target) -> None:
    """So that what was given its address finds it after a restart."""
    with CloudTasksDouble() as first:
        url = first.start(port=own_port())
        create(url, target)
        target.wait_for(1)

    with CloudTasksDouble() as second:
        assert second.start(port=urlsplit(url).port or 0) == url
        create(url, target)
        target.wait_for(2)


def test_no_more_deliveries_run_than_there_are_threads(
    target: Target, threads: Callable[[], set[str]]
) -> None:
    target.hold()
    double = CloudTasksDouble(threads=3)
    url = double.start()
    create(url, target, count=8)
    target.wait_for(3)
    until(lambda: len(threads() - {"tasks-due", "tasks-api"}) == 3)

    target.release()
    target.wait_for(8)
    double.stop(drain_seconds=5)

    assert target.most_at_once == 3
