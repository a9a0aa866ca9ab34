"""An attempt that this worker holds, as its threads share it: one write at a time, settled once."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn, TypeVar

from leasehold.domain.change import Change, Transition
from leasehold.domain.kept_work import CallResult, Checkpoint
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.masks import masked
from leasehold.domain.notes import MadeOutput, Notes, progress_without_secrets
from leasehold.domain.result import Deferred, Result, Stopped
from leasehold.domain.status import Termination
from leasehold.errors import LeaseLostError, StoreUnavailableError
from leasehold.logs.attempt import AttemptName
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed
from leasehold.ports.lease_keeper import LeasedAttempt
from leasehold.worker.attempt_notes import AttemptNotes
from leasehold.worker.flag import Flag
from leasehold.worker.outage import outlast
from leasehold.worker.stop import StopSignal
from leasehold.worker.thread_stacks import UserCall, stack_of

T = TypeVar("T")

_LOG: Final = logging.getLogger("leasehold.held_attempt")

#: A renewal is given up after this long; the next beat tries again.
RENEWAL_S: Final = 5.0
#: A handler is stopped this long before its lease can be over: as long as the answer to a renewal
#: may be late, and so the worker's idea of the store's time. A short lease: a sixth of it.
STOP_MARGIN_S: Final = 5.0
_MARGIN_SHARE: Final = 6
#: Progress that has changed is stored this long after the last write, if no beat comes before; an
#: output that gates judge, so long after it was made.
PROGRESS_S: Final = 2.0

_NO_THREAD: Final = "The system had no thread to renew the lease with."

#: Where the end of an attempt could not be written at its dispatch deadline, it is tried again.
_RETRY_S: Final = 1.0


class HeldAttempt:
    """Shares an attempt between its handler, its renewals and a shutdown; one settlement wins.

    Args:
        attempt: what writes.
        clock: monotonic seconds.
        patience: seconds for which `fetch` asks a store that is away.

    Attributes:
        stop: given when the handler should end.
        fence: what each write shows.
        name: the attempt, as log lines name it.
        told_at: when the handler was asked to stop, in monotonic seconds; None: it was not.
        stop_detail: why, in a sentence; empty: the reason says all.
        is_killed: set by a runner that had to kill the handler.
        outage: what its handler waits for now: a store that is away. None: it waits for none.
        renew_every: seconds between renewals; None: never.
        renew_at: when the next beat is due, in monotonic seconds.
    """

    def __init__(self, attempt: LeasedAttempt, clock: Clock, patience: float) -> None:
        manifest = attempt.manifest
        lease = manifest.lease
        assert lease is not None  # noqa: S101 - it was acquired a moment ago
        self.fence: Fence = attempt.fence
        self.stop = StopSignal(clock.skip)
        self._notes = AttemptNotes(manifest.steps[manifest.current_step])
        self._attempt = attempt
        self._clock = clock
        self._patience = patience
        self._never = StopSignal(clock.skip)  # whoever waits for it waits in full
        self._writing = threading.Lock()
        self._ended = Flag()
        self._settled: Committed[Change] | None = None
        self._in_call: UserCall | None = None
        self._unpublished: Change | None = None
        self._is_overrun = False
        self._is_unanswered = False  # a settlement was sent, and may stand
        self.name = AttemptName(manifest.run_id, manifest.current_step, manifest.attempt)
        self.told_at: float | None = None
        self.stop_detail = ""
        self.is_killed = False
        self.outage: StoreUnavailableError | None = None
        ttl = (lease.expires_at - lease.acquired_at).total_seconds()
        self._margin = min(STOP_MARGIN_S, ttl / _MARGIN_SHARE)
        now = clock.monotonic()
        self._answer_by = self._end_at = attempt.ends_at - ttl + manifest.dispatch.deadline_s
        self.renew_every = manifest.dispatch.heartbeat_s
        self.renew_at = now + (self.renew_every or 0.0)
        self._progress_at = now + PROGRESS_S

    @property
    def manifest(self) -> Manifest:
        """The run as it was last written or read under the lease."""
        return self._attempt.manifest

    @property
    def notes(self) -> Notes:
        """What is to be kept with the next write."""
        return self._notes.value

    @property
    def progress(self) -> Progress | None:
        """What the handler last said; stored with the next write, soon where it has changed."""
        return self._notes.progress

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self._notes.progress = progress_without_secrets(progress)

    def note_output(self, output: MadeOutput) -> None:
        """Note what the gates are about to judge: every end of the attempt keeps it.

        Gates that take longer than `PROGRESS_S` have it written before they are done, so that it
        outlives this process as well; quick ones have no write of their own.
        """
        self._progress_at = self._clock.monotonic() + PROGRESS_S
        self._notes.output = output

    @property
    def answer_by(self) -> float:
        """The dispatch deadline: nobody listens after it; in monotonic seconds."""
        return self._answer_by

    @property
    def ends_at(self) -> float:
        """When the lease is over, unless it is renewed; in monotonic seconds."""
        return self._attempt.ends_at

    @property
    def stop_at(self) -> float:
        """When the handler must be stopped unless a renewal succeeds, in monotonic seconds."""
        return self.ends_at - self._margin

    @property
    def is_settled(self) -> bool:
        """Whether the attempt is over, or was lost."""
        return self._ended.is_set()

    @property
    def user_call(self) -> UserCall | None:
        """The call of a handler or a gate that has not returned yet."""
        return self._in_call

    @property
    def is_due(self) -> bool:
        """Whether to renew now: a beat is due, or progress that has changed may be stored.

        Without a heartbeat nothing is renewed, and progress waits for a write that comes anyway.
        """
        if self.renew_every is None:
            return False
        now = self._clock.monotonic()
        return self.renew_at <= now or (self._progress_at <= now and self._has_news())

    def _has_news(self) -> bool:
        return self._notes.is_news(self.manifest.steps[self.manifest.current_step])

    @property
    def is_overdue(self) -> bool:
        """Whether user code is at work at the dispatch deadline, and is to be ended now.

        What is only being settled is not; and a shutdown remains an interruption, however late.
        """
        if self._in_call is None or self.stop.reason is Termination.INSTANCE_SHUTDOWN:
            return False
        return self._end_at <= self._clock.monotonic()

    @property
    def settlement(self) -> Change | None:
        """How the attempt ended; None: it has not, or it was lost."""
        return None if self._settled is None else self._settled.answer

    def wait_settled(self, seconds: float) -> bool:
        """Wait for the end of the attempt; return whether it came."""
        return self._ended.wait(seconds)

    def ask_to_stop(self, reason: Termination, detail: str = "") -> None:
        """Ask the handler to end; the first reason stays, with what it is in a sentence."""
        if self.told_at is None:
            self.told_at, self.stop_detail = self._clock.monotonic(), detail
        self.stop.request(reason)

    def end_handler(self) -> None:
        """Have the handler ended by force, where that can be done: it was asked to stop before."""
        self.stop.force()

    def end_before_it_begins(self) -> Result | None:
        """Return how the attempt ends if it must not begin, or None.

        The lease may be over although nobody asked for a stop: a process that was frozen goes on
        with all its threads at once.
        """
        reason = self.stop.reason
        if reason is Termination.THREAD_UNAVAILABLE:
            return Deferred(reason, _NO_THREAD)
        if reason is None and self.stop_at <= self._clock.monotonic():
            reason = Termination.LEASE_EXPIRED
        return None if reason is None else Stopped(reason)

    def check_lease(self) -> None:
        """Refuse what is to begin now where the lease may be over; the handler is to end then.

        A process that was frozen goes on with all its threads at once: whoever makes a call that
        is paid for may be faster than whoever looks at the clock.

        Raises:
            LeaseLostError: it may be over, or the attempt is.
        """
        self._check_unsettled()
        if self.stop_at <= self._clock.monotonic():
            self.ask_to_stop(Termination.LEASE_EXPIRED)
            self._refuse("it was not renewed in time")

    def call(self, user_code: Callable[[], T], kind: str, path: str) -> T:
        """Return what user code returns; `renew` ends the attempt at the dispatch deadline."""
        self._in_call = UserCall(kind, path, threading.get_ident())
        try:
            return user_code()
        finally:
            self._in_call = None

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt; a second call is answered as the first, with a change that is none.

        A store that does not answer is asked until the dispatch deadline: the settlement may stand,
        and is answered after the end of the lease as before.
        """
        return self._persist(partial(self._settle_once, ending), until=self._answer_by)

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep what the attempt has so far, JSON text; the lease is renewed with it.

        Raises:
            InvalidRequestError: it is not JSON, or goes back behind this attempt's last.
            LeaseLostError: the lease is not held any more; nothing was written.
            StoreUnavailableError: it could not be written while the lease was held.
        """
        self._check_unsettled()  # before a file is stored
        kept = self._attempt.new_checkpoint(iteration_count, phase, results)
        try:
            if kept.leaves_file:
                self._notes.note_file()
            self.insist(kept.store)
            self._persist(partial(self._write, lambda: kept.record(self.notes)))
        finally:
            kept.tidy_up()

    def reject_checkpoint(self, rejected: Checkpoint, why: str) -> None:
        """Drop a checkpoint that cannot be used, and say so in the run; raises as `checkpoint`."""
        _LOG.warning(
            "run %s, attempt %s of step %s begins at the beginning, its checkpoint is rejected: %s",
            *(self.name.run_id, self.name.attempt, self.name.step, why),
        )
        reject = partial(self._attempt.reject_checkpoint, rejected, why, self.notes)
        self._persist(partial(self._write, reject))

    def record_call(self, call: CallResult, in_place_of: str | None = None) -> None:
        """Record the result of a call that was made once; the lease is renewed with it.

        Args:
            call: the result, JSON text.
            in_place_of: the reference of the key's result, where that was found to be unreadable.

        Raises:
            TooManyCallsError: there is no room for it.
            LeaseLostError, StoreUnavailableError: as `checkpoint`.
        """
        self._check_unsettled()  # before a file is stored
        write = self._attempt.new_call(call, in_place_of)
        is_recorded = False
        try:
            while not is_recorded:
                if write.leaves_file:
                    self._notes.note_file()
                self.insist(write.store)
                record = partial(write.record, self.notes)
                is_recorded = self._persist(partial(self._write, record))
        finally:
            write.tidy_up()

    def note_stored_file(self) -> None:
        """Note that a file of the run may be there from now on, which its end is to see to."""
        self._notes.note_stored_file()

    def note_spared_call(self) -> None:
        """Count a call that its recorded result has spared."""
        self._notes.count_spared_call()

    def insist(self, call: Callable[[], T], *, patience: float | None = None) -> T:
        """Return what `call` returns; a store that is away is asked again while the lease is held.

        It gives up at the dispatch deadline, and early where the attempt is to stop.

        Args:
            call: reads or writes what the attempt needs; may be made any number of times.
            patience: give up after so many seconds; None: work is done by then, so not before.

        Raises:
            StoreUnavailableError: the store was away for all that time.
        """
        now = self._clock.monotonic
        latest = self._answer_by if patience is None else now() + patience
        return self._outlast(call, until=lambda: min(latest, self.stop_at), wait=self.stop.wait)

    def fetch(self, call: Callable[[], T]) -> T:
        """Do as `insist`, for at most a lease's length: nothing is lost with the attempt yet."""
        return self.insist(call, patience=self._patience)

    def renew(self, *, waits: bool = True) -> None:
        """Let the lease run on, until the dispatch deadline: then end what is still at work.

        A lease that is lost stops the handler. A store that does not answer is asked again at the
        next beat, or when progress may be stored again.

        Args:
            waits: for a write that is on its way; False: that write renews the lease itself.
        """
        if not self._writing.acquire(blocking=waits):
            return
        try:
            if self.is_settled:
                return
            now = self._clock.monotonic()
            self.renew_at, self._progress_at = now + (self.renew_every or 0.0), now + PROGRESS_S
            if self.is_overdue:
                self._end_at_deadline()
            elif self.stop.reason is Termination.LEASE_EXPIRED:
                self._attempt.look()
            elif now < self._answer_by:
                self._attempt.renew(self.notes, within=RENEWAL_S)
        except LeaseLostError as error:
            if not self._is_unanswered:  # else the settlement may stand; it is asked for again
                self._lost(error)
        except StoreUnavailableError:
            return
        finally:
            self._writing.release()
            self._publish_end()

    def _persist(self, write: Callable[[], T], *, until: float = -math.inf) -> T:
        """Write, and ask a store that does not answer again while the lease can still be held.

        The work is done by then, and would be done again.

        Args:
            write: what is to be written.
            until: ask at least until then, in monotonic seconds.
        """
        give_up_at = max(until, self._attempt.ends_at)  # however often it is renewed meanwhile
        try:
            wait = self._never.wait  # an attempt that is to stop still says how it ended
            return self._outlast(write, until=lambda: give_up_at, wait=wait)
        except LeaseLostError as error:
            if self._settled is None:  # else it was released here, and not lost
                self._lost(error)
            raise

    def _outlast(
        self, call: Callable[[], T], until: Callable[[], float], wait: Callable[[float], bool]
    ) -> T:
        """Do as `outlast`; meanwhile it is known here that a store is away."""
        now = self._clock.monotonic
        return outlast(call, now=now, until=until, wait=wait, report=self._note_outage)

    def _note_outage(self, outage: StoreUnavailableError | None) -> None:
        self.outage = outage

    def _settle_once(self, ending: Transition) -> Committed[Change]:
        with self._writing:
            if self._settled is None:
                try:
                    self._settled = self._attempt.settle(ending)
                except StoreUnavailableError:
                    self._is_unanswered = True
                    raise
                self._ended.set()
                return self._settled
            first = self._settled
            return replace(first, answer=replace(first.answer, changed=False))

    def _end_at_deadline(self) -> None:
        """End the attempt as failed, with what its user code does now, and ask that to stop.

        Where the store is away, it is tried again. The thread that is at work may go on for ever:
        whatever it brings later is refused, and what is owed is published in its place.
        """
        self._end_at = self._clock.monotonic() + _RETRY_S
        call = self._in_call
        if call is None:  # it came back this very moment, and is about to settle
            return
        stack = stack_of(call.thread, call.path)
        try:
            self._settled = self._attempt.end_at_deadline(
                stack.text, stack.origin, self.notes, within=RENEWAL_S
            )
            self._unpublished = self._settled.answer
            self._ended.set()
        finally:
            self.ask_to_stop(Termination.DISPATCH_DEADLINE_EXCEEDED)

    def _publish_end(self) -> None:
        ended, self._unpublished = self._unpublished, None
        if ended is not None:
            self._attempt.publish(ended)

    def _write(self, write: Callable[[], T]) -> T:
        """Write, unless the attempt was settled before."""
        with self._writing:
            self._check_unsettled()
            self._progress_at = self._clock.monotonic() + PROGRESS_S
            return write()

    def _check_unsettled(self) -> None:
        """Refuse what a handler does that goes on after its attempt was settled."""
        if self._settled is not None:
            self._refuse("its attempt is over")

    def _refuse(self, known: str) -> NoReturn:
        run_id, lease_id = self.manifest.run_id, masked(self.fence.lease_id)
        raise LeaseLostError(lease_id=lease_id, run_id=run_id, known=known)

    def _lost(self, error: LeaseLostError) -> None:
        """Stop the handler, and record it beside the run, which may tell of it already."""
        self._ended.set()
        self._is_overrun |= bool(error.details.get("overran"))
        if self._is_overrun:
            self.ask_to_stop(Termination.DISPATCH_DEADLINE_EXCEEDED)
            return
        if error.details.get("cancelled"):  # the cancellation has recorded how it ended
            self.ask_to_stop(Termination.CANCELLED)
            return
        self.ask_to_stop(Termination.LEASE_EXPIRED)
        if not self._is_unanswered:  # else nobody can tell whether it was lost, or settled before
            self._attempt.trace_loss(error, within=RENEWAL_S)
