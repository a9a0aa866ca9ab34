"""The table of calls of the runs API: a row is all that there is to know of a call.

Each function here is a row, with the columns above it, and its docstring for a sentence. `web/`
serves the rows, clients make them, over HTTP or on a store; commands, the test kit, the
specification and docs/http-api.md follow. So all ways agree by construction. A new call is a row
and its models; one for people also has a method in `client/client.py` and a command.
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
from leasehold.api.budgets import BudgetsResponse, LimitReport
from leasehold.api.call_row import (
    MAX_BODY_BYTES,
    AnyRow,
    CallRequest,
    CallRow,
    Created,
    JsonText,
    Needs,
    PlainText,
    call,
)
from leasehold.api.children import ChildrenResponse
from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
    RunDeliveriesResponse,
)
from leasehold.api.functions import SweepResponse
from leasehold.api.metrics import metrics_text
from leasehold.api.operations import (
    ApproveBody,
    BatchBody,
    BatchResponse,
    ContinuedRun,
    OperationBody,
    RecreateBody,
    RequestedStack,
    ResumeBody,
    RetryBody,
    answer_to,
)
from leasehold.api.overrides import OverrideBody, OverrideChange, OverridesResponse
from leasehold.api.pauses import (
    PauseBody,
    PauseChange,
    PauseReport,
    PausesResponse,
    ResumedPause,
    ResumePauseBody,
)
from leasehold.api.registry import HealthResponse, RegistryResponse
from leasehold.api.results import CallsResponse, FilesResponse, PageQuery
from leasehold.api.runs import (
    ManifestsResponse,
    RunResponse,
    RunsQuery,
    RunsResponse,
    StartBody,
    TraceResponse,
)
from leasehold.api.schedules import (
    BackfillBody,
    PauseScheduleBody,
    ScheduledRuns,
    ScheduleResponse,
    SchedulesResponse,
    TriggerBody,
)
from leasehold.api.signals import SignalBody, SignalResponse
from leasehold.api.upkeep import (
    AuditResponse,
    CountsResponse,
    OverviewResponse,
    WhyResponse,
    WorkersResponse,
)
from leasehold.domain.change import Change
from leasehold.domain.lifecycle import Operation
from leasehold.domain.status import Outcome
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.timestamps import time_or_date
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services import overrides as limits
from leasehold.services import schedules as clock
from leasehold.services.audit import audit as audit_runs
from leasehold.services.audit import waiting_for_code
from leasehold.services.batch import batch as change_runs
from leasehold.services.count_runs import count_runs, read_figures
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.engine import Engine
from leasehold.services.explain_run import explain_page, explain_run
from leasehold.services.operate import operate, request_stack
from leasehold.services.paging import WHOLE_RUNS
from leasehold.services.pauses import list_pauses, pause_step, resume_step
from leasehold.services.read_children import read_children
from leasehold.services.read_deliveries import list_deliveries, read_deliveries
from leasehold.services.read_results import (
    list_calls,
    list_files,
    open_file,
    read_input,
    read_output,
)
from leasehold.services.read_runs import list_runs, list_summaries, read_run, read_timeline
from leasehold.services.readiness import artifacts_outage, check_ready
from leasehold.services.registry_report import registry_report
from leasehold.services.request_bounds import MAX_FILE_BYTES
from leasehold.services.signal_run import send_signal
from leasehold.services.start_run import start_run
from leasehold.services.sweep import Report, sweep_time
from leasehold.services.sweep import sweep as sweep_runs
from leasehold.services.worker_notes import live_workers
from leasehold.worker.stopping.holder import host_name, is_gone

#: An input, and files in base64.
MAX_START_BODY_BYTES: Final = MAX_BODY_BYTES + MAX_FILE_BYTES * 4 // 3

#: An audit reads every run, a batch changes a thousand, each with its own commit, and a sweep
#: begins nothing more after half of three minutes.
_LONG_CALL_S: Final = 900.0

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


@call(
    "POST",
    "/runs",
    Summary,
    takes=StartBody,
    needs=Needs.BEGIN,
    refuses=(
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
    limit=MAX_START_BODY_BYTES,
    creates=True,
)
def start(engine: Engine, request: CallRequest[StartBody]) -> Created[Summary]:
    """201 with the summary; 200 with that of the run which the key started before."""
    return started(start_run(engine, request.given.to_request(request.traceparent)))


def started(change: Change) -> Created[Summary]:
    """Return what a start is answered with."""
    return Created(summary_of(change.manifest), change.outcome is Outcome.STARTED)


@call("GET", "/runs", RunsResponse, takes=RunsQuery, is_long=True)
def runs(engine: Engine, request: CallRequest[RunsQuery]) -> RunsResponse:
    """The summaries of a page, newest first."""
    query = request.given
    wanted, token = query.to_filter(), query.page_token
    page = list_summaries(engine, wanted, limit=query.limit, page_token=token)
    return RunsResponse(runs=page.runs, next_page_token=page.next_page_token)


@call("GET", "/", OverviewResponse, takes=RunsQuery, needs=Needs.EXPLAIN, is_long=True)
def overview(engine: Engine, request: CallRequest[RunsQuery]) -> OverviewResponse:
    """The runs of a page, 50 at most, each with the sentence of `why` and its troubles."""
    query, here = request.given, partial(is_gone, host=host_name())
    wanted, token = query.to_filter(), query.page_token
    limit = min(query.limit, WHOLE_RUNS - 1)
    page = explain_page(engine, wanted, limit=limit, page_token=token, is_gone=here)
    return OverviewResponse.of(page)


@call("GET", "/counts", CountsResponse)
def counts(engine: Engine, _: CallRequest[None]) -> CountsResponse:
    """How many runs are in each state, and were given up for each reason, up to a bound."""
    return CountsResponse.of(count_runs(engine))


@call("GET", "/metrics", PlainText, needs=Needs.EXPLAIN)
def metrics(engine: Engine, _: CallRequest[None]) -> PlainText:
    """Figures for alerts, as the text that Prometheus reads; each is counted up to a bound."""
    return metrics_text(read_figures(engine))


@call("GET", "/manifests", ManifestsResponse, takes=RunsQuery, timeout_s=_LONG_CALL_S)
def manifests(engine: Engine, request: CallRequest[RunsQuery]) -> ManifestsResponse:
    """The manifests of a page, 50 at most, newest first; each may be as large as a run gets."""
    query = request.given
    wanted, token = query.to_filter(), query.page_token
    limit = min(query.limit, WHOLE_RUNS)
    return ManifestsResponse.of(list_runs(engine, wanted, limit=limit, page_token=token))


@call("GET", "/runs/<run_id>", RunResponse, refuses=_OF_RUN)
def run(engine: Engine, request: CallRequest[None]) -> RunResponse:
    """The manifest."""
    return RunResponse.of(read_run(engine, request.run_id))


@call("GET", "/runs/<run_id>/trace", TraceResponse, refuses=_OF_RUN, omits_none=True)
def trace(engine: Engine, request: CallRequest[None]) -> TraceResponse:
    """The whole timeline, oldest first."""
    return TraceResponse(events=read_timeline(engine, request.run_id))


@call("GET", "/runs/<run_id>/why", WhyResponse, needs=Needs.EXPLAIN, refuses=_OF_RUN)
def why(engine: Engine, request: CallRequest[None]) -> WhyResponse:
    """The reason why a run waits, until when, and what a person can do about it."""
    here = partial(is_gone, host=host_name())
    return WhyResponse.of(explain_run(engine, request.run_id, is_gone=here))


@call(
    "GET",
    "/runs/<run_id>/input",
    JsonValue,
    refuses=(*_OF_RUN, errors.ArtifactNotFoundError),
    name="input",
)
def run_input(engine: Engine, request: CallRequest[None]) -> Any:
    """The input of the run, unchanged."""
    return JsonText(read_input(engine, request.run_id))


@call("GET", "/runs/<run_id>/output", JsonValue, refuses=_OF_OUTPUT)
def output(engine: Engine, request: CallRequest[None]) -> Any:
    """The output of the run: that of its last step, as it is, once the run is completed."""
    return JsonText(read_output(engine, request.run_id))


@call("GET", "/runs/<run_id>/steps/<step>/output", JsonValue, refuses=_OF_STEP)
def step_output(engine: Engine, request: CallRequest[None]) -> Any:
    """The output of a step, as it is; also one that a gate holds back for a decision."""
    return JsonText(read_output(engine, request.run_id, request.step))


@call(
    "GET",
    "/runs/<run_id>/calls",
    CallsResponse,
    takes=PageQuery,
    refuses=_OF_RUN,
    name="calls",
)
def once(engine: Engine, request: CallRequest[PageQuery]) -> CallsResponse:
    """The recorded results of a run; no attempt makes these calls again."""
    query = request.given
    page = list_calls(engine, request.run_id, limit=query.limit, page_token=query.page_token)
    return CallsResponse.of(page)


@call("GET", "/runs/<run_id>/children", ChildrenResponse, refuses=_OF_RUN)
def children(engine: Engine, request: CallRequest[None]) -> ChildrenResponse:
    """The small runs that the run waits for at its place, and how far they are."""
    return ChildrenResponse.of(read_children(engine, request.run_id))


@call("GET", "/runs/<run_id>/files", FilesResponse, takes=PageQuery, refuses=_OF_RUN)
def files(engine: Engine, request: CallRequest[PageQuery]) -> FilesResponse:
    """The files that handlers of the run stored, and their sizes."""
    query = request.given
    page = list_files(engine, request.run_id, limit=query.limit, page_token=query.page_token)
    return FilesResponse.of(page)


@call("GET", "/runs/<run_id>/files/<path:name>", bytes, refuses=_OF_FILE)
def file(engine: Engine, request: CallRequest[None]) -> AbstractContextManager[ArtifactContent]:
    """The bytes of a file; its name may have `/`. HEAD answers its size alone."""
    return open_file(engine, request.run_id, request.name)


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

    operated.__name__, operated.__doc__ = operation.value, says
    path, own = f"/runs/<run_id>:{operation}", (*_OF_OPERATION, *refuses)
    return call("POST", path, gives, takes, needs=needs, refuses=own, names_actor=True)(operated)


@call(
    "POST",
    "/runs:batch",
    BatchResponse,
    takes=BatchBody,
    needs=Needs.CHANGE,
    needs_for=lambda body: OPERATIONS[body.action].needs,
    names_actor=True,
    timeout_s=_LONG_CALL_S,
)
def batch(engine: Engine, request: CallRequest[BatchBody]) -> BatchResponse:
    """How many runs fit and were changed, and which were refused, and why."""
    body = request.given
    asked, wanted = body.to_request(request.actor), body.filter.to_filter()
    done = change_runs(engine, asked, wanted, limit=body.limit, dry_run=body.dry_run)
    return BatchResponse.of(done)


pause: Final = _operation(
    Operation.PAUSE,
    "A running attempt ends and is recorded; nothing more is dispatched.",
    OperationBody,
    Summary,
    needs=Needs.PAUSE,
)
resume: Final = _operation(
    Operation.RESUME,
    "The next attempt is dispatched at once, without waiting for its backoff; a run that is "
    "blocked over its budget needs a higher one.",
    ResumeBody,
    Summary,
    errors.BudgetUsedUpError,
)
cancel: Final = _operation(
    Operation.CANCEL,
    "The run is terminal. A running attempt has lost its lease.",
    OperationBody,
    Summary,
    needs=Needs.CANCEL,
)
retry: Final = _operation(
    Operation.RETRY,
    "The step runs again, at once, with what it has kept; an output that a gate refused is "
    "dropped.",
    RetryBody,
    ContinuedRun,
)
approve: Final = _operation(
    Operation.APPROVE,
    "The output that was kept, or an edited one, is handed off.",
    ApproveBody,
    Summary,
    errors.InvalidOutputError,
    errors.HandlerNotFoundError,
    errors.TooLargeError,
)
recreate: Final = _operation(
    Operation.RECREATE,
    "A new run goes on where this one stopped, and keeps what was paid for; of a completed one it "
    "begins at the first step.",
    RecreateBody,
    ContinuedRun,
    errors.AlreadyRecreatedError,
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
    Operation.PAUSE: pause,
    Operation.RESUME: resume,
    Operation.CANCEL: cancel,
    Operation.RETRY: retry,
    Operation.APPROVE: approve,
    Operation.RECREATE: recreate,
}


@call(
    "POST",
    "/runs/<run_id>/signals/<name>",
    SignalResponse,
    takes=SignalBody,
    needs=Needs.CHANGE,
    refuses=(
        *_OF_RUN,
        errors.UnknownSignalError,
        errors.SignalNotAwaitedError,
        errors.SignalIdReusedError,
        errors.InvalidSignalError,
        errors.TooLargeError,
    ),
    names_actor=True,
)
def signal(engine: Engine, request: CallRequest[SignalBody]) -> SignalResponse:
    """The run goes on with the value if it waits for it; else that is kept for the wait to come."""
    asked = request.given.to_request(request.name, request.actor)
    change, signal_id = send_signal(engine, request.run_id, asked)
    return SignalResponse.of(change, asked.name, signal_id)


@call(
    "POST",
    "/runs/<run_id>:stack",
    RequestedStack,
    needs=Needs.PAUSE,
    refuses=(*_OF_RUN, errors.NotAllowedError),
    names_actor=True,
)
def stack(engine: Engine, request: CallRequest[None]) -> RequestedStack:
    """The attempt that runs is asked what it does, and goes on; a trace event has its answer."""
    return RequestedStack.of(request_stack(engine, request.run_id, request.actor))


# -- announcements ---------------------------------------------------------------------------------


@call("GET", "/runs/<run_id>/deliveries", RunDeliveriesResponse, refuses=_OF_RUN)
def run_deliveries(engine: Engine, request: CallRequest[None]) -> RunDeliveriesResponse:
    """The announcements of a run, sent or still due, newest first."""
    return RunDeliveriesResponse.of(read_deliveries(engine, request.run_id))


@call("GET", "/deliveries", DeliveriesResponse, takes=DeliveriesQuery)
def deliveries(engine: Engine, request: CallRequest[DeliveriesQuery]) -> DeliveriesResponse:
    """The announcements of all runs, sent or still due: a page, newest first."""
    query = request.given
    wanted, token = query.to_filter(), query.page_token
    page = list_deliveries(engine, wanted, limit=query.limit, page_token=token)
    return DeliveriesResponse.of(page)


@call(
    "POST",
    "/runs/<run_id>:deliver",
    DeliveryReport,
    takes=DeliverBody,
    needs=Needs.CHANGE,
    refuses=(
        *_OF_RUN,
        errors.UnknownKeyError,
        errors.UnknownDeliveryError,
        errors.UnreadableDeliveryError,
        errors.DeliveryClaimedError,
    ),
    names_actor=True,
)
def deliver(engine: Engine, request: CallRequest[DeliverBody]) -> DeliveryReport:
    """Send the last announcement of the run to a channel once more."""
    body, actor = request.given, request.actor
    owed = request_delivery(engine, request.run_id, body.channel, actor=actor, reason=body.reason)
    return DeliveryReport.of(owed)


# -- upkeep ----------------------------------------------------------------------------------------


@call("GET", "/audit", AuditResponse, timeout_s=_LONG_CALL_S)
def audit(engine: Engine, _: CallRequest[None]) -> AuditResponse:
    """Which runs are not in order, and what their repair came to."""
    return _audited(engine, repair=False)


@call("POST", "/audit:repair", AuditResponse, needs=Needs.CHANGE, timeout_s=_LONG_CALL_S)
def repair(engine: Engine, _: CallRequest[None]) -> AuditResponse:
    """Which runs are not in order, and what their repair came to."""
    return _audited(engine, repair=True)


def _audited(engine: Engine, *, repair: bool) -> AuditResponse:
    results = audit_runs(engine, repair=repair)
    return AuditResponse.of(results, waiting_for_code(engine), artifacts_outage(engine))


@call("POST", "/sweep", SweepResponse, needs=Needs.SWEEP, timeout_s=_LONG_CALL_S)
def sweep(engine: Engine, _: CallRequest[None]) -> SweepResponse:
    """One sweep, as Cloud Scheduler has one each minute."""
    done = sweep_runs(engine, time=sweep_time("serve_api"), report=Report.IF_DUE)
    return SweepResponse.model_validate(done.counts())


@call("GET", "/registry", RegistryResponse, needs=Needs.CATALOG)
def registry(engine: Engine, _: CallRequest[None]) -> RegistryResponse:
    """The settings in force for each step type, with the source of each value."""
    return RegistryResponse.model_validate(registry_report(engine))


@call("GET", "/workers", WorkersResponse)
def workers(engine: Engine, _: CallRequest[None]) -> WorkersResponse:
    """Who works on the store; of deployed functions, those that did within the last minutes."""
    return WorkersResponse.of(live_workers(engine))


@call("GET", "/overrides", OverridesResponse, needs=Needs.EXPLAIN)
def overrides(engine: Engine, _: CallRequest[None]) -> OverridesResponse:
    """The overrides of step limits, with who set them, why, and until when."""
    return OverridesResponse.model_validate({"overrides": limits.list_overrides(engine)})


@call(
    "POST",
    "/overrides/<step>:set",
    OverrideChange,
    takes=OverrideBody,
    needs=Needs.BEGIN,
    refuses=(errors.UnknownKeyError,),
    names_actor=True,
)
def override(engine: Engine, request: CallRequest[OverrideBody]) -> OverrideChange:
    """The new override, in force at the next dispatch within 10 s, and the one before."""
    asked = request.given.to_request(request.step, request.actor)
    return OverrideChange.model_validate(limits.set_override(engine, asked))


@call(
    "POST",
    "/overrides/<step>:clear",
    OverrideChange,
    needs=Needs.CHANGE,
    refuses=(errors.UnknownKeyError,),
)
def clear_override(engine: Engine, request: CallRequest[None]) -> OverrideChange:
    """The cleared override: from the next dispatch on, the step has its own limits again."""
    return OverrideChange.model_validate(limits.clear_override(engine, request.step))


@call("GET", "/pauses", PausesResponse, needs=Needs.EXPLAIN)
def pauses(engine: Engine, _: CallRequest[None]) -> PausesResponse:
    """The step types of which nothing begins, with who paused them, and why."""
    return PausesResponse(pauses=[PauseReport.of(one) for one in list_pauses(engine)])


@call(
    "POST",
    "/pauses:set",
    PauseChange,
    takes=PauseBody,
    needs=Needs.BEGIN,
    refuses=(errors.UnknownKeyError,),
    names_actor=True,
)
def pause_steps(engine: Engine, request: CallRequest[PauseBody]) -> PauseChange:
    """No attempt of the step, or of any, begins from within 10 s on; those that run end."""
    body = request.given
    set_, before = pause_step(engine, body.step_type, why=body.why, actor=request.actor)
    replaced = None if before is None else PauseReport.of(before)
    return PauseChange(pause=PauseReport.of(set_), replaced=replaced)


@call(
    "POST",
    "/pauses:clear",
    ResumedPause,
    takes=ResumePauseBody,
    needs=Needs.CHANGE,
    names_actor=True,
    timeout_s=120.0,
)
def resume_steps(engine: Engine, request: CallRequest[ResumePauseBody]) -> ResumedPause:
    """The runs that the pause held go on at once; new ones begin from within 10 s on."""
    return ResumedPause.of(resume_step(engine, request.given.step_type))


@call("GET", "/schedules", SchedulesResponse, needs=Needs.CATALOG)
def schedules(engine: Engine, _: CallRequest[None]) -> SchedulesResponse:
    """The schedules, their next times, and what became of the last ones, newest first."""
    found = [ScheduleResponse.of(one) for one in clock.list_schedules(engine)]
    return SchedulesResponse(schedules=found)


_OF_SCHEDULE: Final = (errors.UnknownKeyError, errors.UnreadableScheduleError)


@call("GET", "/schedules/<name>", ScheduleResponse, needs=Needs.CATALOG, refuses=_OF_SCHEDULE)
def schedule(engine: Engine, request: CallRequest[None]) -> ScheduleResponse:
    """A schedule, its next time, and what became of the last ones, newest first."""
    return ScheduleResponse.of(clock.read_schedule(engine, request.name))


@call(
    "POST",
    "/schedules/<name>:pause",
    ScheduleResponse,
    takes=PauseScheduleBody,
    needs=Needs.BEGIN,
    refuses=_OF_SCHEDULE,
    names_actor=True,
)
def pause_schedule(engine: Engine, request: CallRequest[PauseScheduleBody]) -> ScheduleResponse:
    """Its times are skipped, each with who paused it and why; runs go on."""
    paused = clock.pause_schedule(engine, request.name, why=request.given.why, actor=request.actor)
    return ScheduleResponse.of(paused)


@call(
    "POST",
    "/schedules/<name>:resume",
    ScheduleResponse,
    needs=Needs.BEGIN,
    refuses=_OF_SCHEDULE,
)
def resume_schedule(engine: Engine, request: CallRequest[None]) -> ScheduleResponse:
    """Its next time starts a run again; those of the pause are not made up for."""
    return ScheduleResponse.of(clock.resume_schedule(engine, request.name))


@call(
    "POST",
    "/schedules/<name>:trigger",
    ScheduledRuns,
    takes=TriggerBody,
    needs=Needs.BEGIN,
    refuses=_OF_SCHEDULE,
    names_actor=True,
)
def trigger_schedule(engine: Engine, request: CallRequest[TriggerBody]) -> ScheduledRuns:
    """A run is started now, beside its times and whatever runs; the same `id` is one run."""
    order_id = request.given.id
    run_id = clock.trigger_schedule(engine, request.name, actor=request.actor, order_id=order_id)
    return ScheduledRuns(run_ids=[run_id])


@call(
    "POST",
    "/schedules/<name>:backfill",
    ScheduledRuns,
    takes=BackfillBody,
    needs=Needs.BEGIN,
    refuses=_OF_SCHEDULE,
    names_actor=True,
    timeout_s=120.0,
)
def backfill_schedule(engine: Engine, request: CallRequest[BackfillBody]) -> ScheduledRuns:
    """The runs of its times in a span of the past are started; one that was started stays so."""
    first, last = time_or_date(request.given.first), time_or_date(request.given.last)
    runs = clock.backfill_schedule(engine, request.name, first, last, actor=request.actor)
    return ScheduledRuns(run_ids=runs)


@call("GET", "/budgets", BudgetsResponse, needs=Needs.EXPLAIN)
def budgets(engine: Engine, _: CallRequest[None]) -> BudgetsResponse:
    """The derived limits of all steps, as the last derivation left them."""
    from leasehold.services.derive_budgets import read_budgets  # noqa: PLC0415 - seldom asked for

    return BudgetsResponse(budgets=read_budgets(engine))


@call(
    "GET",
    "/budgets/<step>",
    LimitReport,
    needs=Needs.CATALOG,
    refuses=(errors.UnknownKeyError, errors.MetricsUnavailableError),
)
def limit(engine: Engine, request: CallRequest[None]) -> LimitReport:
    """What the attempts of a step say about its limits now, and they; nothing is stored."""
    from leasehold.services.derive_budgets import explain_limit  # noqa: PLC0415 - as above

    return LimitReport.model_validate(explain_limit(engine, request.step))


@call("GET", "/health", HealthResponse)
def health(_engine: Engine, _: CallRequest[None]) -> HealthResponse:
    """The function runs; whether its store answers, other requests tell."""
    return HealthResponse()


@call("GET", "/ready", HealthResponse, refuses=(errors.NotReadyError,))
def ready(engine: Engine, _: CallRequest[None]) -> HealthResponse:
    """It could work now: its store takes a write, and its artifacts answer, within 3 s."""
    check_ready(engine)
    return HealthResponse()


@call("GET", "/openapi.json", JsonValue)
def openapi(_engine: Engine, _: CallRequest[None]) -> Any:
    """This API as an OpenAPI 3.1 specification."""
    return specified(CALLS)


@functools.cache
def specified(rows: tuple[AnyRow, ...]) -> JsonText:
    """Return the specification of these calls."""
    from leasehold.api.openapi import specification  # noqa: PLC0415 - only who is asked for it

    return JsonText(json.dumps(specification(rows)))


#: All calls of the runs API, in the order of docs/http-api.md.
CALLS: Final[tuple[AnyRow, ...]] = (
    start,
    runs,
    overview,
    counts,
    metrics,
    manifests,
    run,
    trace,
    why,
    run_input,
    output,
    step_output,
    once,
    children,
    files,
    file,
    run_deliveries,
    *OPERATIONS.values(),
    stack,
    signal,
    deliver,
    batch,
    deliveries,
    audit,
    repair,
    sweep,
    registry,
    workers,
    overrides,
    override,
    clear_override,
    pauses,
    pause_steps,
    resume_steps,
    schedules,
    schedule,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
    backfill_schedule,
    budgets,
    limit,
    health,
    ready,
    openapi,
)
