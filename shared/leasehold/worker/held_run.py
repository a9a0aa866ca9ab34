"""A run under a lease of this worker: every write of an attempt goes through here, one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, as_write, on_run
from leasehold.domain.dispatch import Rules
from leasehold.domain.document import DecideDocument, Document, Write
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.manifest import KeptValue, Manifest, Progress, manifest_of, to_document
from leasehold.domain.masks import masked
from leasehold.domain.status import Termination
from leasehold.domain.trace import TraceType, event_of, loss_ref
from leasehold.errors import (
    DocumentExistsError,
    LeaseLostError,
    StoreUnavailableError,
    VersionConflictError,
)
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Documents, Snapshot
from leasehold.worker.outage import outlast
from leasehold.worker.stop import StopSignal

T = TypeVar("T")

#: A renewal is given up after this long; the next beat tries again.
RENEWAL_S: Final = 5.0
#: A handler is stopped this long before its lease can be over: as long as the answer to a renewal
#: may be late, and so the worker's idea of the store's time. A short lease: a sixth of it.
STOP_MARGIN_S: Final = 5.0
_MARGIN_SHARE: Final = 6

#: Never set: whoever waits for it waits in full.
_NEVER: Final = threading.Event()


class HeldRun:
    """Serialises renewals, checkpoints and the settlement of an attempt; one settlement wins.

    It knows the document's version from its last write, so it writes without reading. When
    somebody else changed the document meanwhile, it reads and decides again.

    Attributes:
        manifest: the run as it was last written or read here.
        fence: what each write shows.
        stop: given when the handler should end.
        progress: what the handler last said; stored with the next renewal.
        renew_every: seconds between renewals; None: never.
        renew_at: when the next renewal is due, in monotonic seconds.
        stop_at: when the handler must be stopped unless a renewal succeeds, likewise.
    """

    def __init__(
        self,
        *,
        documents: Documents,
        rules: Rules,
        clock: Clock,
        acquired: Snapshot,
        manifest: Manifest,
    ) -> None:
        lease = manifest.lease
        assert lease is not None  # noqa: S101 - it was acquired a moment ago
        self.manifest = manifest
        self.fence = Fence(lease.lease_id, manifest.fencing_token)
        self.stop = StopSignal()
        self.progress: Progress | None = None
        self._documents = documents
        self._rules = rules
        self._clock = clock
        self._known = acquired
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._settled: Committed[Change] | None = None
        ttl = (lease.expires_at - lease.acquired_at).total_seconds()
        self._answer_by = acquired.monotonic + manifest.dispatch.deadline_s
        self._margin = min(STOP_MARGIN_S, ttl / _MARGIN_SHARE)
        self._held_until = self._end_of_lease()
        self.renew_every = manifest.dispatch.heartbeat_s
        self.renew_at = clock.monotonic() + (self.renew_every or 0.0)

    @property
    def stop_at(self) -> float:
        """When the handler must be stopped unless a renewal succeeds, in monotonic seconds."""
        return self._held_until - self._margin

    @property
    def is_settled(self) -> bool:
        """Whether the attempt is over, or was lost."""
        return self._ended.is_set()

    def wait_settled(self, seconds: float) -> bool:
        """Wait for the end of the attempt; return whether it came."""
        return self._ended.wait(seconds)

    def ask_to_stop(self, reason: Termination) -> None:
        """Ask the handler to end; the first reason stays."""
        self.stop.request(reason)

    def settle(self, transition: Transition) -> Committed[Change]:
        """End the attempt; a second call is answered as the first."""
        return self._persist(transition, ends=True)

    def checkpoint(self, iteration_count: int, partial_results: KeptValue, phase: str) -> None:
        """Keep what the attempt has so far; the lease is renewed with it.

        Raises:
            LeaseLostError: the lease is not held any more; nothing was written.
            StoreUnavailableError: it could not be written while the lease was held.
        """
        save = partial(
            lifecycle.checkpoint,
            rules=self._rules,
            fence=self.fence,
            iteration_count=iteration_count,
            phase=phase,
            partial_results=partial_results,
        )
        self._persist(save)

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
        return outlast(call, now=now, until=lambda: min(latest, self.stop_at), wait=self.stop.wait)

    def fetch(self, call: Callable[[], T]) -> T:
        """Do as `insist`, for at most a lease's length: nothing is lost with the attempt yet."""
        return self.insist(call, patience=self._rules.lease_ttl.total_seconds())

    def renew(self, *, waits: bool = True) -> None:
        """Let the lease run on. A lease that is lost stops the handler.

        A store that does not answer is asked again at the next beat.

        Args:
            waits: for a write that is on its way; False: that write renews the lease itself.
        """
        if not self._writing.acquire(blocking=waits):
            return
        try:
            if self.is_settled:
                return
            self.renew_at = self._clock.monotonic() + (self.renew_every or 0.0)
            beat = partial(
                lifecycle.renew, rules=self._rules, fence=self.fence, progress=self.progress
            )
            try:
                if self.stop.reason is Termination.LEASE_EXPIRED:
                    self._look()
                else:
                    self._write(beat, within=RENEWAL_S)
            except LeaseLostError as error:
                self._lost(error)
            except StoreUnavailableError:
                return
        finally:
            self._writing.release()

    def _persist(self, transition: Transition, *, ends: bool = False) -> Committed[Change]:
        """Write, and ask a store that does not answer again while the lease can still be held.

        The work is done by then, and would be done again.
        """
        give_up_at = self._held_until  # however often it is renewed meanwhile
        try:
            return outlast(
                partial(self._persist_once, transition, ends=ends),
                now=self._clock.monotonic,
                until=lambda: give_up_at,
                wait=_NEVER.wait,  # an attempt that is to stop still says how it ended
            )
        except LeaseLostError as error:
            if self._settled is None:  # else it was released here, and not lost
                self._lost(error)
            raise

    def _persist_once(self, transition: Transition, *, ends: bool) -> Committed[Change]:
        with self._writing:
            if self._settled is not None:
                return self._once_more(self._settled, ends=ends)
            committed = self._write(transition)
            if ends:
                self._settled = committed
                self._ended.set()
            return committed

    def _once_more(self, settled: Committed[Change], *, ends: bool) -> Committed[Change]:
        """Answer a settlement as the first; nothing else may follow it."""
        if ends:
            return settled
        run_id, lease_id = self.manifest.run_id, masked(self.fence.lease_id)
        raise LeaseLostError(lease_id=lease_id, run_id=run_id, known="its attempt is over")

    def _write(self, transition: Transition, within: float | None = None) -> Committed[Change]:
        ref, sent_at = self._known.ref, self._clock.monotonic()
        decide: DecideDocument[Change] = lambda _, now: as_write(transition(self.manifest, now))  # noqa: E731 - the document is the manifest that is known
        try:
            committed = self._documents.transact(ref, decide, if_version=self._known, within=within)
        except VersionConflictError:
            committed = self._documents.transact(ref, on_run(ref.id, transition), within=within)
        if committed.snapshot is not None:
            self._known = committed.snapshot
        self.manifest = committed.answer.manifest
        took = self._clock.monotonic() - sent_at
        self._held_until = self._end_of_lease() - took  # as if it was answered when it was sent
        return committed

    def _look(self) -> None:
        """Learn whether the lease is lost that could not be renewed in time, without renewing it.

        Raises:
            LeaseLostError: it is.
            StoreUnavailableError: nobody says.
        """
        found = self._documents.get(self._known.ref)
        if found is not None:
            held_lease(manifest_of(found.ref.id, found.document), found.read_at, self.fence)

    def _end_of_lease(self) -> float:
        """Return when the lease is over at the latest that is known, in monotonic seconds."""
        lease = self.manifest.lease
        now, monotonic = self._known.read_at, self._known.monotonic
        return monotonic if lease is None else monotonic + (lease.expires_at - now).total_seconds()

    def _lost(self, error: LeaseLostError) -> None:
        """Stop the handler, and leave word of it beside the run, which is not ours any more."""
        self._ended.set()
        if error.details.get("cancelled"):  # the cancellation told how the attempt ended
            self.ask_to_stop(Termination.CANCELLED)
            return
        self.ask_to_stop(Termination.LEASE_EXPIRED)
        try:
            self._documents.transact(
                loss_ref(self.manifest, self.fence.lease_id),
                partial(self._told, error.details),
                within=RENEWAL_S,
            )
        except (StoreUnavailableError, DocumentExistsError):
            return  # it is only told; that nothing was written is what counts

    def _told(self, known: Mapping[str, Any], told: Document | None, now: datetime) -> Write[None]:
        if told is not None:
            return Write(None)
        holder = None if self.manifest.lease is None else self.manifest.lease.holder
        event = event_of(
            self.manifest,
            TraceType.LEASE_LOST,
            now,
            detail=known["known"],
            holder=holder,
            lease_id=self.fence.lease_id,
            fencing_token=self.fence.fencing_token,
        )
        return Write(None, to_document(event))
