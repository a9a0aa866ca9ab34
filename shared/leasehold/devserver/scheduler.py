"""The stand-in for Cloud Scheduler: calls a function at each tick, and again while more is due."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from datetime import datetime
from http.client import HTTPException
from typing import Final

import pydantic_core
from cronsim import CronSim, CronSimError

from leasehold.bootstrap import system_clock
from leasehold.errors import LeaseholdError
from leasehold.ports.clock import Clock
from leasehold.registry.functions import FunctionEntry

#: Cloud Scheduler calls the sweep once a minute; one machine can afford to look more often.
TICK_S: Final = 5.0
#: A time of day that jumps, or a machine that slept, is noticed after this long at most.
_MAX_SLEEP_S: Final = 1.0


class Scheduler:
    """Ticks from its own thread until it is stopped.

    Args:
        function: what is called, by its row of the table.
        url: where it is.
        report: called with a line for people when a tick failed.
        every: seconds between ticks; None: as the schedule of the row says, in UTC.
        before: called at each tick first.
        clock: in place of the machine's.

    Raises:
        InvalidEntryError: the schedule never comes round.
    """

    def __init__(
        self,
        function: FunctionEntry,
        url: str,
        report: Callable[[str], None],
        *,
        every: float | None = None,
        before: Callable[[], object] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._function = function
        self._url = url
        self._report = report
        self._before = before
        self._every = every
        self._clock = clock or system_clock()
        self._due = self._next_due()
        self._stopping = threading.Event()
        name = f"schedule of {function.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Tick from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Tick no more; a tick that runs is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while self._next_tick():
            try:
                try:
                    self._before()
                finally:  # a queue that fails does not keep the sweep from the other runs
                    while self._call() and not self._stopping.is_set():
                        pass
            except (OSError, ValueError, HTTPException) as error:  # or its process ended meanwhile
                if not self._stopping.is_set():
                    self._report(f"{self._function.name} does not answer: {error}")
            except LeaseholdError as error:
                self._report(f"the store or the queue does not answer: {error}")

    def _next_tick(self) -> bool:
        """Wait for the next tick; return False once this is to stop."""
        if self._every is not None:
            return not self._stopping.wait(self._every)
        while (left := (self._due - self._clock.now()).total_seconds()) > 0:
            if self._stopping.wait(min(left, _MAX_SLEEP_S)):
                return False
        self._due = self._next_due()  # one that comes while this is answered is not left out
        return not self._stopping.is_set()

    def _next_due(self) -> datetime:
        """Return when the schedule comes round next, or refuse one that never does."""
        function = self._function
        try:
            return next(CronSim(function.schedule, self._clock.now()))
        except (CronSimError, StopIteration) as error:
            allowed = f"cron's five fields, for times that there are ({error})"
            function.refuse("schedule", allowed)

    def _call(self) -> bool:
        """Call the function once; return whether it says that more is due at once."""
        request = urllib.request.Request(  # noqa: S310 - our own address
            self._url, data=b"", headers={"X-CloudScheduler": "true"}, method="POST"
        )
        timeout = self._function.timeout.total_seconds()
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - as above
            said = answer.read()
        try:
            body = pydantic_core.from_json(said)
        except ValueError:
            return False
        return isinstance(body, dict) and body.get("more") is True
