"""What `with_` may replace of a manifest and of its parts: for type checkers, who refuse the rest.

A test compares each of these with the fields of its model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pydantic import AwareDatetime

    from leasehold.domain.manifest import (
        Attempts,
        Block,
        Checkpoint,
        Dispatch,
        ErrorRecord,
        Lease,
        OperationRecord,
        Progress,
        Settlement,
        StepRecord,
    )
    from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus


class LeaseUpdate(TypedDict, total=False):
    """Fields of `Lease`."""

    lease_id: str
    holder: str
    acquired_at: AwareDatetime
    expires_at: AwareDatetime
    max_expires_at: AwareDatetime


class DispatchUpdate(TypedDict, total=False):
    """Fields of `Dispatch`."""

    generation: int
    step: str
    trial: int
    not_before: AwareDatetime
    timeout_ms: int
    deadline_s: int
    max_retries: int
    heartbeat_s: float | None
    queue: str
    sources: Mapping[str, str]
    nonce: str
    remote: bool
    schedule_to_start_s: int | None
    redispatched: int
    deferred: int
    seen_at: AwareDatetime | None
    enqueued: bool


class SettlementUpdate(TypedDict, total=False):
    """Fields of `Settlement`."""

    lease_id: str
    fencing_token: int | None
    outcome: Outcome


class StepRecordUpdate(TypedDict, total=False):
    """Fields of `StepRecord`."""

    status: RunStatus
    started_at: AwareDatetime | None
    completed_at: AwareDatetime | None
    handed_off_at: AwareDatetime | None
    execution_seconds: float | None
    output: str | None
    output_ref: str | None
    output_status: str | None
    progress: Progress | None
    attempts: Attempts


class ErrorRecordUpdate(TypedDict, total=False):
    """Fields of `ErrorRecord`."""

    type: str
    code: str
    message: str
    details: str | None
    validation_issues: tuple[Mapping[str, Any], ...]
    validation_issue_count: int
    origin: str | None
    permanent: bool
    step: str
    attempt: int


class ManifestUpdate(TypedDict, total=False):
    """Fields of `Manifest`."""

    run_id: str
    pipeline: str
    plan: tuple[str, ...]
    labels: tuple[str, ...]
    idempotency_key: str | None
    input_digest: str
    input: str | None
    input_ref: str | None
    status: RunStatus
    paused: bool
    cancelled: bool
    dead_lettered: bool
    dead_lettered_at: AwareDatetime | None
    dead_letter_reason: DeadLetterReason | None
    dead_letter_detail: str | None
    block: Block | None
    current_step: str
    trial: int
    step_started_at: AwareDatetime | None
    heartbeat_at: AwareDatetime | None
    error_at: AwareDatetime | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None
    alarm_at: AwareDatetime | None
    shard: int
    fencing_token: int
    lease: Lease | None
    dispatch: Dispatch
    attempts: Attempts
    interruptions: int
    silences: int
    claimable: str | None
    last_settlement: Settlement | None
    checkpoint: Checkpoint | None
    steps: Mapping[str, StepRecord]
    error: ErrorRecord | None
    recreated_from: str | None
    recreated_as: tuple[str, ...]
    operations: tuple[OperationRecord, ...]
    traced: int
