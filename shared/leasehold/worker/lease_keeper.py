"""The attempts of this process: renewed from outside their handlers, and stopped in time."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Final

from leasehold.bounded_calls import start_thread
from leasehold.domain.status import Termination
from leasehold.ports.clock import Clock
from leasehold.ports.lease_keeper import LeasedAttempt
from leasehold.worker.held_attempt import RENEWAL_S, HeldAttempt
from leasehold.worker.late_handlers import LateHandlers

_LOG: Final = logging.getLogger("leasehold.lease_keeper")

#: A beat is looked for this many times in its interval, so that none is late by more than a tenth.
_LOOKS: Final = 10
_LONGEST_LOOK_S: Final = 1.0
_SHORTEST_LOOK_S: Final = 0.02


class ThreadedLeaseKeeper:
    """The lease keeper port: one thread watches all attempts, each renewal has one of its own.

    So a store that hangs for one run costs no other run its lease, and no handler runs on when
    its lease may be over, whatever its renewals wait for. Where the system has no thread for a
    renewal, the thread that watches makes it; where it has none to watch, no handler begins.

    Args:
        clock: monotonic seconds.
        patience: how long an attempt waits for a store before its handler begins.
    """

    def __init__(self, clock: Clock, patience: timedelta) -> None:
        self._clock = clock
        self._patience = patience.total_seconds()
        self._held: dict[str, HeldAttempt] = {}
        self._renewing: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._look_every = _LONGEST_LOOK_S
        self._thread: threading.Thread | None = None
        self._closed = False
        self._stop: tuple[Termination, str] | None = None
        self._late = LateHandlers(clock)

    @contextlib.contextmanager
    def hold(self, attempt: LeasedAttempt) -> Iterator[HeldAttempt]:
        """Watch over an attempt while inside, and renew its lease if it has a heartbeat.

        Where nothing can watch over it, it is asked to stop before it begins.
        """
        held = HeldAttempt(attempt, self._clock, self._patience)
        lease_id = held.fence.lease_id
        self._held[lease_id] = held
        if self._stop is not None:
            held.ask_to_stop(*self._stop)
        if not self._look_at_least((held.renew_every or _LONGEST_LOOK_S * _LOOKS) / _LOOKS):
            held.ask_to_stop(Termination.THREAD_UNAVAILABLE)
        try:
            yield held
        finally:
            del self._held[lease_id]
            self._late.note_return(held)

    def held_attempts(self) -> list[HeldAttempt]:
        """Return the attempts that are held now."""
        return list(self._held.values())

    def stop_run(self, run_id: str, reason: Termination) -> None:
        """Ask the handler of what is held of this run to end, if anything is."""
        for held in self.held_attempts():
            if held.manifest.run_id == run_id:
                held.ask_to_stop(reason)

    def stop_all(self, reason: Termination, detail: str = "") -> None:
        """Ask the handlers of all that is held to end, and of what is held later."""
        self._stop = reason, detail
        for held in self.held_attempts():
            held.ask_to_stop(reason, detail)

    def look(self) -> None:
        """Renew and stop what is due now, and wait until that is done: time was moved by hand."""
        self._look()
        for renewal in list(self._renewing.values()):
            renewal.join()

    def close(self) -> None:
        """Stop renewing; a renewal that is on its way is waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for renewal in self._renewing.values():  # nothing begins another one now
            renewal.join()

    def _look_at_least(self, every: float) -> bool:
        """Have a thread look that often; return whether there is one."""
        every = max(_SHORTEST_LOOK_S, min(every, _LONGEST_LOOK_S))
        if self._is_watched() and every >= self._look_every:
            return True
        with self._changed:
            self._look_every = min(every, self._look_every)
            if not self._is_watched() and not self._closed:
                self._thread = start_thread(self._watch, "heartbeat")
            self._changed.notify_all()
            return self._is_watched() or self._closed

    def _is_watched(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(self._look_every)
            try:
                self._look()
            except Exception:  # noqa: BLE001 - such as no memory: nobody else renews the leases
                _LOG.exception("the leases of this process could not be looked after")

    def _look(self) -> None:
        now = self._clock.monotonic()
        for held in self.held_attempts():  # one that was lost or cancelled may still have a handler
            held.stop.call_waiting()
            self._late.look_at(held)
        running = [held for held in self.held_attempts() if not held.is_settled]
        for held in running:
            if held.stop_at <= now:
                held.ask_to_stop(Termination.LEASE_EXPIRED)
        self._renewing = {of: one for of, one in self._renewing.items() if one.is_alive()}
        due = [held for held in running if self._is_due(held)]
        for held in sorted(due, key=lambda held: held.renew_at):
            renewal = start_thread(partial(self._renew, held), "renewal")
            if renewal is not None:
                self._renewing[held.fence.lease_id] = renewal
                continue
            self._renew(held, waits=False)
            if self._clock.monotonic() - now > RENEWAL_S:
                return  # the store hangs: look at what has to stop before the next one

    def _is_due(self, held: HeldAttempt) -> bool:
        return (held.is_due or held.is_overdue) and held.fence.lease_id not in self._renewing

    def _renew(self, held: HeldAttempt, *, waits: bool = True) -> None:
        try:
            held.renew(waits=waits)
        except Exception:  # noqa: BLE001 - such as a document that cannot be read
            _LOG.exception("the lease of run %s could not be renewed", held.manifest.run_id)
            held.ask_to_stop(Termination.LEASE_EXPIRED)
