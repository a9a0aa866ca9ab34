"""`/leases:claim` and so on: steps for remote workers, under leases."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Self

from pydantic import AwareDatetime

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, RequestPart
from leasehold.api.response_model import ResponseModel
from leasehold.api.results import FileEntry
from leasehold.domain.result import OUTPUT_STATUSES, OutputStatus
from leasehold.domain.retry import MAX_RETRY_AFTER
from leasehold.services.limits import MAX_PAGE


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


class LeaseBody(RequestModel):
    """What each call of a worker shows of its lease."""

    run_id: Annotated[str, rules.filled_text()]
    lease_id: Annotated[str, rules.printable()]
    fencing_token: Annotated[int, rules.whole(1)]


class ProgressPart(RequestPart):
    """How far the step is; the message is kept up to its first 200 characters."""

    fraction: Annotated[float, rules.share()]
    message: Annotated[str, rules.text()] = ""


class RenewBody(LeaseBody):
    """`POST /leases:renew`."""

    progress: ProgressPart | None = None


class CheckpointBody(LeaseBody):
    """`POST /leases:checkpoint`. `partialResults` may be any JSON value, and is read as text."""

    iteration_count: Annotated[int, rules.whole(0)]
    partial_results: Annotated[str, rules.json_text()]
    phase: Annotated[str, rules.printable(least=0)] = ""


class CompleteBody(LeaseBody):
    """`POST /leases:complete`. `output` may be any JSON value, and is read as text."""

    output: Annotated[str, rules.json_text()]
    status: Annotated[OutputStatus, rules.literal(OUTPUT_STATUSES)] = "SUCCESS"


class ErrorPart(RequestPart):
    """Why an attempt failed; kept without secrets, as an error of a handler is."""

    message: Annotated[str, rules.filled_text()]
    code: Annotated[str, rules.printable()] = "remote_error"
    type: Annotated[str, rules.printable()] = "RemoteError"
    details: Annotated[Any, rules.json_value()] = None
    traceback: Annotated[str, rules.text()] = ""


class FailBody(LeaseBody):
    """`POST /leases:fail`. The next attempt is not before `retryAfterS`, at most a day."""

    error: ErrorPart
    permanent: Annotated[bool, rules.flag()] = False
    retry_after_s: Annotated[float, rules.seconds(MAX_RETRY_AFTER)] | None = None


class ReleaseBody(LeaseBody):
    """`POST /leases:release`."""

    continued: Annotated[bool, rules.flag()] = False


class PutFileBody(LeaseBody):
    """`POST /leases:putFile`. A file of that name is replaced."""

    name: Annotated[str, rules.filled_text()]
    content: Annotated[bytes, rules.base64_bytes()]


class GetFileBody(LeaseBody):
    """`POST /leases:getFile`."""

    name: Annotated[str, rules.filled_text()]


class ListFilesBody(LeaseBody):
    """`POST /leases:listFiles`; answered as `GET /runs/{id}/files`."""

    limit: Annotated[int, rules.whole(1, MAX_PAGE)] = MAX_PAGE
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


class CheckpointResponse(ResponseModel):
    """Until when the lease runs now."""

    expires_at: AwareDatetime
