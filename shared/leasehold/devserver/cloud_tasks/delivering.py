"""The threads of the double: one that waits for what is due, and those that deliver it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from leasehold.devserver.cloud_tasks.queues import Queues
from leasehold.devserver.cloud_tasks.tasks import Answer, Attempt

#: A time of day that jumps, or a machine that slept, is noticed after this long at most.
_LOOK_AGAIN_S: Final = 60.0


class Delivering:
    """Starts what is due, each delivery in a thread of its own.

    Args:
        queues: say what is due, and hear what became of it.
        call: makes one delivery.
        threads: how many deliveries run at a time at most, over all queues.

    The threads are made when they are needed and kept; idle, all of them wait. They do not keep
    the process alive.
    """

    def __init__(self, queues: Queues, call: Callable[[Attempt], Answer], threads: int) -> None:
        self._queues = queues
        self._call = call
        self._limit = threads
        self._busy = 0
        self._closed = False
        self._due: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._starter = threading.Thread(target=self._start_all, name="tasks-due", daemon=True)

    def begin(self) -> None:
        """Deliver from now on."""
        self._starter.start()

    def close(self) -> None:
        """Start nothing more, for good; the deliveries that run go on."""
        with self._queues.changed:
            self._closed = True
            self._queues.changed.notify()
        if self._starter.ident is not None:  # it was begun
            self._starter.join()

    def end(self, drain_seconds: float) -> bool:
        """Start nothing more; wait so long for the deliveries that run.

        Returns:
            Whether all of them ended. Nobody hears the others any more.
        """
        self.close()
        for _ in self._workers:
            self._due.put(None)
        over_at = time.monotonic() + drain_seconds
        for worker in self._workers:
            worker.join(max(0.0, over_at - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def _start_all(self) -> None:
        with self._queues.changed:
            while not self._closed:
                attempt = self._queues.start() if self._busy < self._limit else None
                if attempt:
                    self._hand_out(attempt)
                else:
                    self._queues.changed.wait(self._seconds_to_wait())

    def _hand_out(self, attempt: Attempt) -> None:
        self._busy += 1
        if self._busy > len(self._workers):
            name = f"tasks-{len(self._workers) + 1}"
            self._workers.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._workers[-1].start()
        self._due.put(attempt)

    def _work(self) -> None:
        while attempt := self._due.get():
            answer = self._call(attempt)
            with self._queues.changed:
                self._queues.finished(attempt, answer)
                self._busy -= 1
                self._queues.changed.notify()

    def _seconds_to_wait(self) -> float | None:
        """Return how long until something may be due; None: until something changes."""
        time_of_next = self._queues.next_time() if self._busy < self._limit else None
        if time_of_next is None:
            return None
        wait = (time_of_next - self._queues.now()).total_seconds()
        return min(max(0.0, wait), _LOOK_AGAIN_S)
