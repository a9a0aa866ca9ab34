"""A leased attempt that no store knows of: what is written under its lease stays with the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pydantic_core

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.kept_work import CallResult, Checkpoint
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.errors import LeaseLostError
from leasehold.ports.documents import Committed
from leasehold.services.checkpoint_write import check_results
from leasehold.worker.context import IncrementalState

_RULES: Final = Rules(settings_for=lambda _: None)


@dataclass(slots=True)
class MemoryCheckpoint:
    """A checkpoint on its way to the test (`ports/lease_keeper.py`)."""

    attempt: MemoryAttempt
    iteration_count: int
    phase: str
    results: str
    leaves_file: bool = False

    def store(self) -> None:
        """Do nothing: nothing is too large for a test."""

    def record(self, notes: Notes = NO_NOTES) -> None:  # noqa: ARG002 - the test has it
        """Tell the test of the checkpoint, as the next attempt would find it."""
        run = self.attempt.manifest
        save = partial(
            lifecycle.checkpoint,
            rules=_RULES,
            fence=self.attempt.fence,
            iteration_count=self.iteration_count,
            phase=self.phase,
            partial_results=KeptValue(text=self.results),
        )
        self.attempt.manifest = save(run, run.updated_at).manifest
        found = pydantic_core.from_json(self.results)
        self.attempt.on_checkpoint(IncrementalState(self.phase, self.iteration_count, found))

    def tidy_up(self) -> None:
        """Do nothing: no file was written."""


@dataclass(slots=True)
class MemoryAttempt:
    """An attempt as its holder uses it (`ports/lease_keeper.py`).

    Args:
        manifest: the run, with its lease.
        ends_at: when that ends, in monotonic seconds.
        on_checkpoint: given each checkpoint.
        on_call: given the key and the result of each call made once.
    """

    manifest: Manifest
    ends_at: float
    on_checkpoint: Callable[[IncrementalState], None]
    on_call: Callable[[str, Any], None] = lambda _key, _result: None

    @property
    def fence(self) -> Fence:
        """What each write would show."""
        lease = self.manifest.lease
        return Fence("" if lease is None else lease.lease_id, self.manifest.fencing_token)

    def renew(self, notes: Notes = NO_NOTES, *, within: float | None = None) -> None:
        """Do nothing: the lease outlasts the test."""

    def look(self) -> None:
        """Do nothing: nobody can take the lease."""

    def new_checkpoint(self, iteration_count: int, phase: str, results: str) -> MemoryCheckpoint:
        """Begin a checkpoint."""
        check_results(results)
        return MemoryCheckpoint(self, iteration_count, phase, results)

    def reject_checkpoint(self, rejected: Checkpoint, why: str, notes: Notes = NO_NOTES) -> None:
        """Do nothing: what a test gives is whole."""

    def new_call(self, call: CallResult, in_place_of: str | None = None) -> MemoryCallWrite:  # noqa: ARG002 - all can be read
        """Begin to record the result of a call."""
        return MemoryCallWrite(self, call)

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt; no store hears of it."""
        return Committed(ending(self.manifest, self.manifest.updated_at), None)

    def end_at_deadline(
        self, stacks: str, origin: str | None, notes: Notes, *, within: float
    ) -> Committed[Change]:
        """Never called: no keeper looks after the attempt, so nobody ends it at a deadline."""
        raise NotImplementedError

    def publish(self, change: Change) -> None:
        """Do nothing: nobody is to hear of it."""

    def trace_loss(self, error: LeaseLostError, *, within: float) -> None:
        """Do nothing: the lease cannot be lost."""


@dataclass(frozen=True, slots=True)
class MemoryCallWrite:
    """The result of a call on its way (`ports/lease_keeper.py`): there is room for any."""

    attempt: MemoryAttempt
    call: CallResult
    leaves_file: bool = False

    def store(self) -> None:
        """Do nothing: it stays where it is."""

    def record(self, notes: Notes = NO_NOTES) -> bool:  # noqa: ARG002 - the test has them
        """Tell the test of the call, and keep its result for the attempt."""
        attempt, call = self.attempt, self.call
        attempt.manifest = attempt.manifest.with_(calls=(*attempt.manifest.calls, call))
        attempt.on_call(call.key, pydantic_core.from_json(call.inline or "null"))
        return True

    def tidy_up(self) -> None:
        """Do nothing: no file was written."""
