"""The double as a server on this machine."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final, Self

import flask

from leasehold.bootstrap import system_clock
from leasehold.bounded_calls import start_thread
from leasehold.devserver.cloud_tasks.faults import Faults, FiredFault
from leasehold.devserver.cloud_tasks.http_client import AllowedHosts, HttpClient
from leasehold.devserver.cloud_tasks.queue import Queues, QueueSettings
from leasehold.devserver.cloud_tasks.routes import MIN_TASK_DEADLINE, TaskParser, make_app
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult, HttpTask
from leasehold.devserver.loopback_server import LoopbackServer
from leasehold.ports.clock import Clock

# The threads of the double: one that waits for what is due, and those that deliver it.


#: A time of day that jumps, or a machine that slept, is noticed after this long at most.
_MAX_SLEEP_S: Final = 60.0
#: How long to wait where the system has no thread for a delivery.
_THREAD_RETRY_S: Final = 0.5


class Dispatcher:
    """Makes the deliveries that are due, each in its own thread.

    Args:
        queues: say what is due, and get the results.
        deliver: makes one delivery.
        threads: how many deliveries run at a time at most, over all queues.

    The threads are made when they are needed and kept; idle, all of them wait. They do not keep
    the process alive.
    """

    def __init__(
        self, queues: Queues, deliver: Callable[[Attempt], DeliveryResult], threads: int
    ) -> None:
        self._queues = queues
        self._deliver = deliver
        self._max_running = threads
        self._running = 0
        self._closed = False
        self._due: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._deliverers: list[threading.Thread] = []
        self._starter = threading.Thread(target=self._start_due, name="tasks-due", daemon=True)

    def start(self) -> None:
        """Deliver from now on."""
        self._starter.start()

    def close(self) -> None:
        """Start nothing more, for good; the deliveries that run go on."""
        with self._queues.changed:
            self._closed = True
            self._queues.changed.notify()
        if self._starter.ident is not None:  # it was started
            self._starter.join()

    def stop(self, drain_seconds: float) -> bool:
        """Start nothing more; wait at most this long for the deliveries that run.

        Returns:
            Whether all of them ended. The results of the others are ignored.
        """
        self.close()
        for _ in self._deliverers:
            self._due.put(None)
        deadline = time.monotonic() + drain_seconds
        for deliverer in self._deliverers:
            deliverer.join(max(0.0, deadline - time.monotonic()))
        return not any(deliverer.is_alive() for deliverer in self._deliverers)

    def _start_due(self) -> None:
        with self._queues.changed:
            while not self._closed:
                attempt = self._queues.start() if self._has_deliverer() else None
                if attempt:
                    self._running += 1
                    self._due.put(attempt)
                else:
                    self._queues.changed.wait(self._seconds_to_wait())

    def _has_deliverer(self) -> bool:
        """Return whether one more delivery may run and has a thread; makes that if it can."""
        if self._running >= self._max_running:
            return False
        if self._running == len(self._deliverers):
            deliverer = start_thread(self._deliver_due, f"tasks-{self._running + 1}")
            if deliverer is None:
                return False
            self._deliverers.append(deliverer)
        return True

    def _deliver_due(self) -> None:
        while attempt := self._due.get():
            result = self._deliver(attempt)
            with self._queues.changed:
                self._queues.finished(attempt, result)
                self._running -= 1
                self._queues.changed.notify()

    def _seconds_to_wait(self) -> float | None:
        """Return how long until something may be due; None: until something changes."""
        if self._running >= self._max_running:
            return None
        if self._running == len(self._deliverers):
            return _THREAD_RETRY_S
        next_time = self._queues.next_time()
        if next_time is None:
            return None
        wait = (next_time - self._queues.now()).total_seconds()
        return min(max(0.0, wait), _MAX_SLEEP_S)


class Delivering:
    """A service on loopback that takes tasks, and delivers each from its queue.

    Args:
        queues: what it delivers.
        client: makes the requests.
        threads: how many deliveries run at a time at most, over all queues.
        app: answers its own callers.
        name: of its thread.
    """

    def __init__(
        self, queues: Queues, client: HttpClient, threads: int, app: flask.Flask, name: str
    ) -> None:
        self._queues, self._client = queues, client
        self._dispatcher = Dispatcher(queues, client.deliver, threads)
        self._server = LoopbackServer(app, name)

    def start(self, port: int = 0) -> str:
        """Serve and deliver from now on; return the address. It can be started once.

        Args:
            port: 0: one that is free.

        Raises:
            OSError: the port is in use.
        """
        address = self._server.start(port)
        self._dispatcher.start()
        return address

    def stop(self, drain_seconds: float = 0.0) -> bool:
        """Start no more deliveries, wait for those that run, then stop answering.

        Tasks that are created meanwhile are accepted, so that the deliveries that run can end.

        Returns:
            Whether all deliveries ended in time. The results of the others are ignored.
        """
        drained = self._dispatcher.stop(drain_seconds)
        self._server.stop()
        return drained

    def order_fault(self, kind: str, **which: Any) -> None:
        """Order a fault for the next tasks, as `Faults.order` has it, safe from any thread."""
        with self._queues.changed:
            self._queues.faults.order(kind, **which)

    def fired(self) -> list[FiredFault]:
        """Return the faults that fired so far, in order."""
        with self._queues.changed:
            return list(self._queues.faults.fired)


class CloudTasksDouble(Delivering):
    """The Cloud Tasks service on loopback, for the official client over its REST transport.

    Other than the service, it creates a queue on the first task for it, with the settings given
    here, unless it is strict; there are no IAM, no App Engine tasks, no batches; tokens are not
    signed. It keeps nothing on disk: what it held when it stopped is gone.

    Args:
        defaults: the settings of a queue that was not created explicitly.
        strict: refuse tasks for such queues with NOT_FOUND, as the service does.
        shortest_deadline: the shortest dispatch deadline that is accepted; the service: 15 s.
        threads: how many deliveries run at a time at most, over all queues.
        clock: in place of the machine's.
        targets: hosts beyond this machine that tasks may be delivered to; the service: any.
        on_request: called with method and path of each request, for who records them; an
            `ApiError` that it raises is the answer.
    """

    def __init__(
        self,
        defaults: QueueSettings | None = None,
        *,
        strict: bool = False,
        shortest_deadline: timedelta = MIN_TASK_DEADLINE,
        threads: int = 128,
        clock: Clock | None = None,
        targets: Iterable[str] = (),
        on_request: Callable[[str, str], object] | None = None,
    ) -> None:
        clock = clock or system_clock()
        queues = Queues(clock, defaults or QueueSettings(), strict=strict)
        parser = TaskParser(
            shortest=shortest_deadline,
            hosts=AllowedHosts(targets),
            new_name=lambda: str(int(clock.new_id(), 16)),
        )
        app = make_app(queues, parser, on_request)
        super().__init__(queues, HttpClient(), threads, app, "tasks-api")

    def on_dropped(self, callback: Callable[[HttpTask], object]) -> None:
        """Call back with the task of each delivery whose connection was refused or dropped.

        A worker that does not answer within the task's deadline is not such a case. The callback
        runs in the thread of the delivery, which is scheduled again when it returns: it neither
        waits nor raises.
        """
        self._client.on_dropped = callback

    def stop_deliveries(self) -> None:
        """Start no more deliveries, for good; those that run go on, and tasks are accepted."""
        self._dispatcher.close()

    @property
    def faults(self) -> Faults:
        """The faults that are ordered and those that fired; see `order_fault`, `fired`."""
        return self._queues.faults

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
