"""The table of calls of the runs API: a row is all that there is to know of a call.

`web/` serves the rows, clients make them, over HTTP or on a store; commands, the test kit, the
specification and docs/http-api.md follow. So all ways agree by construction, and a new call is a
row, its function and its models.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import JsonValue

from leasehold import errors
from leasehold.api.batch import BatchBody, BatchResponse
from leasehold.api.call_row import (
    BODY_BYTES,
    AnyRow,
    CallRequest,
    CallRow,
    Created,
    JsonText,
    Needs,
)
from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
    RunDeliveriesResponse,
)
from leasehold.api.operations import (
    ApproveBody,
    ContinuedRun,
    OperationBody,
    RecreateBody,
    RetryBody,
    answer_to,
)
from leasehold.api.overrides import OverrideBody, OverrideChange, OverridesResponse
from leasehold.api.registry import HealthResponse, RegistryResponse
from leasehold.api.results import CallReport, CallsResponse, FilesQuery, FilesResponse
from leasehold.api.runs import ManifestsResponse, RunsQuery, RunsResponse, StartBody, TraceResponse
from leasehold.api.sweep import SweepResponse
from leasehold.api.upkeep import AuditResponse, WhyResponse, WorkersResponse
from leasehold.domain.change import Change
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.summary import Summary, summary_of
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.audit import audit
from leasehold.services.batch import batch
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.engine import Engine
from leasehold.services.explain_run import explain_run
from leasehold.services.limits import FILE_BYTES
from leasehold.services.operate import operate
from leasehold.services.overrides import clear_override, list_overrides, set_override
from leasehold.services.paging import WHOLE_RUNS
from leasehold.services.read_deliveries import list_deliveries, read_deliveries
from leasehold.services.read_results import list_files, open_file, read_input, read_output
from leasehold.services.read_runs import list_runs, list_summaries, read_run, read_timeline
from leasehold.services.readiness import check_ready
from leasehold.services.registry_report import registry_report
from leasehold.services.start_run import start_run
from leasehold.services.sweep import sweep
from leasehold.services.sweep_result import Report
from leasehold.services.sweep_times import sweep_time
from leasehold.services.worker_notes import live_workers
from leasehold.worker.holder import host_name, is_gone

#: An input, and files in base64.
START_BYTES: Final = BODY_BYTES + FILE_BYTES * 4 // 3

#: An audit reads every run, a batch changes a thousand, each with a commit of its own, and a sweep
#: begins nothing more after half of three minutes.
_LONG_S: Final = 900.0

Body = TypeVar("Body", bound=OperationBody)
Ran = TypeVar("Ran", bound=Summary)

_OF_RUN: Final = (errors.UnknownRunError, errors.UnreadableRunError)
_OF_OUTPUT: Final = (
    *_OF_RUN,
    errors.RunUnfinishedError,
    errors.RunNotCompletedError,
    errors.OutputGoneError,
)
_OF_STEP: Final = (
    *_OF_RUN,
    errors.UnknownStepError,
    errors.StepNotCompletedError,
    errors.OutputGoneError,
)
_OF_FILE: Final = (*_OF_RUN, errors.UnknownFileError, errors.ArtifactNameError)
_OF_OPERATION: Final[tuple[type[errors.LeaseholdError], ...]] = (
    *_OF_RUN,
    errors.NotAllowedError,
    errors.StateChangedError,
    errors.CatalogMisfitError,
)


# -- runs ------------------------------------------------------------------------------------------


def _start(engine: Engine, request: CallRequest[StartBody]) -> Created[Summary]:
    return started(start_run(engine, request.given.to_request()))


def started(change: Change) -> Created[Summary]:
    """Return what a start is answered with."""
    return Created(summary_of(change.manifest), change.outcome is Outcome.STARTED)


def _runs(engine: Engine, request: CallRequest[RunsQuery]) -> RunsResponse:
    query = request.given
    wanted, token = query.to_filter(), query.page_token
    page = list_summaries(engine, wanted, limit=query.limit, page_token=token)
    return RunsResponse(runs=page.runs, next_page_token=page.next_page_token)


def _manifests(engine: Engine, request: CallRequest[RunsQuery]) -> ManifestsResponse:
    query = request.given
    wanted, token = query.to_filter(), query.page_token
    limit = min(query.limit, WHOLE_RUNS)
    return ManifestsResponse.of(list_runs(engine, wanted, limit=limit, page_token=token))


def _show(engine: Engine, request: CallRequest[None]) -> Manifest:
    return read_run(engine, request.run_id)


def _trace(engine: Engine, request: CallRequest[None]) -> TraceResponse:
    return TraceResponse(events=read_timeline(engine, request.run_id))


def _why(engine: Engine, request: CallRequest[None]) -> WhyResponse:
    here = partial(is_gone, host=host_name())
    return WhyResponse.of(explain_run(engine, request.run_id, is_gone=here))


def _input(engine: Engine, request: CallRequest[None]) -> JsonText:
    return JsonText(read_input(engine, request.run_id))


def _output(engine: Engine, request: CallRequest[None]) -> JsonText:
    return JsonText(read_output(engine, request.run_id))


def _step_output(engine: Engine, request: CallRequest[None]) -> JsonText:
    return JsonText(read_output(engine, request.run_id, request.step))


def _calls(engine: Engine, request: CallRequest[None]) -> CallsResponse:
    run = read_run(engine, request.run_id)
    return CallsResponse(calls=[CallReport.of(one) for one in run.calls])


def _files(engine: Engine, request: CallRequest[FilesQuery]) -> FilesResponse:
    query = request.given
    page = list_files(engine, request.run_id, limit=query.limit, page_token=query.page_token)
    return FilesResponse.of(page)


def _file(engine: Engine, request: CallRequest[None]) -> AbstractContextManager[ArtifactContent]:
    return open_file(engine, request.run_id, request.name)


START: Final = CallRow(
    "start",
    "POST",
    "/runs",
    "201 with the summary; 200 with that of the run which the key started before.",
    StartBody,
    Summary,
    _start,
    Needs.BEGIN,
    (
        errors.UnknownPipelineError,
        errors.InvalidInputError,
        errors.HandlerNotFoundError,
        errors.EntryActionNotFoundError,
        errors.ChainError,
        errors.ReviewerModelError,
        errors.ArtifactNameError,
        errors.TooLargeError,
        errors.IdempotencyKeyReusedError,
        errors.RunBeingPurgedError,
    ),
    limit=START_BYTES,
    creates=True,
)
RUNS: Final = CallRow(
    "runs",
    "GET",
    "/runs",
    "The summaries of a page, newest first.",
    RunsQuery,
    RunsResponse,
    _runs,
    is_long=True,
)
MANIFESTS: Final = CallRow(
    "manifests",
    "GET",
    "/manifests",
    "The manifests of a page, 50 at most, newest first; each may be as large as a run gets.",
    RunsQuery,
    ManifestsResponse,
    _manifests,
    timeout_s=_LONG_S,
)
SHOW: Final = CallRow(
    "run", "GET", "/runs/<run_id>", "The manifest.", None, Manifest, _show, refuses=_OF_RUN
)
TRACE: Final = CallRow(
    "trace",
    "GET",
    "/runs/<run_id>/trace",
    "The whole timeline, oldest first.",
    None,
    TraceResponse,
    _trace,
    refuses=_OF_RUN,
    omits_none=True,
)
WHY: Final = CallRow(
    "why",
    "GET",
    "/runs/<run_id>/why",
    "What a run waits for, until when, and what a person can do about it.",
    None,
    WhyResponse,
    _why,
    Needs.EXPLAIN,
    _OF_RUN,
)
INPUT: Final[CallRow[None, Any]] = CallRow(
    "input",
    "GET",
    "/runs/<run_id>/input",
    "What the run was started with, as it is.",
    None,
    JsonValue,
    _input,
    refuses=(*_OF_RUN, errors.ArtifactNotFoundError),
)
OUTPUT: Final[CallRow[None, Any]] = CallRow(
    "output",
    "GET",
    "/runs/<run_id>/output",
    "The output of the run: that of its last step, as it is, once the run is completed.",
    None,
    JsonValue,
    _output,
    refuses=_OF_OUTPUT,
)
STEP_OUTPUT: Final[CallRow[None, Any]] = CallRow(
    "stepOutput",
    "GET",
    "/runs/<run_id>/steps/<step>/output",
    "The output of a step, as it is; also one that a gate holds back for a decision.",
    None,
    JsonValue,
    _step_output,
    refuses=_OF_STEP,
)
ONCE: Final = CallRow(
    "calls",
    "GET",
    "/runs/<run_id>/calls",
    "The results of calls made once that a run has; no attempt makes these calls again.",
    None,
    CallsResponse,
    _calls,
    refuses=_OF_RUN,
)
FILES: Final = CallRow(
    "files",
    "GET",
    "/runs/<run_id>/files",
    "The files that handlers of the run stored, and their sizes.",
    FilesQuery,
    FilesResponse,
    _files,
    refuses=_OF_RUN,
)
FILE: Final = CallRow(
    "file",
    "GET",
    "/runs/<run_id>/files/<path:name>",
    "The bytes of a file; its name may have `/`. HEAD answers its size alone.",
    None,
    bytes,
    _file,
    refuses=_OF_FILE,
)


# -- what people do --------------------------------------------------------------------------------


def _operation(
    operation: Operation,
    says: str,
    takes: type[Body],
    gives: type[Ran],
    *refuses: type[errors.LeaseholdError],
    needs: Needs = Needs.CHANGE,
) -> CallRow[Body, Ran]:
    """Return the row of an operation: the same body once more gets the first answer."""

    def operated(engine: Engine, request: CallRequest[Body]) -> Ran:
        asked = request.given.to_request(operation, request.actor)
        return answer_to(operate(engine, request.run_id, asked), gives)

    return CallRow(
        operation.value,
        "POST",
        f"/runs/<run_id>:{operation}",
        says,
        takes,
        gives,
        operated,
        needs,
        (*_OF_OPERATION, *refuses),
        names_actor=True,
    )


def _batch(engine: Engine, request: CallRequest[BatchBody]) -> BatchResponse:
    body = request.given
    asked, wanted = body.to_request(request.actor), body.filter.to_filter()
    return BatchResponse.of(batch(engine, asked, wanted, limit=body.limit, dry_run=body.dry_run))


PAUSE: Final = _operation(
    Operation.PAUSE,
    "A running attempt ends and is recorded; nothing more is dispatched.",
    OperationBody,
    Summary,
    needs=Needs.PAUSE,
)
RESUME: Final = _operation(
    Operation.RESUME,
    "The next attempt is dispatched at once, without waiting for its backoff.",
    OperationBody,
    Summary,
)
CANCEL: Final = _operation(
    Operation.CANCEL,
    "The run is terminal. A running attempt has lost its lease.",
    OperationBody,
    Summary,
    needs=Needs.CANCEL,
)
RETRY: Final = _operation(
    Operation.RETRY,
    "The step runs again, at once, with what it has kept; an output that a gate refused is "
    "dropped.",
    RetryBody,
    ContinuedRun,
)
APPROVE: Final = _operation(
    Operation.APPROVE,
    "The output that was kept, or an edited one, is handed off.",
    ApproveBody,
    Summary,
    errors.InvalidOutputError,
    errors.HandlerNotFoundError,
    errors.TooLargeError,
)
RECREATE: Final = _operation(
    Operation.RECREATE,
    "A new run goes on where this one stopped, and keeps what was paid for; of a completed one it "
    "begins at the first step.",
    RecreateBody,
    ContinuedRun,
    errors.AlreadyRecreatedError,
    errors.UnknownPipelineError,
    errors.UnknownKeyError,
    errors.InvalidInputError,
    errors.HandlerNotFoundError,
    errors.EntryActionNotFoundError,
    errors.ChainError,
    errors.ReviewerModelError,
    errors.PartialOutputError,
    errors.TooLargeError,
)
OPERATIONS: Final[Mapping[Operation, AnyRow]] = {
    Operation.PAUSE: PAUSE,
    Operation.RESUME: RESUME,
    Operation.CANCEL: CANCEL,
    Operation.RETRY: RETRY,
    Operation.APPROVE: APPROVE,
    Operation.RECREATE: RECREATE,
}
BATCH: Final = CallRow(
    "batch",
    "POST",
    "/runs:batch",
    "How many runs fit and were changed, and which were refused, and why.",
    BatchBody,
    BatchResponse,
    _batch,
    Needs.CHANGE,
    names_actor=True,
    timeout_s=_LONG_S,
)


# -- announcements ---------------------------------------------------------------------------------


def _run_deliveries(engine: Engine, request: CallRequest[None]) -> RunDeliveriesResponse:
    return RunDeliveriesResponse.of(read_deliveries(engine, request.run_id))


def _deliveries(engine: Engine, request: CallRequest[DeliveriesQuery]) -> DeliveriesResponse:
    query = request.given
    wanted, token = query.to_filter(), query.page_token
    page = list_deliveries(engine, wanted, limit=query.limit, page_token=token)
    return DeliveriesResponse.of(page)


def _deliver(engine: Engine, request: CallRequest[DeliverBody]) -> DeliveryReport:
    body, actor = request.given, request.actor
    owed = request_delivery(engine, request.run_id, body.channel, actor=actor, reason=body.reason)
    return DeliveryReport.of(owed)


RUN_DELIVERIES: Final = CallRow(
    "runDeliveries",
    "GET",
    "/runs/<run_id>/deliveries",
    "What channels were told of a run, or are owed, newest first.",
    None,
    RunDeliveriesResponse,
    _run_deliveries,
    refuses=_OF_RUN,
)
DELIVER: Final = CallRow(
    "deliver",
    "POST",
    "/runs/<run_id>:deliver",
    "Tell a channel of the run once more, as it was announced last.",
    DeliverBody,
    DeliveryReport,
    _deliver,
    Needs.CHANGE,
    (
        *_OF_RUN,
        errors.UnknownKeyError,
        errors.UnknownDeliveryError,
        errors.UnreadableDeliveryError,
        errors.DeliveryClaimedError,
    ),
    names_actor=True,
)
DELIVERIES: Final = CallRow(
    "deliveries",
    "GET",
    "/deliveries",
    "What channels were told of all runs, or are owed: a page, newest first.",
    DeliveriesQuery,
    DeliveriesResponse,
    _deliveries,
)


# -- upkeep ----------------------------------------------------------------------------------------


def _audit(engine: Engine, _: CallRequest[None]) -> AuditResponse:
    return AuditResponse.of(audit(engine))


def _repair(engine: Engine, _: CallRequest[None]) -> AuditResponse:
    return AuditResponse.of(audit(engine, repair=True))


def _sweep(engine: Engine, _: CallRequest[None]) -> SweepResponse:
    done = sweep(engine, time=sweep_time("serve_api"), report=Report.IF_DUE)
    return SweepResponse.model_validate(done.counts())


def _registry(engine: Engine, _: CallRequest[None]) -> RegistryResponse:
    return RegistryResponse.model_validate(registry_report(engine))


def _workers(engine: Engine, _: CallRequest[None]) -> WorkersResponse:
    return WorkersResponse.of(live_workers(engine))


def _overrides(engine: Engine, _: CallRequest[None]) -> OverridesResponse:
    return OverridesResponse.model_validate({"overrides": list_overrides(engine)})


def _override(engine: Engine, request: CallRequest[OverrideBody]) -> OverrideChange:
    asked = request.given.to_request(request.step, request.actor)
    return OverrideChange.model_validate(set_override(engine, asked))


def _clear(engine: Engine, request: CallRequest[None]) -> OverrideChange:
    return OverrideChange.model_validate(clear_override(engine, request.step))


def _health(_engine: Engine, _: CallRequest[None]) -> HealthResponse:
    return HealthResponse()


def _ready(engine: Engine, _: CallRequest[None]) -> HealthResponse:
    check_ready(engine)
    return HealthResponse()


def _openapi(_engine: Engine, _: CallRequest[None]) -> JsonText:
    return specified(CALLS)


@functools.cache
def specified(rows: tuple[AnyRow, ...]) -> JsonText:
    """Return the specification of these calls."""
    from leasehold.api.openapi import specification  # noqa: PLC0415 - only who is asked for it

    return JsonText(json.dumps(specification(rows)))


AUDIT: Final = CallRow(
    "audit",
    "GET",
    "/audit",
    "Which runs are not in order, and what their repair came to.",
    None,
    AuditResponse,
    _audit,
    timeout_s=_LONG_S,
)
REPAIR: Final = CallRow(
    "repair",
    "POST",
    "/audit:repair",
    "Which runs are not in order, and what their repair came to.",
    None,
    AuditResponse,
    _repair,
    Needs.CHANGE,
    timeout_s=_LONG_S,
)
SWEEP: Final = CallRow(
    "sweep",
    "POST",
    "/sweep",
    "One sweep, as Cloud Scheduler has one each minute.",
    None,
    SweepResponse,
    _sweep,
    Needs.CHANGE,
    timeout_s=_LONG_S,
)
REGISTRY: Final = CallRow(
    "registry",
    "GET",
    "/registry",
    "What is in force per step type, with the source of each value.",
    None,
    RegistryResponse,
    _registry,
    Needs.CATALOG,
)
WORKERS: Final = CallRow(
    "workers",
    "GET",
    "/workers",
    "Who works on the store; of deployed functions, those that did within the last minutes.",
    None,
    WorkersResponse,
    _workers,
)
OVERRIDES: Final = CallRow(
    "overrides",
    "GET",
    "/overrides",
    "The overrides of step limits, with who set them, why, and until when.",
    None,
    OverridesResponse,
    _overrides,
    Needs.EXPLAIN,
)
OVERRIDE: Final = CallRow(
    "override",
    "POST",
    "/overrides/<step>:set",
    "What is set now, in force at the next dispatch within 10 s, and what was set before.",
    OverrideBody,
    OverrideChange,
    _override,
    Needs.BEGIN,
    (errors.UnknownKeyError,),
    names_actor=True,
)
CLEAR_OVERRIDE: Final = CallRow(
    "clearOverride",
    "POST",
    "/overrides/<step>:clear",
    "What was set for the step, which has its own limits again from the next dispatch on.",
    None,
    OverrideChange,
    _clear,
    Needs.CHANGE,
    (errors.UnknownKeyError,),
)
HEALTH: Final = CallRow(
    "health",
    "GET",
    "/health",
    "The function runs; whether its store answers, other requests tell.",
    None,
    HealthResponse,
    _health,
)
OPENAPI: Final[CallRow[None, Any]] = CallRow(
    "openapi",
    "GET",
    "/openapi.json",
    "This API as an OpenAPI 3.1 specification.",
    None,
    JsonValue,
    _openapi,
)
READY: Final = CallRow(
    "ready",
    "GET",
    "/ready",
    "It could work now: its store takes a write, and its artifacts answer, within 3 s.",
    None,
    HealthResponse,
    _ready,
    refuses=(errors.NotReadyError,),
)

#: All calls of the runs API, in the order of docs/http-api.md.
CALLS: Final[tuple[AnyRow, ...]] = (
    START,
    RUNS,
    MANIFESTS,
    SHOW,
    TRACE,
    WHY,
    INPUT,
    OUTPUT,
    STEP_OUTPUT,
    ONCE,
    FILES,
    FILE,
    RUN_DELIVERIES,
    *OPERATIONS.values(),
    DELIVER,
    BATCH,
    DELIVERIES,
    AUDIT,
    REPAIR,
    SWEEP,
    REGISTRY,
    WORKERS,
    OVERRIDES,
    OVERRIDE,
    CLEAR_OVERRIDE,
    HEALTH,
    READY,
    OPENAPI,
)
