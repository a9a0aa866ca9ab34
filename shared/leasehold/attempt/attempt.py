"""One attempt of a step, from its lease to its settlement: the only writer of a leased run.

A worker of this bundle holds one as long as its handler runs (`services/execute_step.py`): the
handler, the renewals of a keeper (`keeper.py`) and a shutdown share it, one write at a time, and
it is settled once. A remote worker opens one with each call (`remote_workers/manage_lease.py`); it
renews its lease itself, and it hears of an outage at once.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from leasehold.attempt.outage import outlast, pause
from leasehold.attempt.phases import PhaseClock
from leasehold.attempt.silence import Silence
from leasehold.attempt.stop import StopSignal
from leasehold.attempt.tally import Tally
from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import UnconfirmedCall
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, deadline_of, ended_at_deadline, held_lease
from leasehold.domain.lifecycle.termination import limit_error
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.manifest_parts import Progress, StackRequest, StepRecord
from leasehold.domain.notes import (
    MadeOutput,
    Notes,
    StackOf,
    TakenStack,
    ThreadStack,
    no_stack,
    progress_without_secrets,
)
from leasehold.domain.redaction import masked
from leasehold.domain.result import Deferred, Result, Stopped
from leasehold.domain.status import Termination
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType, left_once, loss_ref
from leasehold.errors import (
    DocumentExistsError,
    LeaseLostError,
    StoreUnavailableError,
    VersionConflictError,
)
from leasehold.logs.attempt import AttemptName
from leasehold.ports.attempt_engine import AttemptEngine
from leasehold.ports.documents import Committed, KnownRun, Snapshot

T = TypeVar("T")

_LOG: Final = logging.getLogger("leasehold.attempt")

#: A renewal is given up after this long; the next beat tries again.
RENEWAL_TIMEOUT_S: Final = 5.0
#: A handler is stopped this long before its lease can be over: as long as the answer to a renewal
#: may be late, and so the worker's idea of the store's time. A short lease: a sixth of it.
STOP_MARGIN_S: Final = 5.0
_MARGIN_SHARE: Final = 6
#: Progress that has changed is stored this long after the last write, if no beat comes before; an
#: output that gates judge, so long after it was made.
PROGRESS_EVERY_S: Final = 2.0
#: A write without an answer for this time may meet an unavailable store.
SLOW_WRITE_S: Final = 1.0
#: Where the end of an attempt could not be written at its dispatch deadline, it is tried again.
_END_RETRY_S: Final = 1.0
#: The store's time may be this far ahead of the estimate here.
_AHEAD: Final = timedelta(seconds=1)

#: What a worker ends the code in its own threads for.
LIMITS_OF_THREADS: Final = (
    Termination.DISPATCH_DEADLINE_EXCEEDED,
    Termination.SILENCE_LIMIT_EXCEEDED,
)

_MAKING: Final = threading.Lock()
_NO_THREAD: Final = "The system had no thread to renew the lease with."

_SILENT: Final = "The process of the handler did not answer within a second."
_NOT_IN_CODE: Final = (
    "No code of the project is running now: its process is being started, or its result written."
)
_REMOTE: Final = "A remote worker runs the attempt, and it alone knows what that does."


class LimitsOfAttempt(ABC):
    """The limits that the handler of an attempt asks for."""

    @abstractmethod
    def take(self, name: str) -> bool:
        """Take a limit; False: it has no room, and the attempt is to end."""

    @abstractmethod
    def free(self, name: str, retry_after_s: float | None = None) -> None:
        """Free a limit that was taken; its provider takes no more for that long. None: it does."""


class UserCall(NamedTuple):
    """A call of a handler or a gate: which of them, its path, and the thread that waits for it."""

    kind: str
    path: str
    thread: int


class Attempt:
    """A leased attempt; each write is fenced by its lease, and renews or ends it.

    It knows the run from its last write, so it writes without reading. If another process changed
    the run meanwhile, it reads and decides again. Any thread may call.

    Args:
        engine: the parts.
        known: the run as it was read or written with the lease.
        fence: what each write shows.
        patience: how long it waits for a store before its handler begins, in seconds. None: it is
            a remote worker's, which may renew the lease elsewhere: it is lost only once the store
            says so, and not because it is over as far as it is known here.
        stack_of: returns what a thread does.

    Attributes:
        engine: the parts.
        manifest: the run as it was last written or read here.
        fence: what each write shows.
        name: the attempt, as log lines name it.
        ends_at: when the lease is over, unless it is renewed; in monotonic seconds.
        answer_by: the dispatch deadline: the queue does not wait longer; likewise.
        renew_every: seconds between renewals; None: never.
        renew_at: when the next beat is due, in monotonic seconds.
        stop: given when the handler should end.
        told_at: when the handler was asked to stop, in monotonic seconds; None: it was not.
        stop_detail: why, in a sentence; empty: the reason says all.
        is_killed: set by a runner that had to kill the handler.
        outage: what its handler waits for now: a store that is away. None: it waits for none.
        user_call: the call of a handler or a gate that has not returned yet.
        stack_of_process: returns what the handler does in its process; None: it has none now.
        silence: how long its handler has said nothing; None: it may, or it has its own process,
            which the worker that serves it listens to.
        output: what the gates judge now; None: nothing, or there are none.
        slots: what it holds of the limits of its step; None: that has none.
        limits: takes those that its handler asks for; None: its step has none.
        recorded_calls: its `RecordedCalls`, as `recorded_calls_of` makes them; None: not yet.
        phases: how long it takes until its first tool call, and from there to its result.
        unconfirmed_call: a call that a person is to be asked about; None: there is none.
        settled: what ended the attempt; None: nothing has, or it was lost.
        is_settled: whether the attempt is over, or was lost.
    """

    #: What an attempt begins with. Of the class: many have no other value to their end.
    told_at: float | None = None
    stop_detail = ""
    is_killed = False
    outage: StoreUnavailableError | None = None
    user_call: UserCall | None = None
    stack_of_process: Callable[[], ThreadStack] | None = None
    silence: Silence | None = None
    output: MadeOutput | None = None
    slots: list[Any] | None = None
    limits: LimitsOfAttempt | None = None
    recorded_calls: Any = None
    settled: Committed[Change] | None = None
    is_settled = False
    _progress: Progress | None = None
    _tally: Tally | None = None
    _waited: tuple[str, ...] = ()
    unconfirmed_call: UnconfirmedCall | None = None
    _leaves_file = False
    _stores_files = False
    _unpublished: Change | None = None
    _stack: TakenStack | None = None
    _is_overrun = False
    _is_silent = False
    _is_unanswered = False  # a settlement was sent, and may stand
    _sent_at: float | None = None  # when a write was sent that has had no answer so far
    _is_refused = False  # the store was away for the last write

    def __init__(
        self,
        engine: AttemptEngine,
        known: KnownRun,
        fence: Fence,
        *,
        patience: float | None = None,
        stack_of: StackOf = no_stack,
    ) -> None:
        run = known.manifest
        self.engine = engine
        self.manifest = run
        self.fence = fence
        self.ends_at = _end_of_lease(run, known.snapshot)
        self.name = AttemptName(run.run_id, run.position.step, run.position.attempt)
        self.step_type = run.step_type
        self.stop = StopSignal(engine.clock.skip)
        self._snapshot = known.snapshot
        self._is_remote = patience is None
        self._patience = patience or 0.0
        self._stack_of = stack_of
        self._writing = threading.Lock()
        self._awaited: list[threading.Event] = []
        lease, now = run.position.lease, engine.clock.monotonic()
        ttl = (lease.expires_at - lease.acquired_at).total_seconds() if lease else 0.0
        leased_at = self.ends_at - ttl
        self.phases = PhaseClock(leased_at)
        self.answer_by = self._end_at = leased_at + run.position.dispatch.deadline_s
        self.renew_every = run.position.dispatch.heartbeat_s
        self.renew_at = now + (self.renew_every or 0.0)
        self._margin = min(STOP_MARGIN_S, ttl / _MARGIN_SHARE)
        self._progress_at = now + PROGRESS_EVERY_S
        if self._is_remote and (request := self.stack_request):
            self._stack = TakenStack(request, _REMOTE)

    # --- what is kept with the next write ---

    @property
    def notes(self) -> Notes:
        """The notes for the next write."""
        notes = Notes(
            progress=self._progress,
            unconfirmed_call=self.unconfirmed_call,
            leaves_file=self._leaves_file,
            output=self.output,
            stores_files=self._stores_files,
            phases=self.phases.so_far(self.engine.clock.monotonic()),
            stack=self._stack,
            waited=self._waited,
        )
        return notes if self._tally is None else self._tally.added_to(notes)

    @property
    def tally(self) -> Tally:
        """What it has counted; made at first use, as most attempts count nothing."""
        made = self._tally
        if made is None:
            with _MAKING:
                made = self._tally = self._tally or Tally(lambda: self.manifest)
        return made

    @property
    def progress(self) -> Progress | None:
        """What the handler last said; stored with the next write, soon where it has changed."""
        return self._progress

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self._note_sign()
        self._progress = progress_without_secrets(progress)

    def note_output(self, output: MadeOutput) -> None:
        """Note what the gates are about to judge: every end of the attempt keeps it.

        Gates that take longer than `PROGRESS_EVERY_S` have it written before they are done, so that
        it outlives this process as well; quick ones have no write of their own. What a remote
        worker sent is written now: a thread that ends its attempt does not have it.

        Raises:
            LeaseLostError, StoreUnavailableError: as `renew`, of a remote worker's.
        """
        self._progress_at = self.engine.clock.monotonic() + PROGRESS_EVERY_S
        self.output = output
        if self._is_remote:
            self.renew()

    def note_calls(
        self, *, made: int = 0, spared: int = 0, diverged: int = 0, found: int = 0
    ) -> None:
        """Count calls, as its tally does: they are a sign, and that it got further is said soon."""
        self._note_sign()
        if self.tally.note_calls(made=made, spared=spared, diverged=diverged, found=found):
            self._progress_at = min(self._progress_at, self.engine.clock.monotonic())

    def note_waited(self, name: str) -> None:
        """Note that the handler was given the signal of a name: the step has it from now on."""
        if name not in self._waited:
            self._waited = (*self._waited, name)

    def note_temporary_file(self) -> None:
        """Note that a temporary file may be there from now on that the run does not refer to."""
        self._leaves_file = True

    def note_stored_file(self) -> None:
        """Note that a file of the run may be there from now on, which its end is to see to."""
        self._stores_files = True

    # --- writes ---

    def renew(
        self, by: Callable[..., Change] = lifecycle.renew, *, within: float | None = None
    ) -> Change:
        """Let the lease run on, and keep the notes; give up after `within` seconds.

        Args:
            by: the transition of the lifecycle.
            within: None: as long as the store takes.

        Raises:
            LeaseLostError: the lease is not held any more, and nothing was written; or the
                attempt was ended now, because its dispatch deadline is over.
        """
        return self._still_held(self._write(self._noting(by), within).answer)

    def tell_progress(self) -> None:
        """Write now that attempts before this one got further, where their ends are counted.

        The next kill may come before a beat does, and a step without a heartbeat has none.
        """
        if self._is_remote or self._tally is None or not self._tally.is_further:
            return
        with suppress(StoreUnavailableError):  # the next write says so
            self.save(partial(lifecycle.renew))

    def look(self) -> None:
        """Learn whether the lease is lost, without renewing it; LeaseLostError says so."""
        ref = self._snapshot.ref
        if found := self.engine.documents.get(ref):
            held_lease(manifest_of(ref.id, found.document), found.read_at, self.fence)

    def check_held(self) -> None:
        """Raise LeaseLostError where the run, as it is known here, does not have this lease."""
        held_lease(self.manifest, self._snapshot.read_at, self.fence)

    def check_lease(self) -> None:
        """Refuse what is to begin now where the lease may be over; the handler is to end then.

        A process that was frozen goes on with all its threads at once: a thread that makes a
        paid call may be faster than the thread that looks at the clock.

        Raises:
            LeaseLostError: it may be over, or the attempt is.
        """
        self.check_unsettled()
        if self.stop_at <= self.engine.clock.monotonic():
            self.ask_to_stop(Termination.LEASE_EXPIRED)
            self._refuse("it was not renewed in time")

    # --- its end ---

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt; a second call is answered as the first, with an empty change.

        A store that does not answer is asked until the dispatch deadline: the settlement may stand,
        and is answered as the first time, also after the end of the lease: so the store is asked
        where as far as it is known here the lease is over.

        Args:
            ending: as `settlement.ending_of` returns it. The caller publishes the effects.

        Raises:
            LeaseLostError: the lease is not held any more; nothing was written.
            StoreUnavailableError: it could not be committed while the lease could be held.
        """
        return self._persist(partial(self._settle_once, ending), until=self.answer_by)

    @property
    def settlement(self) -> Change | None:
        """How the attempt ended; None: it has not, or it was lost."""
        return None if self.settled is None else self.settled.answer

    def wait_settled(self, seconds: float) -> bool:
        """Wait for the end of the attempt; return whether it came."""
        ended = threading.Event()
        self._awaited.append(ended)
        return self.is_settled or ended.wait(seconds)

    def ask_to_stop(self, reason: Termination, detail: str = "") -> None:
        """Ask the handler to end; the first reason stays, with what it is in a sentence."""
        if self.told_at is None:
            self.told_at, self.stop_detail = self.engine.clock.monotonic(), detail
        self.stop.request(reason)

    def end_before_it_begins(self) -> Result | None:
        """Return how the attempt ends if it must not begin, or None.

        The lease may be over although there was no stop: a process that was frozen goes on
        with all its threads at once.
        """
        reason = self.stop.reason
        if reason is None:
            is_over = self.stop_at <= self.engine.clock.monotonic()
            return Stopped(Termination.LEASE_EXPIRED) if is_over else None
        if reason is Termination.THREAD_UNAVAILABLE:
            return Deferred(reason, _NO_THREAD)
        return Stopped(reason)

    # --- what it waits for ---

    def call(self, kind: str, path: str, code: Callable[..., T], *args: Any) -> T:
        """Return what a handler or a gate returns, however long that takes.

        At the dispatch deadline the attempt is ended without it (`beat`): then it counts as
        failed, and whatever is returned later is discarded.

        Args:
            kind: `handler` or `gate`.
            path: of the called code, `module:function`.
            code: makes the call, given `args`.
            args: likewise.
        """
        self.user_call = UserCall(kind, path, threading.get_ident())
        try:
            return code(*args)
        finally:
            self.user_call = None

    def insist(self, call: Callable[[], T], *, patience: float = math.inf) -> T:
        """Return what `call` returns; a store that is away is asked again while the lease is held.

        It gives up at the dispatch deadline, and early where the attempt is to stop. Of a remote
        worker nothing here waits for a store.

        Args:
            call: reads or writes what the attempt needs; may be made any number of times.
            patience: give up after so many seconds.

        Raises:
            StoreUnavailableError: the store was away for all that time.
        """
        begun = self.engine.clock.monotonic()
        with nullcontext() if self.silence is None else self.silence.waiting():
            try:
                return call()
            except StoreUnavailableError as error:
                outage = error  # what is raised from here on does not come from it
            latest = min(self.answer_by, begun + patience)
            until, wait = lambda: min(latest, self.stop_at), self.stop.wait
            return self._outlast(call, outage, begun, until=until, wait=wait)

    def fetch(self, call: Callable[[], T]) -> T:
        """Do as `insist`, for at most a lease's length: nothing is lost with the attempt yet."""
        return self.insist(call, patience=self._patience)

    # --- for its keeper ---

    @property
    def stack_request(self) -> StackRequest | None:
        """The request for its stack that came with its last write; None: none, or it was taken."""
        lease = self.manifest.position.lease
        request = None if lease is None else lease.stack_request
        is_taken = self._stack is not None and self._stack.request == request
        return None if is_taken else request

    def _take_stack(self) -> None:
        """Take its stack for the next write, where one is asked for: its handler goes on."""
        request = self.stack_request
        if request is None:
            return
        ask, nothing = self.stack_of_process, _SILENT
        stack = ThreadStack() if ask is None else ask()
        if not stack.text and self.stack_of_process is None:  # or its process has just ended
            call, nothing = self.user_call, _NOT_IN_CODE
            stack = stack if call is None else self._stack_of(call.thread, call.path)
        detail = f"It is at {stack.origin}." if stack.origin else nothing
        self._stack = TakenStack(request, detail, stack.text)

    @property
    def stop_at(self) -> float:
        """When the handler must be stopped unless a renewal succeeds, in monotonic seconds."""
        return self.ends_at - self._margin

    @property
    def is_cut_off(self) -> bool:
        """Whether the store is away, or takes so long for a write that it may be."""
        sent_at = self._sent_at
        is_slow = sent_at is not None and self.engine.clock.monotonic() - sent_at >= SLOW_WRITE_S
        return self._is_refused or is_slow

    @property
    def is_due(self) -> bool:
        """Whether to renew now: a beat is due, or progress that has changed may be stored.

        Without a heartbeat nothing is renewed, and progress waits for a write that comes anyway.
        """
        if self.renew_every is None:
            return False
        if self.stack_request is not None:
            return True
        now = self.engine.clock.monotonic()
        return self.renew_at <= now or (self._progress_at <= now and self._has_news())

    @property
    def is_overdue(self) -> bool:
        """Whether user code is at work at the dispatch deadline, and is to be ended now.

        What is only being settled is not; and a shutdown remains an interruption, however late.
        """
        if self.user_call is None or self.stop.reason is Termination.INSTANCE_SHUTDOWN:
            return False
        return self._end_at <= self.engine.clock.monotonic()

    def listen(self) -> None:
        """Have its handler end, if that runs in a thread here and has said nothing for too long."""
        silence, now = self.silence, self.engine.clock.monotonic()
        waits = self.outage is not None or self.is_cut_off
        if silence is not None and silence.listen(now, waits=waits):
            self.silence, self._is_silent, self._end_at = None, True, now

    def beat(self, *, waits: bool = True) -> None:
        """Let the lease run on, until the dispatch deadline: then end what is still at work.

        A lease that is lost stops the handler. A store that does not answer is asked again at the
        next beat, or when progress may be stored again.

        Args:
            waits: for a write that is on its way; False: that write renews the lease itself.
        """
        self._take_stack()
        if not self._writing.acquire(blocking=waits):
            return
        try:
            if self.is_settled:
                return
            now = self.engine.clock.monotonic()
            self.renew_at, self._progress_at = (
                now + (self.renew_every or 0.0),
                now + PROGRESS_EVERY_S,
            )
            if self.is_overdue:
                self.end_at_limit()
            elif self.stop.reason is Termination.LEASE_EXPIRED:
                self.look()
            elif now < self.answer_by:
                self.renew(within=RENEWAL_TIMEOUT_S)
        except LeaseLostError as error:
            if not self._is_unanswered:  # else the settlement may stand; it is asked for again
                self._lost(error)
        except StoreUnavailableError:
            return
        finally:
            self._writing.release()
            ended, self._unpublished = self._unpublished, None
            if ended is not None:  # its own worker may be at work forever
                self.engine.publish_or_leave(ended)

    def end_at_limit(self) -> None:
        """End the attempt as failed, with what its user code does now, and ask that to stop.

        The limit is the dispatch deadline, or that of a handler's silence. Where the store is away,
        it is tried again. The thread that is at work may go on forever: whatever it brings later is
        refused, and the effects are published in its place.
        """
        self._end_at = self.engine.clock.monotonic() + _END_RETRY_S
        call = self.user_call
        if call is None:  # it came back this very moment, and is about to settle
            return
        stack = self._stack_of(call.thread, call.path)
        at_deadline, of_silence = LIMITS_OF_THREADS
        reason = of_silence if self._is_silent else at_deadline
        ending = partial(
            lifecycle.exceed_limit,
            rules=self.engine.dispatch_rules(),
            fence=self.fence,
            reason=reason,
            error=replace(limit_error(self.manifest, reason), origin=stack.origin),
            stacks=stack.text,
            notes=self.notes,
        )
        try:
            self.settled = self._write(ending, RENEWAL_TIMEOUT_S)
            self._unpublished = self.settled.answer
            self._end()
        finally:
            self.ask_to_stop(reason)

    # --- how it writes ---

    def save(self, transition: Callable[..., Change], kept: str = "") -> Manifest:
        """Write what keeps the lease, and return the run as it was known before.

        Args:
            transition: of the domain's lifecycle.
            kept: said where that ends the attempt.
        """
        with self._writing:
            self.check_unsettled()
            self._progress_at = self.engine.clock.monotonic() + PROGRESS_EVERY_S
            before = self.manifest
            self._still_held(self._write(self._noting(transition)).answer, kept)
            return before

    def _noting(self, transition: Callable[..., Change]) -> Transition:
        """Return a transition of the lifecycle with what each has that keeps the lease."""
        rules, notes = self._renewal_rules(), self.notes
        return partial(transition, rules=rules, fence=self.fence, notes=notes)

    def store_time(self) -> datetime:
        """Return the store's time now, as far as it is known here."""
        passed = self.engine.clock.monotonic() - self._snapshot.monotonic
        return self._snapshot.read_at + timedelta(seconds=passed)

    def _renewal_rules(self) -> Rules:
        """Return the rules for a write that dispatches the next attempt at the deadline alone."""
        run = self.manifest
        at_latest = self.store_time() + _AHEAD
        is_late = (
            run.position.lease is not None and deadline_of(run, run.position.lease) <= at_latest
        )
        return self.engine.dispatch_rules() if is_late else self.engine.rules

    def _still_held(self, change: Change, kept: str = "") -> Change:
        """Return a change that keeps the lease; publish one that ends the attempt, and say so."""
        if change.manifest.position.lease is not None:
            return change
        self.engine.publish_or_leave(change)
        raise ended_at_deadline(change.manifest, self.fence, kept=kept)

    def _write(
        self, transition: Transition, within: float | None = None, *, is_end: bool = False
    ) -> Committed[Change]:
        """Write what follows from the run as it is known here, or else as it is stored.

        Only the store knows whether an end was written before, or a remote worker's lease renewed.
        """
        self._sent_at = sent_at = self.engine.clock.monotonic()
        known = KnownRun(self.manifest, self._snapshot)
        try:
            committed = self.engine.commit(self.name.run_id, transition, known=known, within=within)
        except StoreUnavailableError:
            self._sent_at, self._is_refused = None, True
            raise
        except VersionConflictError:
            return self._write_anew(transition, within)
        except LeaseLostError:
            if not (is_end or self._is_remote):
                self._sent_at = None  # it was answered
                raise
            return self._write_anew(transition, within)
        return self._written(committed, sent_at)

    def _write_anew(self, transition: Transition, within: float | None = None) -> Committed[Change]:
        """Write what follows from the run as it is stored, and not as it is known here."""
        sent_at = self.engine.clock.monotonic()
        committed = self.engine.commit(self.name.run_id, transition, within=within)
        return self._written(committed, sent_at)

    def _written(self, committed: Committed[Change], sent_at: float) -> Committed[Change]:
        self.manifest = run = committed.answer.manifest
        self._snapshot = committed.snapshot or self._snapshot
        self._sent_at, self._is_refused = None, False
        took = self.engine.clock.monotonic() - sent_at
        self.ends_at = _end_of_lease(run, self._snapshot) - took  # as if answered when it was sent
        return committed

    def _note_sign(self) -> None:
        """Note that its handler says something."""
        if self.silence is not None:
            self.silence.hear()

    def persist(self, write: Callable[[], T]) -> T:
        """Do as `_persist`; its handler waits for the write, and says nothing meanwhile."""
        with nullcontext() if self.silence is None else self.silence.waiting():
            return self._persist(write)

    def _persist(self, write: Callable[[], T], *, until: float = -math.inf) -> T:
        """Write, and ask a store that does not answer again while the lease can still be held.

        The work is done by then, and would be done again.

        Args:
            write: what is to be written.
            until: ask at least until then, in monotonic seconds.
        """
        begun = self.engine.clock.monotonic()
        give_up_at = max(until, self.ends_at)  # however often it is renewed meanwhile
        try:
            try:
                return write()
            except StoreUnavailableError as error:
                outage = error  # as above
            wait = partial(pause, self.engine.clock)  # one that is to stop still says how it ended
            return self._outlast(write, outage, begun, until=lambda: give_up_at, wait=wait)
        except LeaseLostError as error:
            if self.settled is None and not self._is_remote:  # else it was released here
                self._lost(error)
            raise

    def _outlast(
        self,
        call: Callable[[], T],
        outage: StoreUnavailableError,
        begun: float,
        *,
        until: Callable[[], float],
        wait: Callable[[float], object],
    ) -> T:
        """Do as `outlast`; meanwhile it is known here that a store is away."""
        if self._is_remote:
            raise outage
        try:
            return outlast(
                call,
                outage,
                begun,
                now=self.engine.clock.monotonic,
                until=until,
                wait=wait,
                report=self._note_outage,
            )
        finally:
            self.outage = None

    def _note_outage(self, outage: StoreUnavailableError) -> None:
        self.outage = outage

    def _settle_once(self, ending: Transition) -> Committed[Change]:
        with self._writing:
            first = self.settled
            if first is not None:
                return first._replace(answer=first.answer._replace(changed=False))
            try:
                self.settled = self._write(ending, is_end=True)
            except StoreUnavailableError:
                self._is_unanswered = True
                raise
            self._end()
            return self.settled

    def _end(self) -> None:
        self.is_settled = True
        for ended in self._awaited:
            ended.set()

    @property
    def _record(self) -> StepRecord:
        return self.manifest.steps[self.name.step]

    def _has_news(self) -> bool:
        """Return whether there is something that is not stored yet: progress, spend, an output."""
        record = self._record
        is_made = self.output is not None and self.output.value != record.kept_output
        has_counted = self._tally is not None and self._tally.has_news
        return is_made or has_counted or self._progress not in (None, record.progress)

    def check_unsettled(self) -> None:
        """Refuse what a handler does that goes on after its attempt was settled."""
        self._note_sign()
        if self.settled is not None:
            self._refuse("its attempt is over")

    def _refuse(self, known: str) -> NoReturn:
        lease_id = masked(self.fence.lease_id)
        raise LeaseLostError(lease_id=lease_id, run_id=self.name.run_id, known=known)

    def _lost(self, error: LeaseLostError) -> None:
        """Stop the handler, and record it beside the run, which may tell of it already."""
        self._end()
        self._is_overrun |= bool(error.details.get("overran"))
        if self._is_overrun:
            self.ask_to_stop(Termination.DISPATCH_DEADLINE_EXCEEDED)
            return
        if error.details.get("cancelled"):  # the cancellation has recorded how it ended
            self.ask_to_stop(Termination.CANCELLED)
            return
        self.ask_to_stop(Termination.LEASE_EXPIRED)
        if not self._is_unanswered:  # else it is unknown whether it was lost, or settled before
            self._trace_loss(error)

    def _trace_loss(self, error: LeaseLostError) -> None:
        """Record beside the run, which is not ours any more, that its lease was lost."""
        ref, run = loss_ref(self.manifest, self.fence.lease_id), self.manifest
        self.engine.telemetry.lease_lost(run)

        loss = left_once(
            run,
            TraceType.LEASE_LOST,
            detail=error.details["known"],
            holder=None if run.position.lease is None else run.position.lease.holder,
            lease_id=self.fence.lease_id,
            fencing_token=self.fence.fencing_token,
        )
        with suppress(StoreUnavailableError, DocumentExistsError):  # nothing was written: it counts
            self.engine.documents.transact(ref, loss, within=RENEWAL_TIMEOUT_S)


def _end_of_lease(run: Manifest, snapshot: Snapshot) -> float:
    """Return when the lease is over at the latest that is known, in monotonic seconds."""
    if run.position.lease is None:
        return snapshot.monotonic
    return snapshot.monotonic + (run.position.lease.expires_at - snapshot.read_at).total_seconds()
