"""The table of calls for remote workers, which `manage_lease` serves: steps under leases."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Self

import pydantic_core
from pydantic import AwareDatetime

from leasehold import errors
from leasehold.api import request_model as rules
from leasehold.api.call_row import AnyRow, CallRequest, Needs, call
from leasehold.api.functions import OutcomeResponse
from leasehold.api.request_model import RequestModel, RequestPart, ResponseModel
from leasehold.api.results import CallReport, CallsResponse, FileEntry, FilesResponse
from leasehold.domain.change import Change
from leasehold.domain.deadlines import MAX_DEADLINE
from leasehold.domain.json_text import MAX_OUTPUT_BYTES
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord, Lease, Progress
from leasehold.domain.notes import progress_message
from leasehold.domain.recorded_calls import MAX_TYPE_CHARS, MadeCall, fingerprint_of
from leasehold.domain.result import OUTPUT_STATUSES, OutputStatus, SignalRequest
from leasehold.domain.retry import MAX_RETRY_AFTER
from leasehold.domain.signal import (
    MAX_REFUSAL_CHARS,
    MAX_SIGNAL_WAIT,
    NAME_WORDS,
    Otherwise,
    is_signal_name,
)
from leasehold.domain.spend import MAX_TOKENS, NOTHING, spend_of
from leasehold.domain.stored import replace
from leasehold.domain.traceparent import attempt_traceparent
from leasehold.remote_workers import manage_lease
from leasehold.remote_workers.claim_step import ClaimedStep, acquire_run, claim_step
from leasehold.remote_workers.manage_lease import (
    LeaseCredentials,
    complete_step,
    fail_step,
    release_step,
    renew_lease,
    save_checkpoint,
)
from leasehold.services.engine import Engine
from leasehold.services.request_bounds import MAX_FILE_BYTES, MAX_PAGE_ITEMS
from leasehold.worker.failures.failures import record_of_report
from leasehold.worker.failures.retry_hints import RATE_LIMITED

# `/leases:claim` and so on: steps for remote workers, under leases.


class ClaimBody(RequestModel):
    """`POST /leases:claim`: the step of a type that waits longest."""

    step_type: Annotated[str, rules.printable()]
    holder: Annotated[str, rules.printable()]


class AcquireBody(RequestModel):
    """`POST /leases:acquire`: the current step of one run."""

    run_id: Annotated[str, rules.filled_text()]
    holder: Annotated[str, rules.printable()]


class ResumePoint(ResponseModel):
    """The checkpoint of an earlier attempt that the step goes on from."""

    phase: str
    iteration_count: int
    partial_results: Any


class ClaimResponse(ResponseModel):
    """A step that is the worker's now: its lease, what it is given, and where it goes on."""

    run_id: str
    step: str
    step_type: str
    attempt: int
    trial: int
    lease_id: str
    fencing_token: int
    expires_at: AwareDatetime
    max_expires_at: AwareDatetime
    heartbeat_s: float | None
    timeout_ms: int
    given: Any
    resume: ResumePoint | None
    findings: list[Any]
    note: str | None = None
    traceparent: str | None = None


class LeaseBody(RequestModel):
    """The credentials of a lease, in each call of a worker."""

    run_id: Annotated[str, rules.filled_text()]
    lease_id: Annotated[str, rules.printable()]
    fencing_token: Annotated[int, rules.whole(1)]


class SpentPart(RequestPart):
    """The spend of an attempt so far, in US dollars and in tokens."""

    usd: Annotated[float, rules.dollars(least=0)] = 0.0
    tokens: Annotated[int, rules.whole(0, MAX_TOKENS)] = 0


class SpendingBody(LeaseBody):
    """A call of a worker that is written into its run, and with it what the attempt has spent."""

    spent: SpentPart | None = None


class ProgressPart(RequestPart):
    """How far the step is; the message is kept up to its first 200 characters."""

    fraction: Annotated[float, rules.share()]
    message: Annotated[str, rules.text()] = ""


class RenewBody(SpendingBody):
    """`POST /leases:renew`."""

    progress: ProgressPart | None = None


