"""The double of Cloud Scheduler: calls the sweep at each tick, and again while more is due."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from typing import Final

from leasehold.errors import LeaseholdError
from leasehold.services.sweep import ATTEMPT_DEADLINE

#: Cloud Scheduler ticks once a minute; one machine can afford to look more often.
TICK_S: Final = 5.0
_TIMEOUT_S: Final = ATTEMPT_DEADLINE.total_seconds()


class Scheduler:
    """Ticks from a thread of its own until it is stopped.

    Args:
        url: the sweep.
        report: called with a line for people when a tick failed.
        every: seconds between ticks.
        before_sweep: called at each tick first.
    """

    def __init__(
        self,
        url: str,
        report: Callable[[str], None],
        every: float = TICK_S,
        before_sweep: Callable[[], object] = lambda: None,
    ) -> None:
        self._url = url
        self._report = report
        self._before_sweep = before_sweep
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Tick from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Tick no more; a tick that runs is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                try:
                    self._before_sweep()
                finally:  # a queue that fails does not keep the sweep from the other runs
                    while self._sweep() and not self._stopping.is_set():
                        pass
            except (OSError, ValueError) as error:
                if not self._stopping.is_set():
                    self._report(f"the sweep does not answer: {error}")
            except LeaseholdError as error:
                self._report(f"the store or the queue does not answer: {error}")

    def _sweep(self) -> bool:
        """Sweep once; return whether more is due."""
        request = urllib.request.Request(  # noqa: S310 - our own address
            self._url, data=b"", headers={"X-CloudScheduler": "true"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - as above
            return bool(json.load(answer)["more"])
