"""A run under a lease of this worker: every write of an attempt goes through here, one by one."""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, as_write, on_run
from leasehold.domain.dispatch import Rules
from leasehold.domain.document import DecideDocument
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, Progress
from leasehold.errors import LeaseLostError, StoreUnavailableError, VersionConflictError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Documents, Snapshot

#: The waits between two tries to settle; they double.
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0


class HeldRun:
    """Serialises renewals and the settlement of one attempt; the first settlement wins.

    It knows the document's version from its last write, so it writes without reading. When
    somebody else changed the document meanwhile, it reads and decides again.

    Attributes:
        manifest: the run as it was last written or read here.
        fence: what each write shows.
        stop: set when the handler should end.
        progress: what the handler last said; stored with the next renewal.
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
        assert manifest.lease is not None  # noqa: S101 - it was acquired a moment ago
        self.manifest = manifest
        self.fence = Fence(manifest.lease.lease_id, manifest.fencing_token)
        self.stop = threading.Event()
        self.stop_reason: str | None = None
        self.progress: Progress | None = None
        self._documents = documents
        self._rules = rules
        self._clock = clock
        self._known = acquired
        self._writing = threading.Lock()
        self._settled: Committed[Change] | None = None
        self._held_until = self._end_of_lease()
        self.renew_every = manifest.dispatch.heartbeat_s
        self.renew_at = clock.monotonic() + (self.renew_every or 0.0)

    def ask_to_stop(self, reason: str) -> None:
        """Ask the handler to end; the first reason stays."""
        self.stop_reason = self.stop_reason or reason
        self.stop.set()

    def settle(self, transition: Transition) -> Committed[Change]:
        """End the attempt; a second call is answered as the first.

        A store that does not answer is asked again while the lease can still be held: the work
        is done, and would be done again.
        """
        wait = _FIRST_WAIT_S
        while True:
            try:
                with self._writing:
                    if self._settled is None:
                        self._settled = self._write(transition)
                    return self._settled
            except StoreUnavailableError:
                if self._clock.monotonic() + wait > self._held_until:
                    raise
            threading.Event().wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def renew(self) -> None:
        """Let the lease run on. A lease that is lost stops the handler.

        A store that does not answer is asked again at the next beat.
        """
        with self._writing:
            if self._settled is not None or self.stop_reason == "lease_lost":
                return
            self.renew_at = self._clock.monotonic() + (self.renew_every or 0.0)
            beat = partial(
                lifecycle.renew, rules=self._rules, fence=self.fence, progress=self.progress
            )
            try:
                self._write(beat)
            except LeaseLostError:
                self.ask_to_stop("lease_lost")
            except StoreUnavailableError:
                return

    def _end_of_lease(self) -> float:
        """Return when the lease is over at the latest that is known, in monotonic seconds."""
        lease = self.manifest.lease
        now, monotonic = self._known.read_at, self._known.monotonic
        return monotonic if lease is None else monotonic + (lease.expires_at - now).total_seconds()

    def _write(self, transition: Transition) -> Committed[Change]:
        ref = self._known.ref
        decide: DecideDocument[Change] = lambda _, now: as_write(transition(self.manifest, now))  # noqa: E731 - the document is the manifest that is known
        try:
            committed = self._documents.transact(ref, decide, if_version=self._known)
        except VersionConflictError:
            committed = self._documents.transact(ref, on_run(ref.id, transition))
        if committed.snapshot is not None:
            self._known = committed.snapshot
        self.manifest = committed.answer.manifest
        self._held_until = self._end_of_lease()
        return committed