class CheckpointBody(SpendingBody):
    """`POST /leases:checkpoint`. `partialResults` may be any JSON value, and is read as text."""

    iteration_count: Annotated[int, rules.whole(0)]
    partial_results: Annotated[str, rules.json_text()]
    phase: Annotated[str, rules.printable(least=0)] = ""


class RecordCallBody(LeaseBody):
    """`POST /leases:recordCall`. `result` and `request` may be any JSON value."""

    key: Annotated[str, rules.printable()]
    result: Annotated[str, rules.json_text()]
    type: Annotated[str, rules.printable(MAX_TYPE_CHARS, least=0)] = ""
    request: Annotated[Any, rules.json_value()] = None
    keep: Annotated[bool, rules.flag()] = False
    took_s: Annotated[float, rules.seconds(MAX_DEADLINE)] | None = None
    spent: SpentPart | None = None


class CallsBody(LeaseBody):
    """`POST /leases:calls`: all recorded calls, or that of a key and a request."""

    key: Annotated[str, rules.printable()] | None = None
    request: Annotated[Any, rules.json_value()] = None
    limit: Annotated[int, rules.whole(1, MAX_PAGE_ITEMS)] = MAX_PAGE_ITEMS
    page_token: Annotated[str, rules.text("the nextPageToken of an earlier answer")] | None = None


class CompleteBody(SpendingBody):
    """`POST /leases:complete`. `output` may be any JSON value, and is read as text."""

    output: Annotated[str, rules.json_text()]
    status: Annotated[OutputStatus, rules.literal(OUTPUT_STATUSES)] = "SUCCESS"
    skip_to: Annotated[str, rules.printable()] | None = None


class ErrorPart(RequestPart):
    """Why an attempt failed; kept without secrets, as an error of a handler is."""

    message: Annotated[str, rules.filled_text()]
    code: Annotated[str, rules.printable()] = "remote_error"
    type: Annotated[str, rules.printable()] = "RemoteError"
    details: Annotated[Any, rules.json_value()] = None
    traceback: Annotated[str, rules.text()] = ""


class FailBody(SpendingBody):
    """`POST /leases:fail`. The next attempt is not before `retryAfterS`, at most a day."""

    error: ErrorPart
    permanent: Annotated[bool, rules.flag()] = False
    retry_after_s: Annotated[float, rules.seconds(MAX_RETRY_AFTER)] | None = None


class ReleaseBody(SpendingBody):
    """`POST /leases:release`."""

    continued: Annotated[bool, rules.flag()] = False


class AwaitBody(SpendingBody):
    """`POST /leases:await`. `refused`: why the signal that was given before cannot be used."""

    name: Annotated[str, rules.printable()]
    timeout_s: Annotated[float, rules.seconds(MAX_SIGNAL_WAIT)] | None = None
    otherwise: Annotated[Otherwise, rules.one_of(Otherwise)] = Otherwise.BLOCK
    refused: Annotated[str, rules.printable(MAX_REFUSAL_CHARS, least=0)] = ""

    def to_request(self) -> SignalRequest:
        """Return the signal as the service takes it, or raise InvalidRequestError."""
        if not is_signal_name(self.name):
            raise errors.InvalidRequestError(field="name", value=self.name, allowed=NAME_WORDS)
        if self.timeout_s is not None and self.timeout_s < 1:
            allowed = "at least 1 second, or null"
            raise errors.InvalidRequestError(
                field="timeoutS", value=self.timeout_s, allowed=allowed
            )
        return SignalRequest(self.name, self.timeout_s, self.otherwise.value, refused=self.refused)


class AwaitResponse(ResponseModel):
    """`found` or `missed`, and the value: the worker keeps the step; or how the attempt ended."""

    outcome: str
    value: Any = None


class PutFileBody(LeaseBody):
    """`POST /leases:putFile`. A file of that name is replaced."""

    name: Annotated[str, rules.filled_text()]
    content: Annotated[bytes, rules.base64_bytes()]


class GetFileBody(LeaseBody):
    """`POST /leases:getFile`."""

    name: Annotated[str, rules.filled_text()]


class ListFilesBody(LeaseBody):
    """`POST /leases:listFiles`; answered as `GET /runs/{id}/files`."""

    limit: Annotated[int, rules.whole(1, MAX_PAGE_ITEMS)] = MAX_PAGE_ITEMS
    page_token: Annotated[str, rules.text("the nextPageToken of an earlier answer")] | None = None


