"""The table of calls for remote workers, which `manage_lease` serves: steps under leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pydantic_core

from leasehold import errors
from leasehold.api.call_row import Answer, AnyRow, CallRequest, CallRow, Given, Needs
from leasehold.api.leases import (
    AcquireBody,
    CheckpointBody,
    CheckpointResponse,
    ClaimBody,
    ClaimResponse,
    CompleteBody,
    ErrorPart,
    FailBody,
    GetFileBody,
    GetFileResponse,
    LeaseBody,
    ListFilesBody,
    ProgressPart,
    PutFileBody,
    ReleaseBody,
    RenewBody,
    RenewResponse,
    ResumePoint,
)
from leasehold.api.results import FileEntry, FilesResponse
from leasehold.api.tasks import OutcomeResponse
from leasehold.domain.change import Change
from leasehold.domain.json_text import OUTPUT_BYTES
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord, Lease, Progress
from leasehold.domain.notes import progress_message
from leasehold.services import leased_files
from leasehold.services.claim_step import ClaimedStep, acquire_run, claim_step
from leasehold.services.engine import Engine
from leasehold.services.limits import FILE_BYTES
from leasehold.services.manage_lease import (
    LeaseCredentials,
    complete_step,
    fail_step,
    release_step,
    renew_lease,
    save_checkpoint,
)
from leasehold.worker.failures import record_of_report

#: A body may hold the largest output, and what stands around it.
OUTPUT_BODY_BYTES: Final = OUTPUT_BYTES + 64 * 1024
#: Or the largest file, in base64.
FILE_BODY_BYTES: Final = FILE_BYTES * 4 // 3 + 64 * 1024

_CLAIM: Final = (errors.NothingToClaimError,)
_HELD: Final = (errors.UnknownRunError, errors.UnreadableRunError, errors.LeaseLostError)
_FILE: Final = (*_HELD, errors.ArtifactNameError, errors.FileTooLargeError)


def _claim(engine: Engine, request: CallRequest[ClaimBody]) -> ClaimResponse:
    body = request.given
    return _claimed(claim_step(engine, body.step_type, body.holder))


def _acquire(engine: Engine, request: CallRequest[AcquireBody]) -> ClaimResponse:
    body = request.given
    return _claimed(acquire_run(engine, body.run_id, body.holder))


def _renew(engine: Engine, request: CallRequest[RenewBody]) -> RenewResponse:
    body = request.given
    change = renew_lease(engine, _credentials(body), _progress(body.progress))
    lease = _lease(change.manifest)
    return RenewResponse(expires_at=lease.expires_at, max_expires_at=lease.max_expires_at)


def _checkpoint(engine: Engine, request: CallRequest[CheckpointBody]) -> CheckpointResponse:
    body = request.given
    run = save_checkpoint(
        engine,
        _credentials(body),
        iteration_count=body.iteration_count,
        phase=body.phase,
        partial_results=body.partial_results,
    )
    return CheckpointResponse(expires_at=_lease(run).expires_at)


def _complete(engine: Engine, request: CallRequest[CompleteBody]) -> OutcomeResponse:
    body = request.given
    return _outcome(complete_step(engine, _credentials(body), body.output, body.status))


def _fail(engine: Engine, request: CallRequest[FailBody]) -> OutcomeResponse:
    body = request.given
    error = _error(body.error).with_(retry_after_s=body.retry_after_s)
    return _outcome(fail_step(engine, _credentials(body), error, permanent=body.permanent))


def _release(engine: Engine, request: CallRequest[ReleaseBody]) -> OutcomeResponse:
    body = request.given
    return _outcome(release_step(engine, _credentials(body), continued=body.continued))


def _put_file(engine: Engine, request: CallRequest[PutFileBody]) -> FileEntry:
    body = request.given
    leased_files.put_file(engine, _credentials(body), body.name, body.content)
    return FileEntry(name=body.name, size=len(body.content))


def _get_file(engine: Engine, request: CallRequest[GetFileBody]) -> GetFileResponse:
    body = request.given
    data = leased_files.get_file(engine, _credentials(body), body.name)
    return GetFileResponse.of(body.name, data)


def _list_files(engine: Engine, request: CallRequest[ListFilesBody]) -> FilesResponse:
    body = request.given
    page = leased_files.list_leased_files(
        engine, _credentials(body), limit=body.limit, page_token=body.page_token
    )
    return FilesResponse.of(page)


def _row(
    name: str,
    says: str,
    takes: type[Given],
    gives: type[Answer],
    answer: Callable[[Engine, CallRequest[Given]], Answer],
    *refuses: type[errors.LeaseholdError],
    limit: int = OUTPUT_BODY_BYTES,
) -> CallRow[Given, Answer]:
    """Return the row of a call of a worker."""
    return CallRow(
        name,
        "POST",
        f"/leases:{name}",
        says,
        takes,
        gives,
        answer,
        Needs.CHANGE,
        refuses,
        limit=limit,
        omits_none=gives is OutcomeResponse,
    )


LEASE_CALLS: Final[tuple[AnyRow, ...]] = (
    _row(
        "claim",
        "The step of a type that waits longest.",
        ClaimBody,
        ClaimResponse,
        _claim,
        *_CLAIM,
        errors.UnknownKeyError,
    ),
    _row(
        "acquire",
        "The current step of one run.",
        AcquireBody,
        ClaimResponse,
        _acquire,
        *_CLAIM,
        errors.UnknownRunError,
        errors.LeaseHeldError,
    ),
    _row(
        "renew",
        "Until when the lease runs now, and at most.",
        RenewBody,
        RenewResponse,
        _renew,
        *_HELD,
    ),
    _row(
        "checkpoint",
        "What there is so far is kept; until when the lease runs now.",
        CheckpointBody,
        CheckpointResponse,
        _checkpoint,
        *_HELD,
        errors.TooLargeError,
    ),
    _row(
        "complete",
        "The output is recorded, and the run moves on.",
        CompleteBody,
        OutcomeResponse,
        _complete,
        *_HELD,
        errors.InvalidOutputError,
        errors.TooLargeError,
    ),
    _row(
        "fail",
        "The error is recorded, and the step is tried again or given up.",
        FailBody,
        OutcomeResponse,
        _fail,
        *_HELD,
    ),
    _row(
        "release",
        "The lease is released, for another worker to go on.",
        ReleaseBody,
        OutcomeResponse,
        _release,
        *_HELD,
    ),
    _row(
        "putFile",
        "The file is stored.",
        PutFileBody,
        FileEntry,
        _put_file,
        *_FILE,
        limit=FILE_BODY_BYTES,
    ),
    _row(
        "getFile",
        "A file of the run, whole, in base64.",
        GetFileBody,
        GetFileResponse,
        _get_file,
        *_FILE,
        errors.UnknownFileError,
    ),
    _row(
        "listFiles",
        "The files of the run, and their sizes.",
        ListFilesBody,
        FilesResponse,
        _list_files,
        *_HELD,
    ),
)


def _claimed(claimed: ClaimedStep) -> ClaimResponse:
    run, lease = claimed.manifest, claimed.manifest.lease
    assert lease is not None  # noqa: S101 - it was just given
    return ClaimResponse(
        run_id=run.run_id,
        step_type=run.current_step,
        attempt=run.attempt,
        trial=run.trial,
        note=run.note,
        lease_id=lease.lease_id,
        fencing_token=run.fencing_token,
        expires_at=lease.expires_at,
        max_expires_at=lease.max_expires_at,
        heartbeat_s=run.dispatch.heartbeat_s,
        timeout_ms=run.dispatch.timeout_ms,
        given=pydantic_core.from_json(claimed.given),
        resume=_resume(claimed),
        findings=claimed.findings,
    )


def _resume(claimed: ClaimedStep) -> ResumePoint | None:
    kept = claimed.manifest.checkpoint
    if kept is None or claimed.partial_results is None:
        return None
    return ResumePoint(
        phase=kept.phase,
        iteration_count=kept.iteration_count,
        partial_results=pydantic_core.from_json(claimed.partial_results),
    )


def _credentials(body: LeaseBody) -> LeaseCredentials:
    return LeaseCredentials(body.run_id, Fence(body.lease_id, body.fencing_token))


def _progress(part: ProgressPart | None) -> Progress | None:
    if part is None:
        return None
    return Progress(fraction=part.fraction, message=progress_message(part.message))


def _error(part: ErrorPart) -> ErrorRecord:
    """Return the error as it is kept: bounded and without secrets, as one of a handler is."""
    return record_of_report(part.type, part.code, part.message, part.details, part.traceback)


def _lease(run: Manifest) -> Lease:
    assert run.lease is not None  # noqa: S101 - what renews a lease has one
    return run.lease


def _outcome(change: Change) -> OutcomeResponse:
    return OutcomeResponse(outcome=change.outcome.word)
