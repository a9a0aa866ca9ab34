"""The threads of the double: one that waits for what is due, and those that deliver it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from leasehold.bounded_calls import start_thread
from leasehold.devserver.cloud_tasks.queues import Queues
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult

#: A time of day that jumps, or a machine that slept, is noticed after this long at most.
_MAX_WAIT_S: Final = 60.0
#: How long to wait where the system has no thread for a delivery.
_NO_THREAD_S: Final = 0.5


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
            return _NO_THREAD_S
        next_time = self._queues.next_time()
        if next_time is None:
            return None
        wait = (next_time - self._queues.now()).total_seconds()
        return min(max(0.0, wait), _MAX_WAIT_S)
