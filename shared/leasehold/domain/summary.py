"""A run in one line: what lists, answers and displays show of a manifest.

A list reads no more of a manifest than that: the rest of it, inputs and outputs above all, takes a
hundred times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from pydantic import AwareDatetime

from leasehold.domain.manifest import Manifest, checked_run, read_as
from leasehold.domain.manifest_parts import NONE_ENDED, Attempts, Progress, StepRecord
from leasehold.domain.spend import Spend, total_of
from leasehold.domain.status import DeadLetterReason, RunStatus
from leasehold.domain.step_pause import Hold
from leasehold.domain.stored import Document, Stored, Text, replace

#: The paths of what `RunHead` has, but for its steps.
_PATHS: Final = (
    "runId",
    "life",
    "pipeline",
    "plan",
    "labels",
    "status",
    "currentStep",
    "position.step",
    "position.dispatch.nonce",
    "position.dispatch.generation",
    "position.dispatch.held",
    "position.attempts",
    "position.lease.leaseId",
    "position.heartbeatAt",
    "createdAt",
    "updatedAt",
    "completedAt",
    "paused",
    "cancelled",
    "deadLettered",
    "deadLetteredAt",
    "deadLetterReason",
    "error.code",
    "block.code",
    "waitsIn",
    "purgedAt",
)


_OF_STEPS: Final = ("status", "progress", "spend")


class _Dispatch(Stored):
    generation: int
    nonce: str
    held: Hold | None = None


class _Position(Stored):
    step: str
    heartbeat_at: AwareDatetime | None = None
    lease: Mapping[str, Any] | None = None
    dispatch: _Dispatch
    attempts: Attempts = Attempts()


class _Coded(Stored):
    code: str


class _Step(Stored):
    status: RunStatus
    progress: Progress | None = None
    spend: Spend | None = None


class RunHead(Stored):
    """What a list reads of a manifest; fields mean what they mean there."""

    run_id: str
    life: str = ""
    pipeline: Text
    plan: tuple[str, ...]
    labels: tuple[str, ...] = ()
    status: RunStatus
    paused: bool = False
    cancelled: bool = False
    dead_lettered: bool = False
    dead_lettered_at: AwareDatetime | None = None
    dead_letter_reason: DeadLetterReason | None = None
    block: _Coded | None = None
    position: _Position
    created_at: AwareDatetime
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    steps: Mapping[str, _Step]
    waits_in: str | None = None
    error: _Coded | None = None

    @property
    def held(self) -> Hold | None:
        """The hold of a run at a step that is paused; None: no pause holds it."""
        is_over = self.paused or self.cancelled or self.dead_lettered
        waits = self.status in (RunStatus.PENDING, RunStatus.ERROR) and not is_over
        return self.position.dispatch.held if waits and self.position.lease is None else None


def head_paths(steps: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of the fields that `head_of` needs of a run that has none but these steps.

    A store takes no path with "any step" in it.
    """
    of_steps = (f"steps.{step}.{field}" for step in steps for field in _OF_STEPS)
    return (*_PATHS, *of_steps)


def head_of(run_id: str, document: Document) -> RunHead:
    """Return what the fields of `head_paths` say of a run, or raise UnreadableRunError."""
    return checked_run(run_id, read_as(RunHead, run_id, document))


class RunProgress(Stored):
    """How far a run is: whole steps, and a share of 1 that counts what the current step says."""

    steps_done: int
    steps: int
    fraction: float
    message: str


class Summary(Stored):
    """A run without its values; fields mean what they mean in the manifest."""

    run_id: str
    pipeline: str
    status: RunStatus
    current_step: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None
    paused: bool
    cancelled: bool
    dead_lettered: bool
    dead_lettered_at: AwareDatetime | None
    dead_letter_reason: DeadLetterReason | None
    attempts: Attempts
    progress: RunProgress
    labels: tuple[str, ...]
    generation: int  # what a decision about the run, as it is here, is bound to
    error_code: str | None = None  # what failed last
    block_code: str | None = None  # why it is BLOCKED
    heartbeat_at: AwareDatetime | None = None  # of the attempt that runs: its worker was heard of
    spend: Spend | None = None  # of all its steps; None: nothing
    held: Hold | None = None  # its step is paused: by whom, since when and why
    waits_in: str | None = None  # the line of a limit that it stands in: `model:gpt at once`


_CAUSES: Final = tuple(Attempts.model_fields)
_counts: Final = attrgetter(*_CAUSES)

#: Copies of these share what pydantic notes of each value: half the memory of a long list.
_NOTHING: Final[Any] = None
_SUMMARY: Final = Summary.model_construct(None, **dict.fromkeys(Summary.model_fields, _NOTHING))
_PROGRESS: Final = RunProgress.model_construct(
    None, **dict.fromkeys(RunProgress.model_fields, _NOTHING)
)


def summary_of(manifest: Manifest | RunHead) -> Summary:
    """Return the run in one line."""
    return replace(
        _SUMMARY,
        run_id=manifest.run_id,
        pipeline=manifest.pipeline,
        status=manifest.status,
        current_step=manifest.position.step,
        created_at=manifest.created_at,
        updated_at=manifest.updated_at,
        completed_at=manifest.completed_at,
        paused=manifest.paused,
        cancelled=manifest.cancelled,
        dead_lettered=manifest.dead_lettered,
        dead_lettered_at=manifest.dead_lettered_at,
        dead_letter_reason=manifest.dead_letter_reason,
        attempts=manifest.position.attempts,
        progress=progress_of(manifest),
        labels=manifest.labels,
        generation=manifest.position.dispatch.generation,
        error_code=None if manifest.error is None else manifest.error.code,
        block_code=None if manifest.block is None else manifest.block.code,
        heartbeat_at=None if manifest.position.lease is None else manifest.position.heartbeat_at,
        spend=_spend_of(manifest),
        held=manifest.held,
        waits_in=manifest.waits_in,
    )


def _spend_of(run: Manifest | RunHead) -> Spend | None:
    steps: Mapping[str, StepRecord | _Step] = run.steps
    spent = [step.spend for step in steps.values() if step.spend is not None]
    return total_of(spent) if spent else None


def attempts_of(manifest: Manifest) -> Attempts:
    """Return how the attempts of all steps ended that left no output that counts."""
    counts = [_counts(record.attempts) for record in manifest.steps.values()]
    if not any(map(any, counts)):
        return NONE_ENDED
    return Attempts(**dict(zip(_CAUSES, map(sum, zip(*counts, strict=True)), strict=True)))


def progress_of(manifest: Manifest | RunHead) -> RunProgress:
    """Return how far the run is."""
    steps: Mapping[str, StepRecord | _Step] = manifest.steps
    records = [steps[step] for step in manifest.plan]
    done = sum(record.status is RunStatus.COMPLETED for record in records)
    current = steps[manifest.position.step]
    reported = current.progress if current.status is RunStatus.IN_PROGRESS else None
    share = done + (0.0 if reported is None else reported.fraction)
    return replace(
        _PROGRESS,
        steps_done=done,
        steps=len(records),
        fraction=round(share / len(records), 4),
        message="" if reported is None else reported.message,
    )
