"""The runs that this process holds: renewed from outside their handlers, and stopped in time."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Final

from leasehold.domain.status import Termination
from leasehold.ports.clock import Clock
from leasehold.worker.held_run import HeldRun

_LOG: Final = logging.getLogger("leasehold.heartbeat")

#: A beat is looked for this many times in its interval, so that none is late by more than a tenth.
_LOOKS: Final = 10
_LONGEST_LOOK_S: Final = 1.0
_SHORTEST_LOOK_S: Final = 0.02


class Heartbeat:
    """The in-flight registry. One thread watches all; each renewal has a thread of its own.

    So a store that hangs for one run costs no other run its lease, and no handler runs on when
    its lease may be over, whatever its renewals wait for.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, HeldRun] = {}
        self._renewing: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._look_every = _LONGEST_LOOK_S
        self._thread: threading.Thread | None = None
        self._closed = False
        self._stop_reason: Termination | None = None

    def held_runs(self) -> list[HeldRun]:
        """Return the runs that are held now."""
        return list(self._held.values())

    def stop_all(self, reason: Termination) -> None:
        """Ask the handlers of all runs that are held to end, and of those that come later."""
        self._stop_reason = reason
        for held in self.held_runs():
            held.ask_to_stop(reason)

    @contextlib.contextmanager
    def keeping(self, held: HeldRun) -> Iterator[HeldRun]:
        """Watch over `held` while inside, and renew its lease if it has a heartbeat."""
        lease_id = held.fence.lease_id
        self._held[lease_id] = held
        if self._stop_reason is not None:
            held.ask_to_stop(self._stop_reason)
        self._look_at_least((held.renew_every or _LONGEST_LOOK_S * _LOOKS) / _LOOKS)
        try:
            yield held
        finally:
            del self._held[lease_id]

    def close(self) -> None:
        """Stop renewing; a renewal that is on its way is waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for renewal in list(self._renewing.values()):
            renewal.join()

    def _look_at_least(self, every: float) -> None:
        every = max(_SHORTEST_LOOK_S, min(every, _LONGEST_LOOK_S))
        if self._thread is not None and every >= self._look_every:
            return
        with self._changed:
            self._look_every = min(every, self._look_every)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(self._look_every)
            now = self._clock.monotonic()
            for held in self.held_runs():
                self._look_at(held, now)

    def _look_at(self, held: HeldRun, now: float) -> None:
        if held.is_settled:
            return
        if held.stop_at <= now:
            held.ask_to_stop(Termination.LEASE_EXPIRED)
        lease_id = held.fence.lease_id
        if held.renew_every is None or held.renew_at > now or lease_id in self._renewing:
            return
        renewal = threading.Thread(target=self._renew, args=(held,), name="renewal", daemon=True)
        self._renewing[lease_id] = renewal
        renewal.start()

    def _renew(self, held: HeldRun) -> None:
        try:
            held.renew()
        except Exception:  # noqa: BLE001 - such as a document that cannot be read
            _LOG.exception("the lease of run %s could not be renewed", held.manifest.run_id)
            held.ask_to_stop(Termination.LEASE_EXPIRED)
        finally:
            del self._renewing[held.fence.lease_id]
