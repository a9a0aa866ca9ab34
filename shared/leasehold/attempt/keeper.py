"""The attempts of this process: renewed from outside their handlers, and stopped in time.

A handler that runs on although it was asked to stop is named in the log, once. Nothing that it does
counts any more, but a thread of this process cannot be killed: what is lost is a part of what the
worker can do.
"""

from __future__ import annotations

import logging
import math
import threading
from datetime import timedelta
from functools import partial
from typing import Final

from leasehold.attempt.attempt import (
    RENEWAL_TIMEOUT_S,
    Attempt,
    UserCall,
)
from leasehold.bounded_calls import start_thread
from leasehold.domain.change import Change
from leasehold.domain.lease import Fence
from leasehold.domain.notes import StackOf, no_stack
from leasehold.domain.status import Termination
from leasehold.logs.attempt import LinesOf
from leasehold.ports.attempt_engine import AttemptEngine
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, KnownRun

_LOG: Final = logging.getLogger("leasehold.lease_keeper")

#: A beat is looked for this many times in its interval, so that none is late by more than a tenth.
_LOOKS_PER_BEAT: Final = 10
_MAX_LOOK_EVERY_S: Final = 1.0
_MIN_LOOK_EVERY_S: Final = 0.02
#: A handler that was asked to stop may clean up for this time before it is reported.
LATE_STOP_S: Final = 15.0


