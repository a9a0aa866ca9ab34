"""The function serve_api: a table of routes, each a few lines over a service."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from threading import Semaphore
from typing import Final

import flask
from pydantic import JsonValue
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import BaseConverter, Map, Rule

from leasehold import errors
from leasehold.api.batch import BatchBody, BatchResponse
from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
    RunDeliveriesResponse,
)
from leasehold.api.operations import ANSWERS, BODIES, OperationBody, answer_to
from leasehold.api.overrides import (
    OverrideBody,
    OverrideChange,
    OverridesResponse,
)
from leasehold.api.registry import HealthResponse, RegistryResponse
from leasehold.api.results import FilesQuery, FilesResponse
from leasehold.api.runs import ManifestsResponse, RunsQuery, RunsResponse, StartBody, TraceResponse
from leasehold.api.sweep import SweepResponse
from leasehold.api.upkeep import AuditResponse, WhyResponse, WorkersResponse
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.summary import Summary, summary_of
from leasehold.services import batch as batch_service
from leasehold.services import operate as operate_service
from leasehold.services.audit import audit as audit_runs
from leasehold.services.explain_run import explain_run
from leasehold.services.limits import FILE_BYTES
from leasehold.services.overrides import clear_override, list_overrides, set_override
from leasehold.services.paging import SCAN_PAGE, WHOLE_RUNS
from leasehold.services.read_runs import list_runs, list_summaries, read_run, read_timeline
from leasehold.services.readiness import check_ready
from leasehold.services.registry_report import registry_report
from leasehold.services.sweep import sweep as sweep_runs
from leasehold.services.sweep_result import Report
from leasehold.services.sweep_times import sweep_time
from leasehold.services.worker_notes import live_workers
from leasehold.web.callers import caller_of, checks_caller
from leasehold.web.engine_provider import EngineSource
from leasehold.web.request_body import BODY_BYTES, drops_rest
from leasehold.web.request_trace import names_trace
from leasehold.web.responses import guarded, refuse_method, refuse_path, respond
from leasehold.web.route import Call, Route
from leasehold.web.run_deliveries import deliver, deliveries, run_deliveries
from leasehold.web.run_results import file, files, output, run_input, step_output
from leasehold.worker.holder import host_name, is_gone

#: An input, and files in base64.
START_BYTES: Final = BODY_BYTES + FILE_BYTES * 4 // 3

#: Long lists are made two at a time: each takes some megabytes, which a process does not give back,
#: and more at once are no faster, as Python makes them in one thread at a time.
_LONG_LISTS: Final = Semaphore(2)


def start(call: Call[StartBody]) -> flask.Response:
    """201 with the summary; 200 with that of the run which the key started before."""
    change = call.provider.start_run(call.given.to_request())
    return respond(summary_of(change.manifest), 201 if change.outcome is Outcome.STARTED else 200)


def runs(call: Call[RunsQuery]) -> flask.Response:
    """The summaries of a page, newest first."""
    query = call.given
    wanted, token = query.to_filter(), query.page_token
    with _LONG_LISTS if query.limit > SCAN_PAGE else nullcontext():
        page = list_summaries(call.engine, wanted, limit=query.limit, page_token=token)
        return respond(RunsResponse.of(page))


def manifests(call: Call[RunsQuery]) -> flask.Response:
    """The manifests of a page, 50 at most, newest first; each may be as large as a run gets."""
    query = call.given
    wanted, token = query.to_filter(), query.page_token
    limit = min(query.limit, WHOLE_RUNS)
    page = list_runs(call.engine, wanted, limit=limit, page_token=token)
    return respond(ManifestsResponse.of(page))


def show(call: Call[None]) -> flask.Response:
    """The manifest."""
    return respond(read_run(call.engine, call.run_id))


def trace(call: Call[None]) -> flask.Response:
    """The whole timeline, oldest first."""
    events = read_timeline(call.engine, call.run_id)
    return respond(TraceResponse(events=events), exclude_none=True)


def operate(operation: Operation, call: Call[OperationBody]) -> flask.Response:
    """The summary of the run; of recreate, of the new one.

    The same body once more, after an answer that was lost, gets the first answer.
    """
    request = call.given.to_request(operation, call.actor)
    change = operate_service.operate(call.engine, call.run_id, request)
    return respond(answer_to(operation, change))


def batch(call: Call[BatchBody]) -> flask.Response:
    """How many runs fit and were changed, and which were refused, and why."""
    body = call.given
    result = batch_service.batch(
        call.engine,
        body.to_request(call.actor),
        body.filter.to_filter(),
        limit=body.limit,
        dry_run=body.dry_run,
    )
    return respond(BatchResponse.of(result))


def registry(call: Call[None]) -> flask.Response:
    """What is in force per step type, with the source of each value."""
    return respond(RegistryResponse.model_validate(registry_report(call.engine)))


def overrides(call: Call[None]) -> flask.Response:
    """The overrides of step limits, with who set them, why, and until when."""
    return respond(OverridesResponse.model_validate({"overrides": list_overrides(call.engine)}))


def override(call: Call[OverrideBody]) -> flask.Response:
    """What is set now, in force at the next dispatch within 10 s, and what was set before."""
    request = call.given.to_request(call.step, call.actor)
    return respond(OverrideChange.model_validate(set_override(call.engine, request)))


def clear(call: Call[None]) -> flask.Response:
    """What was set for the step, which has its own limits again from the next dispatch on."""
    return respond(OverrideChange.model_validate(clear_override(call.engine, call.step)))


def why(call: Call[None]) -> flask.Response:
    """What a run waits for, until when, and what a person can do about it."""
    here = partial(is_gone, host=host_name())
    return respond(WhyResponse.of(explain_run(call.engine, call.run_id, is_gone=here)))


def audit(call: Call[None], *, repair: bool) -> flask.Response:
    """Which runs are not in order, and what their repair came to."""
    return respond(AuditResponse.of(audit_runs(call.engine, repair=repair)))


def sweep(call: Call[None]) -> flask.Response:
    """One sweep, as Cloud Scheduler has one each minute."""
    result = sweep_runs(call.engine, time=sweep_time("serve_api"), report=Report.IF_DUE)
    return respond(SweepResponse.model_validate(result.counts()))


def workers(call: Call[None]) -> flask.Response:
    """Who works on the store; of deployed functions, those that did within the last minutes."""
    return respond(WorkersResponse.of(live_workers(call.engine)))


def health(_call: Call[None]) -> flask.Response:
    """The function runs; whether its store answers, other requests tell."""
    return respond(HealthResponse())


def ready(call: Call[None]) -> flask.Response:
    """It could work now: its store takes a write, and its artifacts answer, within 3 s."""
    if not call.provider.looks_after_runs:
        problem = "it still takes up the runs of the store, or its clockwork hangs"
        raise errors.NotReadyError(problem=problem)
    check_ready(call.engine)
    return respond(HealthResponse())


_OF_RUN: Final = (errors.UnknownRunError, errors.UnreadableRunError)
_START_ERRORS: Final = (
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
)
_INPUT_ERRORS: Final = (*_OF_RUN, errors.ArtifactNotFoundError)
_OUTPUT_ERRORS: Final = (
    *_OF_RUN,
    errors.RunUnfinishedError,
    errors.RunNotCompletedError,
    errors.OutputGoneError,
)
_STEP_ERRORS: Final = (
    *_OF_RUN,
    errors.UnknownStepError,
    errors.StepNotCompletedError,
    errors.OutputGoneError,
)
_FILE_ERRORS: Final = (*_OF_RUN, errors.UnknownFileError, errors.ArtifactNameError)
_DELIVER_ERRORS: Final = (
    *_OF_RUN,
    errors.UnknownKeyError,
    errors.UnknownDeliveryError,
    errors.UnreadableDeliveryError,
    errors.DeliveryClaimedError,
)
_OPERATION_ERRORS: Final = (
    *_OF_RUN,
    errors.NotAllowedError,
    errors.StateChangedError,
    errors.CatalogMisfitError,
)
_RECREATE_ERRORS: Final = (
    *_OPERATION_ERRORS,
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
_APPROVE_ERRORS: Final = (
    *_OPERATION_ERRORS,
    errors.InvalidOutputError,
    errors.HandlerNotFoundError,
    errors.TooLargeError,
)
_REFUSES: Final = {Operation.RECREATE: _RECREATE_ERRORS, Operation.APPROVE: _APPROVE_ERRORS}


def _operation(operation: Operation) -> Route:
    takes, answers = BODIES.get(operation, OperationBody), ANSWERS.get(operation, Summary)
    path = f"/runs/<run_id>:{operation}"
    refuses = _REFUSES.get(operation, _OPERATION_ERRORS)
    return Route("POST", path, partial(operate, operation), takes, answers, refuses)


ROUTES: Final = (
    Route("POST", "/runs", start, StartBody, Summary, _START_ERRORS, START_BYTES),
    Route("GET", "/runs", runs, RunsQuery, RunsResponse),
    Route("GET", "/manifests", manifests, RunsQuery, ManifestsResponse),
    Route("GET", "/runs/<run_id>", show, None, Manifest, _OF_RUN),
    Route("GET", "/runs/<run_id>/trace", trace, None, TraceResponse, _OF_RUN),
    Route("GET", "/runs/<run_id>/why", why, None, WhyResponse, _OF_RUN),
    Route("GET", "/runs/<run_id>/input", run_input, None, JsonValue, _INPUT_ERRORS),
    Route("GET", "/runs/<run_id>/output", output, None, JsonValue, _OUTPUT_ERRORS),
    Route("GET", "/runs/<run_id>/steps/<step>/output", step_output, None, JsonValue, _STEP_ERRORS),
    Route("GET", "/runs/<run_id>/files", files, FilesQuery, FilesResponse, _OF_RUN),
    Route("GET", "/runs/<run_id>/files/<path:name>", file, None, bytes, _FILE_ERRORS),
    Route("GET", "/runs/<run_id>/deliveries", run_deliveries, None, RunDeliveriesResponse, _OF_RUN),
    *map(_operation, Operation),
    Route("POST", "/runs/<run_id>:deliver", deliver, DeliverBody, DeliveryReport, _DELIVER_ERRORS),
    Route("POST", "/runs:batch", batch, BatchBody, BatchResponse),
    Route("GET", "/deliveries", deliveries, DeliveriesQuery, DeliveriesResponse),
    Route("GET", "/audit", partial(audit, repair=False), None, AuditResponse),
    Route("POST", "/audit:repair", partial(audit, repair=True), None, AuditResponse),
    Route("POST", "/sweep", sweep, None, SweepResponse),
    Route("GET", "/registry", registry, None, RegistryResponse),
    Route("GET", "/workers", workers, None, WorkersResponse),
    Route("GET", "/overrides", overrides, None, OverridesResponse),
    Route(
        "POST",
        "/overrides/<step>:set",
        override,
        OverrideBody,
        OverrideChange,
        (errors.UnknownKeyError,),
    ),
    Route(
        "POST",
        "/overrides/<step>:clear",
        clear,
        None,
        OverrideChange,
        (errors.UnknownKeyError,),
    ),
    Route("GET", "/health", health, None, HealthResponse),
    Route("GET", "/ready", ready, None, HealthResponse, (errors.NotReadyError,)),
)


class _RunId(BaseConverter):
    """A part of a path that ends where an operation is named: `/runs/{id}:pause`."""

    regex = "[^/:]+"
    part_isolating = True


ADDRESSES: Final = Map(
    [Rule(route.path, methods=[route.method], endpoint=route) for route in ROUTES],
    strict_slashes=False,
    converters={"default": _RunId},
)

#: The paths that are served, as werkzeug writes them.
PATHS: Final = tuple(sorted({route.path for route in ROUTES}))


def is_path(path: str) -> bool:
    """Return whether something is served at a path, by whatever method."""
    return bool(ADDRESSES.bind("").allowed_methods(path))


def body_limit(method: str, path: str) -> int:
    """Return how many bytes the body of a request may have; 0: nothing is served there so."""
    try:
        route, _ = ADDRESSES.bind("").match(path, method)
    except HTTPException:
        return 0
    limit: int = route.limit
    return limit


@names_trace
@drops_rest
@checks_caller
def answer_api(provider: EngineSource, request: flask.Request) -> flask.Response:
    """Answer a request to the runs API."""
    try:
        route, values = ADDRESSES.bind_to_environ(request.environ).match()
    except MethodNotAllowed as error:
        return refuse_method(
            request.path, ", ".join(sorted(set(error.valid_methods or ()) - {"HEAD"}))
        )
    except HTTPException:
        return refuse_path(request.path, PATHS)
    caller = caller_of(request)
    return guarded(
        lambda: route.answer(
            Call(provider, request.headers, route.given(request), caller, **values)
        )
    )
