"""The function manage_lease: a table of routes, each a few lines over a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import flask
import pydantic_core

from leasehold import errors
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
from leasehold.api.request_model import RequestModel
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
from leasehold.web.callers import checks_caller
from leasehold.web.engine_provider import EngineSource
from leasehold.web.request_body import drops_rest, json_body
from leasehold.web.request_trace import names_trace
from leasehold.web.responses import guarded, refuse_for, refuse_method, refuse_path, respond
from leasehold.worker.failures import record_of_report

#: A body may hold the largest output, and what stands around it.
BODY_BYTES: Final = OUTPUT_BYTES + 64 * 1024
#: Or the largest file, in base64.
FILE_BODY_BYTES: Final = FILE_BYTES * 4 // 3 + 64 * 1024


def body_limit(path: str) -> int:
    """Return how many bytes the body of a call may have; 0: nothing is served there."""
    call = _BY_PATH.get(path)
    return call.limit if call else 0


@names_trace
@drops_rest
@checks_caller
def answer_lease(provider: EngineSource, request: flask.Request) -> flask.Response:
    """Answer a call of a remote worker."""
    call = _BY_PATH.get(request.path)
    if call is None:
        return refuse_path(request.path, PATHS)
    if request.method != "POST":
        return refuse_method(request.path, "POST")
    return guarded(
        lambda: call.answer(provider.engine, call.takes.read(json_body(request, call.limit)))
    )


def claim(engine: Engine, body: ClaimBody) -> flask.Response:
    """`POST /leases:claim`: the step of a type that waits longest."""
    return _claimed(lambda: claim_step(engine, body.step_type, body.holder))


def acquire(engine: Engine, body: AcquireBody) -> flask.Response:
    """`POST /leases:acquire`: the current step of one run."""
    return _claimed(lambda: acquire_run(engine, body.run_id, body.holder))


def renew(engine: Engine, body: RenewBody) -> flask.Response:
    """`POST /leases:renew`: until when the lease runs now, and at most."""
    change = renew_lease(engine, _credentials(body), _progress(body.progress))
    lease = _lease(change.manifest)
    return respond(RenewResponse(expires_at=lease.expires_at, max_expires_at=lease.max_expires_at))


def checkpoint(engine: Engine, body: CheckpointBody) -> flask.Response:
    """`POST /leases:checkpoint`: what there is so far is kept; until when the lease runs now."""
    run = save_checkpoint(
        engine,
        _credentials(body),
        iteration_count=body.iteration_count,
        phase=body.phase,
        partial_results=body.partial_results,
    )
    return respond(CheckpointResponse(expires_at=_lease(run).expires_at))


def complete(engine: Engine, body: CompleteBody) -> flask.Response:
    """`POST /leases:complete`: the output is recorded, and the run moves on."""
    return _outcome(complete_step(engine, _credentials(body), body.output, body.status))


def fail(engine: Engine, body: FailBody) -> flask.Response:
    """`POST /leases:fail`: the error is recorded, and the step is tried again or given up."""
    error = _error(body.error).with_(retry_after_s=body.retry_after_s)
    return _outcome(fail_step(engine, _credentials(body), error, permanent=body.permanent))


def release(engine: Engine, body: ReleaseBody) -> flask.Response:
    """`POST /leases:release`: the lease is released, for another worker to go on."""
    return _outcome(release_step(engine, _credentials(body), continued=body.continued))


def put_file(engine: Engine, body: PutFileBody) -> flask.Response:
    """`POST /leases:putFile`: the file is stored."""
    leased_files.put_file(engine, _credentials(body), body.name, body.content)
    return respond(FileEntry(name=body.name, size=len(body.content)))


def get_file(engine: Engine, body: GetFileBody) -> flask.Response:
    """`POST /leases:getFile`: a file of the run, whole, in base64."""
    data = leased_files.get_file(engine, _credentials(body), body.name)
    return respond(GetFileResponse.of(body.name, data))


def list_files(engine: Engine, body: ListFilesBody) -> flask.Response:
    """`POST /leases:listFiles`: the files of the run, and their sizes."""
    page = leased_files.list_leased_files(
        engine, _credentials(body), limit=body.limit, page_token=body.page_token
    )
    return respond(FilesResponse.of(page))


@dataclass(frozen=True, slots=True)
class LeaseCall:
    """A call of remote workers: a POST with a JSON object.

    Args:
        path: its address.
        answer: called with the engine and the body.
        takes: the body.
        gives: what is answered; errors are `ErrorResponse`.
        refuses: the errors of its own, for the docs.
        limit: the most bytes of a body.
    """

    path: str
    answer: Callable[[Engine, Any], flask.Response]
    takes: type[RequestModel]
    gives: type[Any]
    refuses: tuple[type[errors.LeaseholdError], ...]
    limit: int = BODY_BYTES


_CLAIM: Final = (errors.NothingToClaimError,)
_HELD: Final = (errors.UnknownRunError, errors.UnreadableRunError, errors.LeaseLostError)
_FILE: Final = (*_HELD, errors.ArtifactNameError, errors.FileTooLargeError)

CALLS: Final = (
    LeaseCall("/leases:claim", claim, ClaimBody, ClaimResponse, (*_CLAIM, errors.UnknownKeyError)),
    LeaseCall(
        "/leases:acquire",
        acquire,
        AcquireBody,
        ClaimResponse,
        (*_CLAIM, errors.UnknownRunError, errors.LeaseHeldError),
    ),
    LeaseCall("/leases:renew", renew, RenewBody, RenewResponse, _HELD),
    LeaseCall(
        "/leases:checkpoint",
        checkpoint,
        CheckpointBody,
        CheckpointResponse,
        (*_HELD, errors.TooLargeError),
    ),
    LeaseCall(
        "/leases:complete",
        complete,
        CompleteBody,
        OutcomeResponse,
        (*_HELD, errors.InvalidOutputError, errors.TooLargeError),
    ),
    LeaseCall("/leases:fail", fail, FailBody, OutcomeResponse, _HELD),
    LeaseCall("/leases:release", release, ReleaseBody, OutcomeResponse, _HELD),
    LeaseCall("/leases:putFile", put_file, PutFileBody, FileEntry, _FILE, limit=FILE_BODY_BYTES),
    LeaseCall(
        "/leases:getFile", get_file, GetFileBody, GetFileResponse, (*_FILE, errors.UnknownFileError)
    ),
    LeaseCall("/leases:listFiles", list_files, ListFilesBody, FilesResponse, _HELD),
)

_BY_PATH: Final[Mapping[str, LeaseCall]] = {call.path: call for call in CALLS}
PATHS: Final = tuple(_BY_PATH)


def _claimed(call: Callable[[], ClaimedStep]) -> flask.Response:
    """Answer with the step that was claimed; that there is none is how most claims end."""
    try:
        claimed = call()
    except (errors.LeaseHeldError, errors.NothingToClaimError) as error:
        return refuse_for(error)
    run, lease = claimed.manifest, claimed.manifest.lease
    assert lease is not None  # noqa: S101 - it was just given
    return respond(
        ClaimResponse(
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


def _outcome(change: Change) -> flask.Response:
    return respond(OutcomeResponse(outcome=change.outcome.word), exclude_none=True)
