"""The lease keeper port: what renews the leases of this worker, and shares its attempts safely.

The attempt itself, what is written under its lease, is `services/attempt.py`. A keeper adds what
takes threads: it renews in time, lets one thread write at a time, and stops handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from leasehold.domain.change import Change, Transition
from leasehold.domain.kept_work import CallResult, Checkpoint
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, MadeOutput, Notes
from leasehold.domain.status import Termination
from leasehold.errors import LeaseLostError
from leasehold.ports.documents import Committed

T = TypeVar("T")


class CheckpointWrite(Protocol):
    """A checkpoint on its way: three steps, of which only the second is a write of the attempt."""

    @property
    def leaves_file(self) -> bool:
        """Whether `store` makes a temporary file: it may be there, and nobody know of it."""
        ...

    def store(self) -> None:
        """Store what the run has no room for; StoreUnavailableError: call it again."""
        ...

    def record(self, notes: Notes = NO_NOTES) -> None:
        """Have the run refer to it, and keep the notes; that renews the lease.

        Raises:
            InvalidRequestError: it goes back behind this attempt's last one.
            LeaseLostError, StoreUnavailableError: as all writes.
        """
        ...

    def tidy_up(self) -> None:
        """Delete the file that the run does not refer to, or no more; call it in any case."""
        ...


class CallWrite(Protocol):
    """The result of a call on its way; only `record` is a write of the attempt."""

    @property
    def leaves_file(self) -> bool:
        """Whether `store` makes a temporary file: it may be there, and nobody know of it."""
        ...

    def store(self) -> None:
        """Store what the run has no room for; StoreUnavailableError: call it again."""
        ...

    def record(self, notes: Notes = NO_NOTES) -> bool:
        """Have the run keep it, and the notes; that renews the lease.

        Returns:
            False: the run has no room for it. Store it, and record it again.

        Raises:
            TooManyCallsError: the run has no room for a reference to it either.
            LeaseLostError, StoreUnavailableError: as all writes.
        """
        ...

    def tidy_up(self) -> None:
        """Delete the file that the run does not refer to; call it in any case."""
        ...


class LeasedAttempt(Protocol):
    """An attempt as its keeper uses it; no two writes at the same time.

    Each that writes raises LeaseLostError where the lease is not held any more, and
    StoreUnavailableError where the store is not known to have written.
    """

    @property
    def manifest(self) -> Manifest:
        """The run as it was last written or read under the lease."""
        ...

    @property
    def fence(self) -> Fence:
        """What each write shows."""
        ...

    @property
    def ends_at(self) -> float:
        """When the lease is over, unless it is renewed; in monotonic seconds."""
        ...

    def renew(self, notes: Notes = NO_NOTES, *, within: float | None = None) -> object:
        """Let the lease run on, and keep the notes; give up after `within` seconds."""
        ...

    def look(self) -> None:
        """Learn whether the lease is lost, without renewing it."""
        ...

    def new_checkpoint(self, iteration_count: int, phase: str, results: str) -> CheckpointWrite:
        """Begin a checkpoint; InvalidRequestError: the results are not JSON."""
        ...

    def reject_checkpoint(self, rejected: Checkpoint, why: str, notes: Notes = NO_NOTES) -> object:
        """Drop a checkpoint that cannot be used, keep the notes, and renew the lease."""
        ...

    def new_call(self, call: CallResult, in_place_of: str | None = None) -> CallWrite:
        """Begin to record the result of a call made once, JSON text.

        Args:
            call: the result.
            in_place_of: the reference of the key's result, where that was found to be unreadable.
        """
        ...

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt."""
        ...

    def end_at_deadline(
        self, stacks: str, origin: str | None, notes: Notes, *, within: float
    ) -> Committed[Change]:
        """End the attempt, whose dispatch deadline is over, as failed; give up `within` seconds.

        Args:
            stacks: what it does, frame by frame.
            origin: where in the user's code that is.
            notes: what is kept with it.
            within: seconds.
        """
        ...

    def publish(self, change: Change) -> None:
        """Publish what a change of the attempt owes, in place of a worker that may never do so."""
        ...

    def trace_loss(self, error: LeaseLostError, *, within: float) -> None:
        """Record beside the run that the lease was lost, if that can be done `within` seconds."""
        ...