class GetFileResponse(FileEntry):
    """A file of the run, whole."""

    content: str

    @classmethod
    def of(cls, name: str, data: bytes) -> Self:
        """Return a file as it is answered."""
        return cls(name=name, size=len(data), content=base64.b64encode(data).decode())


class RenewResponse(ResponseModel):
    """Until when the lease runs now, and at most."""

    expires_at: AwareDatetime
    max_expires_at: AwareDatetime
    over_budget: str | None = None


class RecordCallResponse(ResponseModel):
    """The result that counts for the key, and until when the lease runs now."""

    result: Any
    expires_at: AwareDatetime
    over_budget: str | None = None


class CheckpointResponse(ResponseModel):
    """Until when the lease runs now."""

    expires_at: AwareDatetime


#: A body may hold the largest output, and what stands around it.
MAX_OUTPUT_BODY_BYTES: Final = MAX_OUTPUT_BYTES + 64 * 1024
#: Or the largest file, in base64.
MAX_FILE_BODY_BYTES: Final = MAX_FILE_BYTES * 4 // 3 + 64 * 1024

_CLAIM: Final = (errors.NothingToClaimError,)
_HELD: Final = (errors.UnknownRunError, errors.UnreadableRunError, errors.LeaseLostError)
_FILE: Final = (*_HELD, errors.ArtifactNameError, errors.FileTooLargeError)


@call(
    "POST",
    "/leases:claim",
    ClaimResponse,
    ClaimBody,
    needs=Needs.CHANGE,
    refuses=(
        *_CLAIM,
        errors.UnknownKeyError,
    ),
    limit=MAX_OUTPUT_BODY_BYTES,
)
def claim(engine: Engine, request: CallRequest[ClaimBody]) -> ClaimResponse:
    """The step of a type that waits longest."""
    body = request.given
    return _claimed(claim_step(engine, body.step_type, body.holder))


@call(
    "POST",
    "/leases:acquire",
    ClaimResponse,
    AcquireBody,
    needs=Needs.CHANGE,
    refuses=(
        *_CLAIM,
        errors.UnknownRunError,
        errors.LeaseHeldError,
    ),
    limit=MAX_OUTPUT_BODY_BYTES,
)
def acquire(engine: Engine, request: CallRequest[AcquireBody]) -> ClaimResponse:
    """The current step of one run."""
    body = request.given
    return _claimed(acquire_run(engine, body.run_id, body.holder))


@call(
    "POST",
    "/leases:renew",
    RenewResponse,
    RenewBody,
    needs=Needs.CHANGE,
    refuses=_HELD,
    limit=MAX_OUTPUT_BODY_BYTES,
)
def renew(engine: Engine, request: CallRequest[RenewBody]) -> RenewResponse:
    """Until when the lease runs now, and at most."""
    body = request.given
    change = renew_lease(engine, _credentials(body), _progress(body.progress))
    run, lease = change.manifest, _lease(change.manifest)
    return RenewResponse(
        expires_at=lease.expires_at,
        max_expires_at=lease.max_expires_at,
        over_budget=_over_budget(run),
    )


@call(
    "POST",
    "/leases:checkpoint",
    CheckpointResponse,
    CheckpointBody,
    needs=Needs.CHANGE,
    refuses=(
        *_HELD,
        errors.TooLargeError,
    ),
    limit=MAX_OUTPUT_BODY_BYTES,
)
def checkpoint(engine: Engine, request: CallRequest[CheckpointBody]) -> CheckpointResponse:
    """What there is so far is kept; until when the lease runs now."""
    body = request.given
    run = save_checkpoint(
        engine,
        _credentials(body),
        iteration_count=body.iteration_count,
        phase=body.phase,
        partial_results=body.partial_results,
    )
    return CheckpointResponse(expires_at=_lease(run).expires_at)