class LeaseKeeper:
    """Renews the leases of held attempts: one thread watches all, each renewal has one of its own.

    So a store that hangs for one run costs no other run its lease, and no handler runs on when
    its lease may be over, whatever its renewals wait for. Where the system has no thread for a
    renewal, the thread that watches makes it; where it has none to watch, no handler begins.

    Args:
        clock: monotonic seconds.
        patience: how long an attempt waits for a store before its handler begins.
        stack_of: returns what a thread does in the code of a path.
    """

    def __init__(
        self,
        clock: Clock,
        patience: timedelta,
        stack_of: StackOf = no_stack,
    ) -> None:
        self._patience = patience.total_seconds()
        self._stack_of = stack_of
        self._clock = clock
        self._held: dict[str, Attempt] = {}
        self._late: set[str] = set()
        self._renewing: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._look_every = _MAX_LOOK_EVERY_S
        self._thread: threading.Thread | None = None
        self._closed = False
        self._is_new = True
        self._stop: tuple[Termination, str] | None = None

    def attempt_of(self, engine: AttemptEngine, acquired: Committed[Change]) -> Attempt:
        """Return the attempt whose lease was just committed; it is not watched."""
        run, snapshot = acquired.answer.manifest, acquired.snapshot
        assert run.position.lease is not None  # noqa: S101 - a lease was just written
        assert snapshot is not None  # noqa: S101 - as above
        fence, known = (
            Fence(run.position.lease.lease_id, run.fencing_token),
            KnownRun(run, snapshot),
        )
        return Attempt(engine, known, fence, patience=self._patience, stack_of=self._stack_of)

    def hold(self, engine: AttemptEngine, acquired: Committed[Change]) -> Attempt:
        """Return the attempt whose lease was just committed, and watch over it until it is let go.

        Its lease is renewed, if it has a heartbeat. Where nothing can watch over it, it is asked
        to stop before it begins.
        """
        attempt = self.attempt_of(engine, acquired)
        attempt.phases.is_cold, self._is_new = self._is_new, False
        self._held[attempt.fence.lease_id] = attempt
        if self._stop is not None:
            attempt.ask_to_stop(*self._stop)
        if not self._look_at_least(
            (attempt.renew_every or _MAX_LOOK_EVERY_S * _LOOKS_PER_BEAT) / _LOOKS_PER_BEAT
        ):
            attempt.ask_to_stop(Termination.THREAD_UNAVAILABLE)
        return attempt

    def let_go(self, attempt: Attempt) -> None:
        """Watch over an attempt no longer: its handler has returned."""
        del self._held[attempt.fence.lease_id]
        if attempt.fence.lease_id in self._late:
            self._note_return(attempt)

    def held_attempts(self) -> list[Attempt]:
        """Return the attempts that are held now."""
        return list(self._held.values())

    def stop_run(self, run_id: str, reason: Termination) -> None:
        """Ask the handler of this run's held attempt to end, if there is one."""
        for attempt in self.held_attempts():
            if attempt.name.run_id == run_id:
                attempt.ask_to_stop(reason)

    def renew_soon(self, run_id: str) -> None:
        """Renew the lease of this run now, if it is held here: something waits for it to be."""
        for attempt in self.held_attempts():
            if attempt.name.run_id == run_id:
                attempt.renew_at = -math.inf
                with self._changed:
                    self._changed.notify_all()

    def stop_all(self, reason: Termination, detail: str = "") -> None:
        """Ask the handlers of all held attempts to end, and those of later ones.

        Args:
            reason: for machines.
            detail: the same in a sentence; empty: the reason says all.
        """
        self._stop = reason, detail
        for attempt in self.held_attempts():
            attempt.ask_to_stop(reason, detail)

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
        every = max(_MIN_LOOK_EVERY_S, min(every, _MAX_LOOK_EVERY_S))
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
            except Exception:  # noqa: BLE001 - such as no memory: nothing else renews the leases
                _LOG.exception("the leases of this process could not be looked after")

    def _look(self) -> None:
        with self._looking:  # two at once would both begin a renewal that is due
            self._look_at_all()

    def _look_at_all(self) -> None:
        now = self._clock.monotonic()
        for attempt in self.held_attempts():  # that of a lost run may still have a handler
            attempt.stop.call_waiting()
            self._note_late(attempt)
        running = [attempt for attempt in self.held_attempts() if not attempt.is_settled]
        for attempt in running:
            attempt.listen()
            if attempt.stop_at <= now:
                attempt.ask_to_stop(Termination.LEASE_EXPIRED)
        self._renewing = {of: one for of, one in self._renewing.items() if one.is_alive()}
        due = [attempt for attempt in running if self._is_due(attempt)]
        for attempt in sorted(due, key=lambda attempt: attempt.renew_at):
            renewal = start_thread(partial(self._beat, attempt), "renewal")
            if renewal is not None:
                self._renewing[attempt.fence.lease_id] = renewal
                continue
            self._beat(attempt, waits=False)
            if self._clock.monotonic() - now > RENEWAL_TIMEOUT_S:
                return  # the store hangs: look at what has to stop before the next one

    def _is_due(self, attempt: Attempt) -> bool:
        return (attempt.is_due or attempt.is_overdue) and (
            attempt.fence.lease_id not in self._renewing
        )

    def _beat(self, attempt: Attempt, *, waits: bool = True) -> None:
        try:
            attempt.beat(waits=waits)
            if attempt.stack_request is not None:  # of which it has just heard
                attempt.beat(waits=waits)
        except Exception:  # noqa: BLE001 - such as a document that cannot be read
            _LOG.exception("the lease of run %s could not be renewed", attempt.name.run_id)
            attempt.ask_to_stop(Termination.LEASE_EXPIRED)

    def _note_late(self, attempt: Attempt) -> None:
        """Say, once, that the handler of this attempt runs on."""
        call, since = attempt.user_call, self._since(attempt)
        if call is None or since < LATE_STOP_S or attempt.fence.lease_id in self._late:
            return
        self._late.add(attempt.fence.lease_id)
        with LinesOf(attempt.name):
            _LOG.warning(
                "%s %s of run %s still runs %.0f s after it was asked to stop (%s)%s",
                call.kind,
                call.path,
                attempt.name.run_id,
                since,
                attempt.stop.reason,
                self._where(call),
            )

    def _note_return(self, attempt: Attempt) -> None:
        """Say that what was said to run on came back; what it brings is discarded."""
        self._late.discard(attempt.fence.lease_id)
        with LinesOf(attempt.name):
            _LOG.warning(
                "step %s of run %s came back %.0f s after it was asked to stop, and its thread is "
                "free again; what it brought is discarded",
                attempt.name.step,
                attempt.name.run_id,
                self._since(attempt),
            )

    def _since(self, attempt: Attempt) -> float:
        told_at = attempt.told_at
        return 0.0 if told_at is None else self._clock.monotonic() - told_at

    def _where(self, call: UserCall) -> str:
        """Return where it is, and what that costs; nothing where it has its own process."""
        at = self._stack_of(call.thread, call.path).origin
        if at is None:
            return ""
        remedy = '; isolation="process" would have killed it' if call.kind == "handler" else ""
        return f", at {at}: it holds a thread of this worker until it returns{remedy}"