class RunningAttempt(Protocol):
    """An attempt as far as its result depends on it."""

    @property
    def notes(self) -> Notes:
        """What is to be kept with its end."""
        ...

    def note_output(self, output: MadeOutput) -> None:
        """Note what the gates are about to judge: it is kept, however the attempt ends."""
        ...

    @property
    def stop_detail(self) -> str:
        """Why it was asked to stop, in a sentence; empty: the reason says all."""
        ...

    @property
    def is_killed(self) -> bool:
        """Whether its handler had to be killed."""
        ...

    @property
    def manifest(self) -> Manifest:
        """The run as it was last written or read under the lease."""
        ...

    @property
    def fence(self) -> Fence:
        """What each write under the lease shows."""
        ...

    def insist(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; a store that is away may be asked again meanwhile.

        Raises:
            StoreUnavailableError: it stayed away.
        """
        ...

    def call(self, user_code: Callable[[], T], kind: str, path: str) -> T:
        """Return what a handler or a gate returns, however long that takes.

        At the dispatch deadline the attempt is ended without it: then it counts as failed, and
        whatever is returned later is discarded.

        Args:
            user_code: makes the call.
            kind: `handler` or `gate`.
            path: of what is called, `module:function`.
        """
        ...


class HeldAttempt(RunningAttempt, Protocol):
    """An attempt that is held by this worker: its lease is renewed, and it is settled once.

    `insist` asks again while the lease is held: until the dispatch deadline, and not where the
    attempt is to stop.
    """

    @property
    def is_settled(self) -> bool:
        """Whether the attempt is over, or was lost."""
        ...

    @property
    def settlement(self) -> Change | None:
        """How the attempt ended; None: it has not yet, or it was lost."""
        ...

    def end_handler(self) -> None:
        """Have the handler ended by force, where that can be done: it was asked to stop before."""
        ...

    def wait_settled(self, seconds: float) -> bool:
        """Wait for the end of the attempt; return whether it came."""
        ...

    def fetch(self, call: Callable[[], T]) -> T:
        """Do as `insist`, for at most a lease's length: nothing is lost with the attempt yet."""
        ...

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt; a second call is answered as the first, with a change that is none.

        Raises:
            LeaseLostError: the lease is not held any more; nothing was written.
            StoreUnavailableError: it could not be committed while the lease could be held.
        """
        ...


HeldT_co = TypeVar("HeldT_co", bound=HeldAttempt, covariant=True)
HeldT_contra = TypeVar("HeldT_contra", bound=HeldAttempt, contravariant=True)


class LeaseKeeper(Protocol[HeldT_co]):
    """Holds the attempts of this worker."""

    def hold(self, attempt: LeasedAttempt) -> AbstractContextManager[HeldT_co]:
        """Hold an attempt that has just got its lease; inside, the lease is renewed."""
        ...

    def held_attempts(self) -> Sequence[HeldT_co]:
        """Return the attempts that are held now."""
        ...

    def stop_run(self, run_id: str, reason: Termination) -> None:
        """Ask the handler of what is held of this run to end, if anything is."""
        ...

    def stop_all(self, reason: Termination, detail: str = "") -> None:
        """Ask the handlers of all that is held to end, and of what is held later.

        Args:
            reason: for machines.
            detail: the same in a sentence; empty: the reason says all.
        """
        ...

    def look(self) -> None:
        """Renew and stop what is due now, and wait until that is done: time was moved by hand."""
        ...

    def close(self) -> None:
        """Stop renewing; a renewal that is on its way is waited for."""
        ...