@call(
    "POST",
    "/leases:recordCall",
    RecordCallResponse,
    RecordCallBody,
    needs=Needs.CHANGE,
    refuses=(*_HELD, errors.TooLargeError, errors.TooManyCallsError),
    limit=MAX_OUTPUT_BODY_BYTES,
)
def record_call(engine: Engine, request: CallRequest[RecordCallBody]) -> RecordCallResponse:
    """The result of a call is recorded, unless its key has one; until when the lease runs now."""
    body = request.given
    made = MadeCall(
        body.key,
        body.type,
        body.result,
        body.keep,
        None if body.request is None else fingerprint_of(body.request),
        NOTHING if body.spent is None else spend_of(body.spent.tokens, body.spent.usd),
        body.took_s,
    )
    run, text = manage_lease.record_call(engine, _credentials(body), made)
    result = pydantic_core.from_json(text)
    return RecordCallResponse(
        result=result, expires_at=_lease(run).expires_at, over_budget=_over_budget(run)
    )


@call(
    "POST",
    "/leases:calls",
    CallsResponse,
    CallsBody,
    needs=Needs.CHANGE,
    refuses=(*_HELD, errors.CallVariesError),
    limit=MAX_OUTPUT_BODY_BYTES,
)
def recorded_calls(engine: Engine, request: CallRequest[CallsBody]) -> CallsResponse:
    """The recorded calls that count for the attempt, with their results; none is made again."""
    body = request.given
    found, token = manage_lease.recorded_calls(
        engine,
        _credentials(body),
        key=body.key,
        request=body.request,
        limit=body.limit,
        page_token=body.page_token,
    )
    calls = [CallReport.of(replace(call, inline=text)) for call, text in found]
    return CallsResponse(calls=calls, next_page_token=token)


@call(
    "POST",
    "/leases:complete",
    OutcomeResponse,
    CompleteBody,
    needs=Needs.CHANGE,
    refuses=(
        *_HELD,
        errors.InvalidOutputError,
        errors.TooLargeError,
    ),
    limit=MAX_OUTPUT_BODY_BYTES,
    omits_none=True,
)
def complete(engine: Engine, request: CallRequest[CompleteBody]) -> OutcomeResponse:
    """The output is recorded, and the run moves on."""
    body = request.given
    return _outcome(
        complete_step(engine, _credentials(body), body.output, body.status, body.skip_to)
    )


@call(
    "POST",
    "/leases:fail",
    OutcomeResponse,
    FailBody,
    needs=Needs.CHANGE,
    refuses=_HELD,
    limit=MAX_OUTPUT_BODY_BYTES,
    omits_none=True,
)
def fail(engine: Engine, request: CallRequest[FailBody]) -> OutcomeResponse:
    """The error is recorded, and the step is tried again or given up."""
    body = request.given
    error = _error(body.error)
    is_limit = error.code == RATE_LIMITED
    error = replace(error, retry_after_s=body.retry_after_s, rate_limited=is_limit)
    return _outcome(fail_step(engine, _credentials(body), error, permanent=body.permanent))


@call(
    "POST",
    "/leases:release",
    OutcomeResponse,
    ReleaseBody,
    needs=Needs.CHANGE,
    refuses=_HELD,
    limit=MAX_OUTPUT_BODY_BYTES,
    omits_none=True,
)
def release(engine: Engine, request: CallRequest[ReleaseBody]) -> OutcomeResponse:
    """The lease is released, for another worker to go on."""
    body = request.given
    return _outcome(release_step(engine, _credentials(body), continued=body.continued))


@call(
    "POST",
    "/leases:await",
    AwaitResponse,
    AwaitBody,
    needs=Needs.CHANGE,
    refuses=_HELD,
    limit=MAX_OUTPUT_BODY_BYTES,
    name="awaitSignal",
)
def await_signal(engine: Engine, request: CallRequest[AwaitBody]) -> AwaitResponse:
    """The signal, if it has come; else the attempt is over, and the next one begins with it."""
    body = request.given
    found, ended = manage_lease.await_signal(engine, _credentials(body), body.to_request())
    if found is None:
        return AwaitResponse(outcome="" if ended is None else ended.outcome.word)
    outcome = "missed" if found.is_missed else "found"
    return AwaitResponse(outcome=outcome, value=pydantic_core.from_json(found.text))


