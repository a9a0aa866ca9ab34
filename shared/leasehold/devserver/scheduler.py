"""Plays Cloud Scheduler: calls the sweep at each tick, and again at once where more is due."""

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
        tell: told in a line of a tick that failed.
        every: seconds between ticks.
        first: called at each tick before the sweep is.
    """

    def __init__(
        self,
        url: str,
        tell: Callable[[str], None],
        every: float = TICK_S,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        self._first = first
        self._url = url
        self._tell = tell
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def stop(self) -> None:
        """Tick no more; a tick that runs is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                try:
                    self._first()
                finally:  # a queue that fails has no part in the sweep of the others
                    while self._tick() and not self._stopping.is_set():
                        pass
            except (OSError, ValueError) as error:
                if not self._stopping.is_set():
                    self._tell(f"the sweep does not answer: {error}")
            except LeaseholdError as error:
                self._tell(f"the store or the queue does not answer: {error}")

    def _tick(self) -> bool:
        """Sweep once; return whether more is due."""
        request = urllib.request.Request(  # noqa: S310 - our own address
            self._url, data=b"", headers={"X-CloudScheduler": "true"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            return bool(json.load(answer)["more"])
