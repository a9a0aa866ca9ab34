"""A run in one line: what lists, answers and displays show of a manifest."""

from __future__ import annotations

from pydantic import AwareDatetime

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts
from leasehold.domain.status import DeadLetterReason, RunStatus
from leasehold.domain.stored import Stored


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


def summary_of(manifest: Manifest) -> Summary:
    """Return the run in one line."""
    return Summary(
        run_id=manifest.run_id,
        pipeline=manifest.pipeline,
        status=manifest.status,
        current_step=manifest.current_step,
        created_at=manifest.created_at,
        updated_at=manifest.updated_at,
        completed_at=manifest.completed_at,
        paused=manifest.paused,
        cancelled=manifest.cancelled,
        dead_lettered=manifest.dead_lettered,
        dead_lettered_at=manifest.dead_lettered_at,
        dead_letter_reason=manifest.dead_letter_reason,
        attempts=manifest.attempts,
        progress=progress_of(manifest),
        labels=manifest.labels,
        generation=manifest.dispatch.generation,
        error_code=None if manifest.error is None else manifest.error.code,
        block_code=None if manifest.block is None else manifest.block.code,
        heartbeat_at=None if manifest.lease is None else manifest.heartbeat_at,
    )


def progress_of(manifest: Manifest) -> RunProgress:
    """Return how far the run is."""
    records = [manifest.steps[step] for step in manifest.plan]
    done = sum(record.status is RunStatus.COMPLETED for record in records)
    current = manifest.steps[manifest.current_step]
    reported = current.progress if current.status is RunStatus.IN_PROGRESS else None
    share = done + (0.0 if reported is None else reported.fraction)
    return RunProgress(
        steps_done=done,
        steps=len(records),
        fraction=round(share / len(records), 4),
        message="" if reported is None else reported.message,
    )