@call(
    "POST",
    "/leases:putFile",
    FileEntry,
    PutFileBody,
    needs=Needs.CHANGE,
    refuses=_FILE,
    limit=MAX_FILE_BODY_BYTES,
)
def put_file(engine: Engine, request: CallRequest[PutFileBody]) -> FileEntry:
    """The file is stored."""
    body = request.given
    manage_lease.put_file(engine, _credentials(body), body.name, body.content)
    return FileEntry(name=body.name, size=len(body.content))


@call(
    "POST",
    "/leases:getFile",
    GetFileResponse,
    GetFileBody,
    needs=Needs.CHANGE,
    refuses=(
        *_FILE,
        errors.UnknownFileError,
    ),
    limit=MAX_OUTPUT_BODY_BYTES,
)
def get_file(engine: Engine, request: CallRequest[GetFileBody]) -> GetFileResponse:
    """A file of the run, whole, in base64."""
    body = request.given
    data = manage_lease.get_file(engine, _credentials(body), body.name)
    return GetFileResponse.of(body.name, data)


@call(
    "POST",
    "/leases:listFiles",
    FilesResponse,
    ListFilesBody,
    needs=Needs.CHANGE,
    refuses=_HELD,
    limit=MAX_OUTPUT_BODY_BYTES,
)
def list_files(engine: Engine, request: CallRequest[ListFilesBody]) -> FilesResponse:
    """The files of the run, and their sizes."""
    body = request.given
    page = manage_lease.list_leased_files(
        engine, _credentials(body), limit=body.limit, page_token=body.page_token
    )
    return FilesResponse.of(page)


LEASE_CALLS: Final[tuple[AnyRow, ...]] = (
    claim,
    acquire,
    renew,
    checkpoint,
    record_call,
    recorded_calls,
    complete,
    fail,
    release,
    await_signal,
    put_file,
    get_file,
    list_files,
)


def _claimed(claimed: ClaimedStep) -> ClaimResponse:
    run, lease = claimed.manifest, claimed.manifest.position.lease
    assert lease is not None  # noqa: S101 - it was just given
    return ClaimResponse(
        run_id=run.run_id,
        step=run.position.step,
        step_type=run.step_type,
        attempt=run.position.attempt,
        trial=run.position.trial,
        note=run.position.note,
        lease_id=lease.lease_id,
        fencing_token=run.fencing_token,
        expires_at=lease.expires_at,
        max_expires_at=lease.max_expires_at,
        heartbeat_s=run.position.dispatch.heartbeat_s,
        timeout_ms=run.position.dispatch.timeout_ms,
        given=pydantic_core.from_json(claimed.given),
        resume=_resume(claimed),
        findings=claimed.findings,
        traceparent=attempt_traceparent(run, run.traceparent, lease.lease_id),
    )


def _resume(claimed: ClaimedStep) -> ResumePoint | None:
    kept = claimed.manifest.position.checkpoint
    if kept is None or claimed.partial_results is None:
        return None
    return ResumePoint(
        phase=kept.phase,
        iteration_count=kept.iteration_count,
        partial_results=pydantic_core.from_json(claimed.partial_results),
    )


def _over_budget(run: Manifest) -> str | None:
    """Return which budget is used up, in a sentence; None: none is."""
    used_up = run.used_up(run.position.dispatch.budget)
    return None if used_up is None else used_up.finding


def _credentials(body: LeaseBody) -> LeaseCredentials:
    part = body.spent if isinstance(body, SpendingBody) else None
    spent = None if part is None else spend_of(part.tokens, part.usd)
    return LeaseCredentials(body.run_id, Fence(body.lease_id, body.fencing_token), spent)


def _progress(part: ProgressPart | None) -> Progress | None:
    if part is None:
        return None
    return Progress(fraction=part.fraction, message=progress_message(part.message))


def _error(part: ErrorPart) -> ErrorRecord:
    """Return the error as it is kept: bounded and without secrets, as one of a handler is."""
    return record_of_report(part.type, part.code, part.message, part.details, part.traceback)


def _lease(run: Manifest) -> Lease:
    assert run.position.lease is not None  # noqa: S101 - what renews a lease has one
    return run.position.lease


def _outcome(change: Change) -> OutcomeResponse:
    return OutcomeResponse(outcome=change.outcome.word)
