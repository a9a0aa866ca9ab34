"""Renewals from outside the handlers: one thread for all runs that this process holds."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Final

from leasehold.ports.clock import Clock
from leasehold.worker.held_run import HeldRun

_LOG: Final = logging.getLogger("leasehold.heartbeat")

#: A beat is looked for this many times in its interval, so that none is late by more than a tenth.
_LOOKS: Final = 10
_LONGEST_LOOK_S: Final = 1.0
_SHORTEST_LOOK_S: Final = 0.02


class Heartbeat:
    """Renews the leases of the runs that are held, each at its interval."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, HeldRun] = {}
        self._changed = threading.Condition()
        self._look_every = _LONGEST_LOOK_S
        self._thread: threading.Thread | None = None
        self._closed = False

    def held_runs(self) -> list[HeldRun]:
        """Return the runs that are held now."""
        return list(self._held.values())

    @contextlib.contextmanager
    def keeping(self, held: HeldRun) -> Iterator[HeldRun]:
        """Renew the lease of `held` while inside; a run without heartbeat is only listed."""
        lease_id = held.fence.lease_id
        self._held[lease_id] = held
        if held.renew_every is not None:
            self._look_at_least(held.renew_every / _LOOKS)
        try:
            yield held
        finally:
            del self._held[lease_id]

    def close(self) -> None:
        """Stop renewing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _look_at_least(self, every: float) -> None:
        every = max(_SHORTEST_LOOK_S, min(every, _LONGEST_LOOK_S))
        if self._thread is not None and every >= self._look_every:
            return
        with self._changed:
            self._look_every = min(every, self._look_every)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _beat(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(self._look_every)
            now = self._clock.monotonic()
            for held in self.held_runs():
                if held.renew_every is not None and held.renew_at <= now:
                    _renew(held)


def _renew(held: HeldRun) -> None:
    """Renew one lease; what goes wrong with it must not cost the others theirs."""
    try:
        held.renew()
    except Exception:  # noqa: BLE001 - as said above
        _LOG.exception("the lease of run %s could not be renewed", held.manifest.run_id)
        held.ask_to_stop("lease_lost")
