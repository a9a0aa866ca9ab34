"""The lease keeper port: what renews the leases of this worker, and shares its attempts safely.

The attempt itself, what is written under its lease, is `services/attempt.py`. A keeper adds what
takes threads: it renews in time, lets one thread write at a time, and stops handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from leasehold.domain.change import Change, Transition
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import KeptValue, Progress
from leasehold.domain.status import Termination
from leasehold.errors import LeaseLostError
from leasehold.ports.documents import Committed

T = TypeVar("T")


class LeasedAttempt(Protocol):
    """An attempt as its keeper uses it; no two calls at the same time, but for `keep_results`.

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

    def renew(self, progress: Progress | None = None, *, within: float | None = None) -> object:
        """Let the lease run on, and note the progress; give up after `within` seconds."""
        ...

    def look(self) -> None:
        """Learn whether the lease is lost, without renewing it."""
        ...

    def keep_results(self, text: str) -> KeptValue:
        """Keep partial results, JSON text, for a checkpoint."""
        ...

    def checkpoint(self, iteration_count: int, phase: str, results: KeptValue) -> object:
        """Record what the attempt has so far, and renew the lease."""
        ...

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt."""
        ...

    def trace_loss(self, error: LeaseLostError, *, within: float) -> None:
        """Record beside the run that the lease was lost, if that can be done `within` seconds."""
        ...


class RunningAttempt(Protocol):
    """An attempt as far as its result depends on it."""

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


class HeldAttempt(RunningAttempt, Protocol):
    """An attempt that is held by this worker: its lease is renewed, and it is settled once.

    `insist` asks again while the lease is held: until the dispatch deadline, and not where the
    attempt is to stop.
    """

    @property
    def progress(self) -> Progress | None:
        """What the handler last said of its progress."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether the attempt is over, or was lost."""
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
        """End the attempt; a second call is answered as the first.

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

    def stop_all(self, reason: Termination) -> None:
        """Ask the handlers of all that is held to end, and of what is held later."""
        ...

    def look(self) -> None:
        """Renew and stop what is due now, and wait until that is done: time was moved by hand."""
        ...

    def close(self) -> None:
        """Stop renewing; a renewal that is on its way is waited for."""
        ...
