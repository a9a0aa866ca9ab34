"""The client: runs of a server or of a store, for a Python program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final, Self, TypeVar, Unpack, overload

from leasehold.api import calls
from leasehold.api.budgets import LimitReport
from leasehold.api.call_row import Answer, CallRequest, CallRow, Given
from leasehold.api.children import ChildrenResponse
from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
)
from leasehold.api.functions import SweepResponse
from leasehold.api.operations import (
    ApproveBody,
    BatchBody,
    ContinuedRun,
    OperationBody,
    RecreateBody,
    RequestedStack,
    ResumeBody,
    RetryBody,
)
from leasehold.api.overrides import OverrideBody, OverrideChange, OverrideReport
from leasehold.api.pauses import (
    PauseBody,
    PauseChange,
    PauseReport,
    ResumedPause,
    ResumePauseBody,
)
from leasehold.api.registry import RegistryResponse
from leasehold.api.results import CallReport, CallsResponse, FileEntry, FilesResponse, PageQuery
from leasehold.api.runs import BudgetPart, RunsQuery, RunsResponse, StartBody
from leasehold.api.schedules import (
    BackfillBody,
    PauseScheduleBody,
    ScheduledRuns,
    ScheduleResponse,
    TriggerBody,
)
from leasehold.api.signals import SignalBody, SignalResponse
from leasehold.api.upkeep import AuditResponse, WhyResponse, WorkersResponse
from leasehold.bootstrap import system_clock
from leasehold.client.arguments import (
    Decision,
    Files,
    Filters,
    PriorityName,
    Run,
    RunOptions,
    check_step,
    checked_actor,
    filter_fields,
    id_of,
    plain_input,
    read_as,
    read_files,
    start_options,
    this_user,
    without_none,
)
from leasehold.client.connection import LOG, Connection, connect, start_once
from leasehold.client.run_wait import OnChange, RunWait
from leasehold.domain import spend
from leasehold.domain.budget import Budget
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.hooks import hook
from leasehold.services.batch import BatchResult
from leasehold.services.operate import AS_BEFORE
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS

#: How many runs a list reads at once.
_RUNS_PER_PAGE: Final = 200

#: A live worker answers a request for a stack so soon after a heartbeat; and how often to look.
_STACK_TIMEOUT_S: Final = 10.0
_STACK_POLL_S: Final = 0.2

T = TypeVar("T")
Page = TypeVar("Page", FilesResponse, CallsResponse)


class Client:
    """Starts, reads and changes runs, over a server's runs API or on a store.

    Many threads may use one client. A store stays open until the client is closed.

    Args:
        address: a server (`http://HOST:PORT`, `https://HOST`) or a store (`sqlite:///PATH`,
            `firestore://PROJECT/DATABASE`); None: the store of LEASEHOLD_STORE. Or a connection
            that is open.
        environ: for a store, the settings: where its artifacts are, its queue, its catalog; for a
            server, the LEASEHOLD_TOKEN that it is sent. None: those of the process.
        actor: who asks for operations, for the trace; None: `user@host`.
        warn: given each setting that is refused, once; None: the log.

    Raises, in each method:
        ServerUnreachableError, StoreUnavailableError: there is no answer. Retryable.
        ServerRefusedError: what answers is no Leasehold server, or one of another version.
        InvalidRequestError: an argument is not what it may be; nothing was sent or changed. The
            constructor raises it for an invalid address.
        UnknownRunError: no run has that id.
    """

    def __init__(
        self,
        address: str | Connection | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        actor: str | None = None,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        self.actor: Final = this_user() if actor is None else checked_actor(actor)
        self.connection: Connection = connect(address, environ, warn)
        self._has_warned = False

    def close(self) -> None:
        """Close the store."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- to start a run, and what comes of it ------------------------------------------------------

    def start(
        self,
        pipeline: str,
        input: Any,  # noqa: A002 - the word of the API
        *,
        idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None,
        max_retries: int | None = None,
        budget: spend.Budget | None = None,
        priority: PriorityName = "normal",
        files: Files | None = None,
    ) -> Summary:
        """Start a run, or find the one that the key started before.

        It is given to a worker: of the server, or of the queue of LEASEHOLD_TASKS. A store without
        such a queue only keeps the run; a `leasehold serve` on that store runs it.

        Args:
            pipeline: the name of a pipeline.
            input: a pydantic model or a JSON value, as the first step takes it.
            idempotency_key: the same key and input always mean the same run; None: a new one. A
                start whose answer is lost is repeated, and is one run in either case.
            labels: at most 16, to find the run by.
            max_retries: how often a failed attempt of any step is repeated; 0: never; None: as its
                step says.
            budget: how much it may spend before it blocks; a kind that it leaves out, and None: as
                its pipeline says.
            priority: its class in the lines of limits: `high`, `normal` or `low`.
            files: what the run has as `ctx.artifacts` from its beginning, by name: bytes, or the
                path of a file; at most 16 files, of 16 MiB together.

        Raises:
            UnknownPipelineError, InvalidInputError, ArtifactNameError, TooLargeError,
            HandlerNotFoundError, CatalogError: it cannot be started; nothing was written.
            IdempotencyKeyReusedError: the key started something else.
        """
        given = {
            "pipeline": pipeline,
            "input": plain_input(input),
            "idempotency_key": idempotency_key,
            "labels": dict(labels or {}),
            "max_retries": max_retries,
            "budget": BudgetPart.of(budget),
            "priority": priority,
        }
        body = StartBody.model_validate(given)
        run = start_once(self.connection, body.with_files(read_files(files))).value
        self._warn_where_nothing_delivers(run)
        return run

    def wait(
        self, run: Run, timeout: float | None = None, *, on_change: OnChange | None = None
    ) -> Manifest:
        """Wait until the run is idle: it is over, blocked or paused.

        One that a wrong deploy has blocked goes on by itself; `run.block.heals` says so.

        A server that does not answer for a moment, as in a restart, is waited for.

        Args:
            run: the run.
            timeout: seconds; None: as long as it takes.
            on_change: given the run as it was found first, and whenever it was written since.

        Raises:
            TimeoutError: it still moves after `timeout` seconds.
        """
        wait = RunWait(self.get, id_of(run), timeout, on_change)
        while True:
            wait.poll()
            wait.notify()
            if wait.is_over:
                return wait.run
            time.sleep(wait.delay())

    @overload
    def result(self, run: Run) -> Any: ...

    @overload
    def result(self, run: Run, model: type[T]) -> T: ...

    def result(self, run: Run, model: type[T] | None = None) -> Any:
        """Return the output of a completed run, as JSON has it or as `model` does.

        Raises:
            RunUnfinishedError: it has no output yet; `wait` for it first.
            RunNotCompletedError: it was cancelled or given up: `details` have the `reason`, and as
                `error` what failed last.
            OutputGoneError: its artifact was deleted.
            ResultMismatchError: the output does not fit the model.
        """
        value = self.output(run)
        return value if model is None else read_as(model, value, id_of(run))

    @overload
    def run(self, pipeline: str, input: Any, **how: Unpack[RunOptions]) -> Any: ...

    @overload
    def run(self, pipeline: str, input: Any, model: type[T], **how: Unpack[RunOptions]) -> T: ...

    def run(
        self,
        pipeline: str,
        input: Any,  # noqa: A002 - the word of the API
        model: type[T] | None = None,
        **how: Unpack[RunOptions],
    ) -> Any:
        """Start a run, wait for it, and return its result; see `start`, `wait` and `result`."""
        started = self.start(pipeline, input, **start_options(how))
        ended = self.wait(started, how.get("timeout"), on_change=how.get("on_change"))
        return self.result(ended) if model is None else self.result(ended, model)

    # -- to read ----------------------------------------------------------------------------------

    def get(self, run: Run) -> Manifest:
        """Return the run as it is now."""
        return self.call(calls.run, None, run).to_manifest()

    def output(self, run: Run, step: str | None = None) -> Any:
        """Return the output of a step, as JSON has it; None: that of the run, as `result` does.

        Raises:
            UnknownStepError, StepNotCompletedError: the run has no such step, the step no output.
        """
        if step is None:
            return self.call(calls.output, None, run)
        return self.call(calls.step_output, None, run, step=step)

    def files(self, run: Run) -> list[FileEntry]:
        """Return names and sizes of the files that the run's handlers stored, sorted by name."""
        return [one for page in self._pages(calls.files, run) for one in page.files]

    def file(self, run: Run, name: str) -> bytes:
        """Return the bytes of a file of the run.

        Raises:
            UnknownFileError, ArtifactNameError: there is none of that name, or can be none.
        """
        with self.call(calls.file, None, run, name=name) as content:
            return b"".join(content.blocks)

    def calls(self, run: Run) -> list[CallReport]:
        """Return the recorded results of the run; none of them is made again."""
        return [one for page in self._pages(calls.once, run) for one in page.calls]

    def children(self, run: Run) -> ChildrenResponse:
        """Return the small runs that the run waits for at its place, and how far they are."""
        return self.call(calls.children, None, run)

    def trace(self, run: Run) -> list[TraceEvent]:
        """Return all that happened to the run, oldest first."""
        return self.call(calls.trace, None, run).events

    def why(self, run: Run) -> WhyResponse:
        """Return what the run waits for, until when, and what a person can do about it."""
        return self.call(calls.why, None, run)

    def runs(self, **wanted: Unpack[Filters]) -> Iterator[Summary]:
        """Return all runs that fit, newest first; they are read in pages, as they are asked for.

        Args:
            wanted: which runs; see `Filters`.
        """
        return chain.from_iterable(pages_of(self.page, wanted))

    def page(
        self,
        *,
        limit: int = DEFAULT_PAGE_ITEMS,
        page_token: str | None = None,
        **wanted: Unpack[Filters],
    ) -> RunsResponse:
        """Return at most `limit` runs that fit, newest first, and the token of the next page.

        Args:
            limit: how many at most.
            page_token: `next_page_token` of an earlier answer to the same filter.
            wanted: which runs; see `Filters`.
        """
        given = {**filter_fields(wanted), "limit": limit, "page_token": page_token}
        return self.call(calls.runs, RunsQuery.model_validate(given))

    def deliveries(self, run: Run) -> list[DeliveryReport]:
        """Return the announcements of the run, sent or still due, newest first."""
        return self.call(calls.run_deliveries, None, run).deliveries

    def list_deliveries(
        self,
        *,
        channel: str | None = None,
        state: DeliveryState | str | None = None,
        limit: int = DEFAULT_PAGE_ITEMS,
        page_token: str | None = None,
    ) -> DeliveriesResponse:
        """Return at most `limit` deliveries of all runs that fit, newest first.

        Args:
            channel: those to this channel, also to one that no catalog has any more.
            state: "due", "claimed", "announced" or "given_up".
            limit: how many at most.
            page_token: `next_page_token` of an earlier answer to the same filter.
        """
        given = {"channel": channel, "state": state, "limit": limit, "pageToken": page_token}
        return self.call(calls.deliveries, DeliveriesQuery.model_validate(without_none(given)))

    # -- to change --------------------------------------------------------------------------------

    def pause(self, run: Run, **decision: Unpack[Decision]) -> Summary:
        """Let a running attempt end, and dispatch nothing more until the run is resumed.

        Each operation returns the run as it is then. One that names the `generation` may be given
        again after an answer that was lost: it is done once.

        Raises:
            NotAllowedError: the state of the run forbids it.
            StateChangedError: the run is not what the caller looked at.
        """
        return self.call(calls.pause, OperationBody(**decision), run)

    def resume(
        self, run: Run, *, budget: spend.Budget | None = None, **decision: Unpack[Decision]
    ) -> Summary:
        """Dispatch the next attempt of a paused run now; raises as `pause`.

        Args:
            run: the run; also one that is blocked as it has used up its budget.
            budget: how much it may spend from its beginning on; a kind that it leaves out, and
                None: as before.
            decision: see `Decision`.

        Raises:
            BudgetUsedUpError: it has spent all that it may; nothing was changed.
        """
        return self.call(calls.resume, ResumeBody(budget=BudgetPart.of(budget), **decision), run)

    def cancel(self, run: Run, **decision: Unpack[Decision]) -> Summary:
        """End a run for good; raises as `pause`."""
        return self.call(calls.cancel, OperationBody(**decision), run)

    def retry(
        self,
        run: Run,
        *,
        note: str | None = None,
        anew: bool = False,
        **decision: Unpack[Decision],
    ) -> ContinuedRun:
        """Run the step again that failed or is blocked, without its backoff; raises as `pause`.

        Args:
            run: the run.
            note: words for the handler (`ctx.note`), until the step is handed off.
            anew: drop what the step has kept: its checkpoint, results of calls, and trials.
            decision: see `Decision`.
        """
        return self.call(calls.retry, RetryBody(note=note, anew=anew, **decision), run)

    def approve(
        self, run: Run, *, output: Any = AS_BEFORE, **decision: Unpack[Decision]
    ) -> Summary:
        """Hand off the output that a gate refused, or an edited one; raises as `pause`.

        Args:
            run: the run.
            output: JSON values or a model, in place of the output that was kept.
            decision: see `Decision`.

        Raises:
            InvalidOutputError: it does not fit the model of the step; nothing was changed.
        """
        given: dict[str, Any] = (
            {} if output is AS_BEFORE else {"output": plain_input(output, "output")}
        )
        return self.call(calls.approve, ApproveBody(**given, **decision), run)

    def recreate(
        self,
        run: Run,
        *,
        from_step: str | None = None,
        input: Any = AS_BEFORE,  # noqa: A002 - the word of the API
        labels: Mapping[str, str] | None = None,
        keep_partial: bool = False,
        anew: bool = False,
        failed_items: bool = False,
        **decision: Unpack[Decision],
    ) -> ContinuedRun:
        """Make a new run of one that is over, and return the new one; raises as `pause`.

        Args:
            run: the run.
            from_step: where the new run begins; the outputs before it are kept. None: where the
                run stopped, or at the first step if it is completed or has another `input`. Where
                that is the step that it stopped at, what the step has kept is kept, too.
            input: in place of the old run's.
            labels: in place of the old run's.
            keep_partial: keep outputs of status PARTIAL, too; without `from_step` they are.
            anew: keep nothing of the step that it begins at.
            failed_items: begin where a list was worked on item by item, and do those items alone
                that failed there.
            decision: see `Decision`.

        Raises:
            PartialOutputError: an output before `from_step` is PARTIAL; nothing was changed.
        """
        given: dict[str, Any] = {} if input is AS_BEFORE else {"input": plain_input(input)}
        given |= {"keep_partial": keep_partial, "anew": anew, "failed_items": failed_items}
        body = RecreateBody(from_step=from_step, labels=labels, **given, **decision)
        return self.call(calls.recreate, body, run)

    def batch(
        self,
        operation: Operation | str,
        wanted: Filters,
        *,
        limit: int,
        dry_run: bool = False,
        reason: str = "",
        step: str | None = None,
        from_step: str | None = None,
        keep_partial: bool = False,
        anew: bool = False,
        note: str | None = None,
    ) -> BatchResult:
        """Do an operation on the runs that fit, newest first: each is its own commit.

        Args:
            operation: "pause", "resume", "cancel", "retry", "approve", "recreate".
            wanted: `{"pipeline": "review", "status": "ERROR"}`, see `Filters`; not all of them.
            limit: how many runs are changed at most.
            dry_run: change nothing, and return what would be refused.
            reason: kept in the trace of each run.
            step: refuse the runs that are at another step.
            from_step: of recreate: where the new runs begin.
            keep_partial: of recreate: keep outputs of status PARTIAL, too.
            anew: of retry and recreate: keep nothing of the step that the runs are at.
            note: of retry: words for the handlers.
        """
        given: dict[str, Any] = {
            "action": operation,
            "filter": filter_fields(wanted),
            "limit": limit,
            "dry_run": dry_run,
            "reason": reason,
            "step": step,
            "from_step": from_step,
            "keep_partial": keep_partial,
            "anew": anew,
        }
        if note is not None:
            given["note"] = note
        body = BatchBody.model_validate(given)
        return self.call(calls.batch, body).to_result()

    def deliver(self, run: Run, channel: str, *, reason: str = "") -> DeliveryReport:
        """Send the last announcement of the run to a channel once more.

        One that is due already is sent now, and not doubled. After one that was announced, or
        given up, another is sent, whose idempotency key the provider has not seen.

        Args:
            run: the run.
            channel: a channel of the catalog.
            reason: kept in the run's trace, with who asks.

        Raises:
            UnknownKeyError: the catalog has no such channel.
            UnknownDeliveryError: nothing was announced of the run so far.
            DeliveryClaimedError: another process is sending it.
        """
        return self.call(calls.deliver, DeliverBody(channel=channel, reason=reason), run)

    def signal(
        self,
        run: Run,
        name: str,
        value: Any,
        *,
        id: str | None = None,  # noqa: A002 - the word of the API
    ) -> SignalResponse:
        """Send a value that the run waits for, or will wait for: then it is kept until that.

        Args:
            run: the run.
            name: of the signal, as the wait has it.
            value: JSON values or a model.
            id: of the signal: the same one counts once, however often it is sent. None: a new one,
                under which this call may be repeated by itself.

        Raises:
            UnknownSignalError: nothing of the run waits for a signal of that name.
            SignalNotAwaitedError: the run is over, or went on without it.
            SignalIdReusedError: the id came before with another value.
            InvalidSignalError: the value does not fit the model of the wait.
        """
        signal_id = system_clock().new_id() if id is None else id
        given = {"value": plain_input(value, "value"), "id": signal_id}
        return self.call(calls.signal, SignalBody(**given), run, name=name)

    def stack(self, run: Run, timeout: float | None = None) -> TraceEvent | None:
        """Return what the attempt of a run does now; it goes on meanwhile.

        Its worker answers with its next heartbeat, or at once where it is the process that is
        asked, by a `stack_taken` event: `stacks` has the calls without values of variables, and
        `detail` where it is, or why there are none. None: the attempt ended before.

        Args:
            run: the run.
            timeout: seconds; None: that of a heartbeat, and 10 more.

        Raises:
            NotAllowedError: no attempt of it runs, or none that could hear of it.
            TimeoutError: there is no answer so far.
        """
        requested = self.call(calls.stack, None, run)
        seconds = requested.heartbeat_s + _STACK_TIMEOUT_S if timeout is None else timeout
        until = time.monotonic() + seconds
        while self._is_awaited(run, requested):
            if time.monotonic() >= until:
                raise TimeoutError(
                    f"no stack of run {id_of(run)} after {seconds:g} s: {requested.holder} "
                    f"hears of it with its next heartbeat, one each {requested.heartbeat_s:g} s; "
                    f"the trace has it once it has answered"
                )
            time.sleep(min(_STACK_POLL_S, max(0.0, until - time.monotonic())))
        for event in reversed(self.trace(run)):
            if event.type is TraceType.STACK_TAKEN and event.at >= requested.requested_at:
                return event
        return None

    def _is_awaited(self, run: Run, requested: RequestedStack) -> bool:
        lease = self.get(run).position.lease
        request = None if lease is None else lease.stack_request
        return request is not None and request.at == requested.requested_at

    # -- derived limits ----------------------------------------------------------------------------

    def budgets(self) -> list[Budget]:
        """Return the derived limits of all steps, as the last derivation left them."""
        return self.call(calls.budgets, None).budgets

    def limit(self, step: str) -> LimitReport:
        """Return what the attempts of a step say about its limits now; nothing is stored.

        Raises:
            UnknownKeyError: there is no such step.
            MetricsUnavailableError: the attempts cannot be read.
        """
        check_step(step)
        return self.call(calls.limit, None, step=step)

    # -- limits of steps, which go over those of a step's entry, and under its variables -----------

    def overrides(self) -> list[OverrideReport]:
        """Return all of them, also those that are over or refused."""
        return self.call(calls.overrides, None).overrides

    def override(
        self,
        step: str,
        *,
        until: datetime | timedelta | str,
        why: str,
        timeout_s: float | None = None,
        deadline_s: int | None = None,
    ) -> OverrideChange:
        """Set the limits of a step until a time: in force at its next dispatch, retries included.

        They replace every earlier limit of the step; the answer has both.

        Args:
            step: the step type.
            until: when it ends by itself: a time, text as `2026-11-22T06:00:00Z`, or how long.
            why: the reason; shown to all who read it.
            timeout_s: seconds that its handler may run; None: as without.
            deadline_s: whole seconds that its queue waits for an attempt; None: as without.

        Raises:
            UnknownKeyError: there is no such step.
            InvalidRequestError: it would break the time ladder, or its time is past. Nothing was
                changed.
        """
        check_step(step)
        if isinstance(until, timedelta):
            until = self.connection.now() + until
        given = {
            "timeoutS": timeout_s,
            "deadlineS": deadline_s,
            "until": until.isoformat() if isinstance(until, datetime) else until,
            "why": why,
        }
        return self.call(calls.override, OverrideBody.model_validate(given), step=step)

    def clear_override(self, step: str) -> OverrideChange:
        """Delete the override of a step, if there is one; the answer has it as `replaced`."""
        check_step(step)
        return self.call(calls.clear_override, None, step=step)

    # -- step types that are paused ---------------------------------------------------------------

    def pauses(self) -> list[PauseReport]:
        """Return the step types of which nothing begins, with who paused them, and why."""
        return self.call(calls.pauses, None).pauses

    def pause_steps(self, step: str | None = None, *, why: str) -> PauseChange:
        """Pause a step type: no attempt of it begins, everywhere within 10 s.

        Attempts that run end as they like. Runs that come to the step are held, at no cost.

        Args:
            step: the step type; None: all of them.
            why: the reason; shown to all who look.

        Raises:
            UnknownKeyError: there is no such step.
        """
        given = {"why": why, **_which(step)}
        return self.call(calls.pause_steps, PauseBody.model_validate(given))

    def resume_steps(self, step: str | None = None) -> ResumedPause:
        """End the pause of a step type, or that of all: the runs that it held go on at once.

        Args:
            step: the step type; None: the pause of all.
        """
        return self.call(calls.resume_steps, ResumePauseBody.model_validate(_which(step)))

    # -- schedules ---------------------------------------------------------------------------------

    def schedules(self) -> list[ScheduleResponse]:
        """Return the schedules, their next times, and what became of the last ones."""
        return self.call(calls.schedules, None).schedules

    def schedule(self, name: str) -> ScheduleResponse:
        """Return a schedule, its next time, and what became of the last ones, newest first.

        Args:
            name: of the schedule.

        Raises:
            UnknownKeyError: the catalog has no schedule of that name.
            UnreadableScheduleError: what the store has of it cannot be read.
        """
        return self.call(calls.schedule, None, name=name)

    def pause_schedule(self, name: str, *, why: str) -> ScheduleResponse:
        """Have the times of a schedule skipped; raises as `schedule`.

        Args:
            name: of the schedule.
            why: for people; it stands at each time that is skipped, with who paused it.
        """
        given = PauseScheduleBody.model_validate({"why": why})
        return self.call(calls.pause_schedule, given, name=name)

    def resume_schedule(self, name: str) -> ScheduleResponse:
        """Have the next time of a schedule start a run again; raises as `schedule`.

        Args:
            name: of the schedule.
        """
        return self.call(calls.resume_schedule, None, name=name)

    def trigger_schedule(
        self,
        name: str,
        *,
        id: str | None = None,  # noqa: A002 - the word of the API
    ) -> ScheduledRuns:
        """Start a run of a schedule now, beside its times and whatever runs; raises as `schedule`.

        Args:
            name: of the schedule.
            id: of the order: the same one is one run, however often it is sent. None: a new one,
                under which this call may be repeated by itself.
        """
        given = TriggerBody(id=system_clock().new_id() if id is None else id)
        return self.call(calls.trigger_schedule, given, name=name)

    def backfill_schedule(self, name: str, first: datetime, last: datetime) -> ScheduledRuns:
        """Start the runs of a schedule's times in a span of the past; raises as `schedule`.

        A time whose run was started before does not start another one.

        Args:
            name: of the schedule.
            first: the begin of the span, which is part of it; a time with a zone.
            last: the end of the span, which is part of it; a time with a zone.
        """
        given = {"first": first.isoformat(), "last": last.isoformat()}
        return self.call(calls.backfill_schedule, BackfillBody.model_validate(given), name=name)

    # -- what people on call ask -------------------------------------------------------------------

    def registry(self) -> RegistryResponse:
        """Return what is in force per step type, and where each value comes from."""
        return self.call(calls.registry, None)

    def workers(self) -> WorkersResponse:
        """Return who noted within the last minutes that it works here, the latest first."""
        return self.call(calls.workers, None)

    def audit(self, *, repair: bool = False) -> AuditResponse:
        """Return the runs that nothing would ever move, and repair them if that is wanted."""
        return self.call(calls.repair if repair else calls.audit, None)

    def sweep(self) -> SweepResponse:
        """Attend to the runs whose alarm is due, once; return what was done."""
        return self.call(calls.sweep, None)

    # -- inside -----------------------------------------------------------------------------------

    @hook
    def call(
        self,
        row: CallRow[Given, Answer],
        given: Given,
        run: Run = "",
        *,
        step: str = "",
        name: str = "",
    ) -> Answer:
        """Make a call of the table of calls, `leasehold.api.calls`."""
        request = CallRequest(given, id_of(run), step, name, self.actor)
        return self.connection.call(row, request)

    def _pages(self, row: CallRow[PageQuery, Page], run: Run) -> Iterator[Page]:
        """Yield all pages of what a run has."""
        token: str | None = None
        while True:
            page = self.call(row, PageQuery(page_token=token), run)
            yield page
            token = page.next_page_token
            if token is None:
                return

    def _warn_where_nothing_delivers(self, run: Summary) -> None:
        """Log once who runs what is started here, where no queue delivers it."""
        if not self._has_warned and not self.connection.delivers():
            self._has_warned = True
            LOG.warning(
                "run %s waits for a worker: this process runs nothing. `leasehold serve` or "
                "`leasehold dev` on the same store runs it.",
                run.run_id,
            )


def _which(step: str | None) -> dict[str, Any]:
    return {"all": True} if step is None else {"step": step}


def pages_of(page: Callable[..., RunsResponse], wanted: Filters) -> Iterator[list[Summary]]:
    """Yield the runs that fit, a page at a time, each read when it is due."""
    token: str | None = None
    while True:
        found = page(limit=_RUNS_PER_PAGE, page_token=token, **wanted)
        yield found.runs
        if (token := found.next_page_token) is None:
            return
