"""What a context asks of the worker that holds its attempt, wherever the handler runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leasehold.domain.iterations import furthest_of
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.worker.stop import StopSignal


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """Which attempt it is.

    Args:
        run_id: the run.
        step_type: the step.
        attempt: its number, from 1.
        trial: the number of the trial, from 1.
        hard_s: its agent timeout, in seconds.
        cleanup_s: what is left of that at its soft limit.
        furthest: the most iterations of each phase that any attempt of the step ever kept.
        note: a person's words for it, if any.
    """

    run_id: str
    step_type: str
    attempt: int
    trial: int
    hard_s: float
    cleanup_s: float
    furthest: Mapping[str, int]
    note: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> AttemptFacts:
        """Return the facts of the attempt that runs now."""
        hard, soft = manifest.dispatch.hard_limit, manifest.dispatch.soft_limit
        return cls(
            manifest.run_id,
            manifest.current_step,
            manifest.attempt,
            manifest.trial,
            hard_s=hard.total_seconds(),
            cleanup_s=(hard - soft).total_seconds(),
            furthest=furthest_of(manifest),
            note=manifest.note,
        )


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """What an earlier attempt kept; its results as JSON text."""

    phase: str
    iteration_count: int
    results: str


class RunFiles(Protocol):
    """The files of one run. They are not fenced: the last writer wins.

    Each call raises StoreUnavailableError where the store is away. A handler that lets it pass, as
    it is or as the cause of its own error, is not blamed for it: the attempt is deferred.
    """

    def put(self, name: str, data: bytes) -> str:
        """Store a file whole or not at all, in place of what was there; return its address."""
        ...

    def get(self, name: str) -> bytes:
        """Return a file, or raise ArtifactNotFoundError."""
        ...

    def exists(self, name: str) -> bool:
        """Return whether the run has the file."""
        ...

    def list(self) -> Sequence[str]:
        """Return the names of the run's files, sorted."""
        ...

    async def aput(self, name: str, data: bytes) -> str:
        """Do what `put` does, without blocking the handler's loop."""
        ...

    async def aget(self, name: str) -> bytes:
        """Do what `get` does, without blocking the handler's loop."""
        ...

    async def aexists(self, name: str) -> bool:
        """Do what `exists` does, without blocking the handler's loop."""
        ...

    async def alist(self) -> Sequence[str]:
        """Do what `list` does, without blocking the handler's loop."""
        ...


class AttemptCalls(Protocol):
    """The calls of one attempt. What each of them raises, `StepContext` says."""

    @property
    def facts(self) -> AttemptFacts:
        """Which attempt it is."""
        ...

    @property
    def stop(self) -> StopSignal:
        """Given when the handler should end."""
        ...

    @property
    def files(self) -> RunFiles:
        """The files of the run."""
        ...

    def time_left(self) -> float:
        """Return for how many seconds the attempt may still run; below zero: for none."""
        ...

    def check_lease(self) -> None:
        """Raise LeaseLostError where the lease may be over: nothing is to begin then."""
        ...

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing, or nothing that can be used."""
        ...

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results; InvalidRequestError: they are not JSON text."""
        ...

    def recorded_result(self, key: str, type_: str) -> str | None:
        """Return the result of a call that was recorded, JSON text; None: it is to be made."""
        ...

    def record_result(self, key: str, type_: str, result: str, *, keep: bool) -> None:
        """Record the result of a call that was made, JSON text; `keep`: beyond the step."""
        ...

    def reject_checkpoint(self, why: str) -> None:
        """Drop what an earlier attempt kept: it cannot be used, as a sentence says."""
        ...

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        ...

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        ...

    def status_of(self, step_type: str) -> str:
        """Return the status of the output of an earlier step."""
        ...

    def findings(self) -> str:
        """Return what the reviewer of the trial before this one found: a list, JSON text."""
        ...
