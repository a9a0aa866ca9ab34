"""Calls that are made side by side, a few at a time: one that hangs holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from leasehold.worker.threads import start_thread

Call = Callable[[], None]


def side_by_side(take: Callable[[], Call | None], at_most: int) -> None:
    """Make the calls that `take` gives, at most so many at a time, until it gives none.

    The caller's thread makes calls too, and another one is started only while there are calls to
    make. A thread that cannot be started is done without.

    Args:
        take: gives the next call, or None where there is none now. It is never called twice at
            the same time. Each thread calls it once more after each call that it made, so what a
            call leaves to be done may be given then.
        at_most: how many calls may run at once.

    Raises:
        What `take` or a call raises, once the calls that run are over; no further one is made.
    """
    _Crew(take, at_most).run()


class _Crew:
    def __init__(self, take: Callable[[], Call | None], at_most: int) -> None:
        self._take = take
        self._at_most = at_most
        self._helpers: list[threading.Thread] = []
        self._taking = threading.Lock()
        self._over = False
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException:
            self._over = True
            raise
        finally:
            for helper in self._helpers:  # those that come meanwhile are joined too
                helper.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while call := self._next():
            call()

    def _next(self) -> Call | None:
        with self._taking:
            call = None if self._over else self._take()
            if call is not None and len(self._helpers) + 1 < self._at_most:
                self._start_helper()
            return call

    def _start_helper(self) -> None:
        helper = start_thread(self._help, "side-by-side")
        if helper is not None:
            self._helpers.append(helper)

    def _help(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised again by the caller's thread
            self._over, self._failure = True, error
