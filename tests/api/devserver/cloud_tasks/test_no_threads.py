"""Deliveries that the system has no thread for come later; none is lost."""

from __future__ import annotations

import threading

from leasehold.adapters.clock import SystemClock
from leasehold.devserver.cloud_tasks.queue import Queues, QueueSettings
from leasehold.devserver.cloud_tasks.server import Dispatcher
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult, HttpTask
from tests.api.devserver.cloud_tasks.conftest import QUEUE
from tests.chaos.outages.test_threads import no_new_threads
from tests.worlds.waiting import until


def running(queues: Queues) -> int:
    with queues.changed:
        return queues.queue(QUEUE).running


def test_what_is_due_while_no_thread_can_be_had_is_delivered_after_that() -> None:
    """The thread that waits for what is due survives, and tries again by itself."""
    queues = Queues(SystemClock(), QueueSettings(), strict=False)
    delivered: list[str] = []
    both = threading.Barrier(2)

    def deliver(attempt: Attempt) -> DeliveryResult:
        both.wait(10)  # each has a thread of its own
        delivered.append(attempt.task.name)
        return DeliveryResult(200)

    dispatcher = Dispatcher(queues, deliver, 8)
    dispatcher.start()
    until(lambda: any(thread.name == "tasks-1" for thread in threading.enumerate()))
    with no_new_threads():
        for number in range(2):
            queues.add(QUEUE, HttpTask(f"t{number}", "http://127.0.0.1/", queues.now()))
        until(lambda: running(queues) == 1)  # and it was tried for the other
    until(lambda: len(delivered) == 2)

    assert dispatcher.stop(5)
    assert not queues.tasks(QUEUE)
