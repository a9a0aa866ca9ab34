"""The step runner port: what runs a handler while its lease is held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from leasehold.domain.change import Change, Transition
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import ErrorRecord, Manifest
from leasehold.domain.result import Finished, Result
from leasehold.domain.status import Termination
from leasehold.ports.documents import Committed, Snapshot

T = TypeVar("T")


class StepHandler(Protocol):
    """A step type, as far as a runner needs to know it."""

    @property
    def step_type(self) -> str:
        """Its name."""
        ...

    @property
    def handler(self) -> str:
        """The path of its handler: `module:function`."""
        ...


class StepOutput(StepHandler, Protocol):
    """A step type whose output is judged."""

    @property
    def output(self) -> str:
        """The path of the model of a remote step's output, `module:Model`; or nothing."""
        ...


class HeldRun(Protocol):
    """A run under a lease of this worker: renewed while it is held, settled once."""

    @property
    def manifest(self) -> Manifest:
        """The run as this worker last wrote or read it."""
        ...

    @property
    def fence(self) -> Fence:
        """What each write under the lease shows."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether the attempt is over, or was lost."""
        ...

    def wait_settled(self, seconds: float) -> bool:
        """Wait for the end of the attempt; return whether it came."""
        ...

    def insist(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; a store that is away is asked again while the lease is held.

        It gives up at the dispatch deadline, and early where the attempt is to stop.

        Raises:
            StoreUnavailableError: the store was away for all that time.
        """
        ...

    def fetch(self, call: Callable[[], T]) -> T:
        """Do as `insist`, for at most a lease's length: nothing is lost with the attempt yet."""
        ...

    def settle(self, transition: Transition) -> Committed[Change]:
        """End the attempt; a second call is answered as the first.

        Raises:
            LeaseLostError: the lease is not held any more; nothing was written.
            StoreUnavailableError: it could not be committed.
        """
        ...


Held = TypeVar("Held", bound=HeldRun)


class StepRunner(Protocol[Held]):
    """Knows how to call the handler of a step."""

    def check(self, step: StepHandler) -> None:
        """Resolve the handler.

        Raises:
            HandlerNotFoundError: its path does not lead to a function that takes (ctx, given).
        """
        ...

    def problem_with(self, step: StepHandler, given: str) -> tuple[str, str] | None:
        """Return the name of the handler's model and why this JSON text does not fit; or None."""
        ...

    def problem_with_output(
        self, step: StepOutput, output: str, following: StepHandler | None = None
    ) -> ErrorRecord | None:
        """Return why this JSON text is no output of the step, or not for the one that follows it.

        Raises:
            HandlerNotFoundError: the model of the output does not resolve.
        """
        ...

    def through_gates(
        self, gates: Sequence[StepHandler], manifest: Manifest, finished: Finished
    ) -> Result:
        """Return the result as it is, or what the first gate that refuses it makes of it.

        An output that says of itself that it is an ERROR fails the attempt before any gate.

        Raises:
            StoreUnavailableError: a gate met an outage; ask again.
        """
        ...

    def hold(self, acquired: Snapshot, manifest: Manifest) -> AbstractContextManager[Held]:
        """Hold the lease that the manifest has just got; inside, it is renewed."""
        ...

    def held_runs(self) -> Sequence[Held]:
        """Return the runs that are held now."""
        ...

    def stop_all(self, reason: Termination) -> None:
        """Ask the handlers of all runs that are held to end, and of those that come later."""
        ...

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make the calls, none of which raises, all at the same time; wait for their ends."""
        ...

    def side_by_side(self, take: Callable[[], Callable[[], None] | None], at_most: int) -> None:
        """Make the calls that `take` gives, at most so many at a time, until it gives none.

        `take` is never called twice at the same time, and once more after each call: what a call
        leaves to be done may be given then. What it or a call raises is raised in the end.
        """
        ...

    def run(self, held: Held, step: StepHandler, given: str) -> Result:
        """Call the handler with the JSON text `given` and judge what it does; never raises."""
        ...
