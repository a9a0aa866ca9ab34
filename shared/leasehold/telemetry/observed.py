"""What is sent of the work: two histograms, counters, and one trace a run; docs/telemetry.md.

All that follows from a change is read from the change, in one place: an attempt is over where the
run had its lease before and has it no more, by its worker, the sweep or a person. No input, output
or word of a person is sent, and the id of a run stands in spans alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, cast

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from leasehold.budgets.samples import outcome_of
from leasehold.domain.artifact_name import RunLife
from leasehold.domain.change import Change
from leasehold.domain.delivery import Delivery
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Lease, StepRecord
from leasehold.domain.status import AttemptEnd, RunStatus
from leasehold.domain.traceparent import (
    Parent,
    RunTrace,
    own_trace,
    parent_in,
    span_of,
    trace_of_run,
)
from leasehold.logs.attempt import AttemptName, LogSpan, name_span
from leasehold.ports.clock import Clock
from leasehold.ports.telemetry import Telemetry
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.registry.registry import Registry
from leasehold.telemetry.exporting import Exporting

_Given = ParamSpec("_Given")

#: The limits of the buckets of both histograms, in seconds: up to an hour, finest where limits lie.
BUCKETS: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0),
    *(90.0, 120.0, 180.0, 240.0, 300.0, 420.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0),
)
#: So many first tools have their own series in one process; the others are `other`.
MAX_TOOL_SERIES: Final = 100
#: What an attempt counts as that left an output, or that a block or a cancellation ended.
_COMPLETED: Final = "completed"
_BLOCKED: Final = "blocked"
_CANCELLED: Final = "cancelled"
_WENT_WRONG: Final = (AttemptEnd.FAILED.value, AttemptEnd.EXPIRED.value)
#: What a send came to; the effect of any other is not known.
_SENDS: Final = {"announced": "announced", "given_up": "given_up", "due_later": "tried_again"}
#: The part of a call's key that is a name: behind it may stand what the call is given.
_STEM: Final = re.compile(r"([A-Za-z_][A-Za-z_.]*)(?=[-:/#0-9]|$)", re.ASCII)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class EndedAttempt(NamedTuple):
    """An attempt that a change ended.

    Args:
        step: the step, as it was.
        lease: what it had.
        cause: what it counts as: an `AttemptEnd`, `completed`, `blocked` or `cancelled`.
        reason: the `Termination` that cut it short; None: none did.
        until: when it was over.
        record: its times; None: its handler was not called.
    """

    step: str
    lease: Lease
    cause: str
    reason: str | None
    until: datetime
    record: Any = None


class _RunOfDelivery(NamedTuple):
    """The run of a delivery, as far as its trace is known by it."""

    run_id: str
    life: str
    traceparent: str | None


def ended_attempt(change: Change) -> EndedAttempt | None:
    """Return the attempt that a change ended; None: it ended none."""
    before, after = change.before, change.manifest
    lease = None if before is None or before.is_terminal else before.position.lease
    if before is None or lease is None:
        return None
    now = after.position.lease
    if now is not None and now.lease_id == lease.lease_id and not after.is_terminal:
        return None
    step = before.position.step
    was, record = before.steps[step], after.steps[step]
    earlier = record.earlier_attempts or ()
    is_new = earlier and earlier[-1] is not (was.earlier_attempts or (None,))[-1]
    ended: Any = earlier[-1] if is_new else None
    cause = _cause(was, record, after)
    if ended is None and record.completed_at is not None:
        ended = record if record.completed_at >= lease.acquired_at else None
    until = min(after.updated_at, lease.expires_at) if cause == "expired" else after.updated_at
    return EndedAttempt(step, lease, cause, getattr(ended, "reason", None), until, ended)


def _cause(was: StepRecord, record: StepRecord, after: Manifest) -> str:
    for end in AttemptEnd:
        if getattr(record.attempts, end.value) > getattr(was.attempts, end.value):
            return end.value
    if after.cancelled:
        return _CANCELLED
    return _BLOCKED if after.status is RunStatus.BLOCKED else _COMPLETED


def _safely(
    hear: Callable[Concatenate[OpenTelemetry, _Given], None],
) -> Callable[Concatenate[OpenTelemetry, _Given], None]:
    """Decorate what hears of the work: whatever goes wrong with that costs no work."""

    @functools.wraps(hear)
    def heard(self: OpenTelemetry, /, *given: _Given.args, **options: _Given.kwargs) -> None:
        try:
            hear(self, *given, **options)
        except Exception as error:  # noqa: BLE001 - as said
            self.log(f"telemetry is incomplete: {type(error).__name__} in {hear.__name__}")

    return cast("Callable[Concatenate[OpenTelemetry, _Given], None]", heard)


class OpenTelemetry(Telemetry):
    """The telemetry port, on the official SDK.

    Args:
        exporting: what sends it.
        agent_of: returns what runs a step: the path of its handler.
        holder: how leases name this process.
        env: which deployment it is, such as `production`.
        clock: the time of this machine.
        log: is given what goes wrong, and leaves out what it was given before.
    """

    def __init__(
        self,
        exporting: Exporting,
        agent_of: Callable[[str], str],
        *,
        holder: str,
        env: str,
        clock: Clock,
        log: Callable[[str], object],
    ) -> None:
        self.log = log
        self._exporting = exporting
        self._agent_of = agent_of
        self._holder = holder
        self._env = env
        self._clock = clock
        self._tools: set[str] = set()
        meter = exporting.meter
        self._bootstrap = meter.create_histogram(
            "agent.bootstrap_seconds",
            unit="s",
            description="From the lease of an attempt to its first tool call, or to its handler.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._execution = meter.create_histogram(
            "agent.execution_seconds",
            unit="s",
            description="From the end of the bootstrap to the result, or to the end of an attempt.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._attempts = meter.create_counter(
            "leasehold.attempts", "{attempt}", "Attempts that ended, by what they count as."
        )
        self._dead_letters = meter.create_counter(
            "leasehold.dead_letters", "{run}", "Runs that were given up, by the reason."
        )
        self._lost = meter.create_counter(
            "leasehold.lease_losses", "{lease}", "Leases that a worker lost while it worked."
        )
        self._usd = meter.create_counter(
            "leasehold.spend", "{USD}", "US dollars that steps have spent, as their handlers say."
        )
        self._tokens = meter.create_counter(
            "leasehold.tokens", "{token}", "Tokens that steps have used, as their handlers say."
        )
        self._announcements = meter.create_counter(
            "leasehold.announcements", "{send}", "Sends to channels, by what came of them."
        )

    # --- the port ---

    def begin(self, run: RunLife, given: str) -> str | None:
        """Return the caller's trace, that of the program around us, or the run's own."""
        try:
            parent = parent_in(given) if given else _parent_around()
            return str(self._joined(parent)) if parent else self._own(run).traceparent
        except Exception:  # noqa: BLE001 - a sampler may be anyone's; the run begins
            return None

    @_safely
    def changed(self, change: Change) -> None:
        """Send which attempt and which run a change ended."""
        if not change.changed:
            return
        before, after = change.before, change.manifest
        lease = after.position.lease
        if lease is not None and lease.holder == self._holder:
            self._name_lines(after, lease)
        if before is None:
            return
        self._count_spend(before, after)
        if ended := ended_attempt(change):
            self._attempt_ended(before, after, ended)
        if after.dead_lettered and not before.dead_lettered:
            reason = str(after.dead_letter_reason)
            self._dead_letters.add(
                1, {"reason": reason, "env": self._env}, self._within(self._trace(after))
            )
        if after.is_terminal and not before.is_terminal:
            self._run_ended(after)

    @_safely
    def gate_asked(self, run: Manifest, gate: str, verdict: str, seconds: float) -> None:
        """Send the span of a gate, within that of its attempt."""
        facts = {**_facts(run), "verdict": verdict}
        self._within_attempt(run, gate, seconds, facts, SpanKind.INTERNAL)

    def flush(self, within_s: float) -> None:
        """Send what there is."""
        self._exporting.flush(within_s)

    def close(self, within_s: float) -> None:
        """Send what there is, and nothing any more."""
        self._exporting.close(within_s)

    @_safely
    def call_recorded(self, run: Manifest, key: str, seconds: float) -> None:
        """Send the span of a recorded call, under the name that its key begins with."""
        stem = _STEM.match(key)
        name = f"call {stem[1]}" if stem else "call"
        self._within_attempt(run, name, seconds, _facts(run), SpanKind.CLIENT)

    @_safely
    def sent(self, delivery: Delivery, outcome: str, seconds: float) -> None:
        """Count a send, and send its span, within that of its run."""
        word = _SENDS.get(outcome, "unknown")
        trace = self._trace(_RunOfDelivery(delivery.run_id, delivery.mark, delivery.traceparent))
        facts = {
            "run_id": delivery.run_id,
            "pipeline": delivery.pipeline,
            "channel": delivery.channel,
            "event": str(delivery.event),
            "tries": delivery.tries,
            "outcome": word,
        }
        now = self._clock.now()
        began = now - timedelta(seconds=seconds)
        counted = {"channel": delivery.channel, "outcome": word, "env": self._env}
        span = span_of(f"{delivery.key}\n{delivery.token}")
        self._announcements.add(1, counted, self._within(trace, span))
        self._span(
            trace,
            f"deliver {delivery.channel}",
            (began, now),
            facts,
            span_id=span,
            parent_id=trace.span_id,
            kind=SpanKind.CLIENT,
            is_error=word != "announced",
        )

    @_safely
    def lease_lost(self, run: Manifest) -> None:
        """Count a lease that a worker lost."""
        lease, trace = run.position.lease, self._trace(run)
        span = trace.span_id if lease is None else span_of(lease.lease_id)
        counted = {"step_type": run.step_type, "env": self._env}
        self._lost.add(1, counted, self._within(trace, span))

    # --- how ---

    def _own(self, run: RunLife) -> RunTrace:
        """Return the own trace of a run, sampled as OTEL_TRACES_SAMPLER has it."""
        own = own_trace(run)
        return own._replace(is_sampled=self._is_sampled(own.trace_id, Context()))

    def _joined(self, parent: Parent) -> Parent:
        """Return the caller's trace, sampled likewise; by default as the caller has it."""
        around = _context_of(*parent, is_remote=True)
        return parent._replace(is_sampled=self._is_sampled(parent.trace_id, around))

    def _is_sampled(self, trace_id: str, around: Context) -> bool:
        sampled = self._exporting.sampler.should_sample(around, int(trace_id, 16), "run")
        return sampled.decision is Decision.RECORD_AND_SAMPLE

    def _trace(self, run: Manifest | _RunOfDelivery) -> RunTrace:
        return self._own(run) if run.traceparent is None else trace_of_run(run, run.traceparent)

    def _name_lines(self, run: Manifest, lease: Lease) -> None:
        """Have the log lines of an attempt of this process name its span."""
        at, trace = run.position, self._trace(run)
        span = LogSpan(trace.trace_id, span_of(lease.lease_id), trace.is_sampled)
        name_span(AttemptName(run.run_id, at.step, at.attempt), span)

    def _count_spend(self, before: Manifest, after: Manifest) -> None:
        """Count what the step has spent since the write before."""
        step = before.position.step
        spend = after.steps[step].spend
        if spend is None or spend == before.steps[step].spend:
            return
        more, counted = (
            spend.beyond(before.steps[step].spend),
            {"step_type": after.step_type_of(step), "env": self._env},
        )
        lease, trace = before.position.lease, self._trace(before)
        within = self._within(trace, trace.span_id if lease is None else span_of(lease.lease_id))
        self._usd.add(more.usd, counted, within)
        self._tokens.add(more.tokens, counted, within)

    def _attempt_ended(self, before: Manifest, after: Manifest, ended: EndedAttempt) -> None:
        trace, span_id = self._trace(before), span_of(ended.lease.lease_id)
        step_type = before.step_type_of(ended.step)
        agent, record = self._agent_of(step_type), ended.record
        within = self._within(trace, span_id)
        counted = {"step_type": step_type, "cause": ended.cause, "env": self._env}
        self._attempts.add(1, counted, within)
        took: dict[str, Any] = {}
        bootstrap_s = getattr(record, "bootstrap_seconds", None)
        execution_s = getattr(record, "execution_seconds", None)
        if bootstrap_s is not None:
            took["cold_start"] = bool(record.cold_start)
            took["first_tool"] = record.first_tool or ""
        series = {
            **counted,
            **took,
            "agent_id": agent,
            "first_tool": self._tool(took.get("first_tool", "")),
        }
        if outcome := outcome_of(ended.cause, ended.reason):
            series["outcome"] = outcome.value
        if bootstrap_s is not None:
            self._bootstrap.record(bootstrap_s, series, within)
            took["bootstrap_seconds"] = bootstrap_s
        if execution_s is not None:
            self._execution.record(execution_s, series, within)
            took["execution_seconds"] = execution_s
        facts = {**_facts(before), **took, "agent_id": agent, "cause": ended.cause}
        if ended.reason:
            facts["reason"] = ended.reason
        is_error = ended.cause in _WENT_WRONG
        if is_error and after.error is not None and after.error.attempt == before.position.attempt:
            facts["error.type"] = after.error.type
        self._span(
            trace,
            f"step {ended.step}",
            (ended.lease.acquired_at, ended.until),
            facts,
            span_id=span_id,
            parent_id=trace.span_id,
            kind=SpanKind.CONSUMER,
            is_error=is_error,
        )

    def _run_ended(self, run: Manifest) -> None:
        trace, ended_at = self._trace(run), run.ended_at or run.updated_at
        facts: dict[str, Any] = {
            "run_id": run.run_id,
            "pipeline": run.pipeline,
            "state": run.state,
            "env": self._env,
        }
        if run.dead_letter_reason is not None:
            facts["reason"] = str(run.dead_letter_reason)
        self._span(
            trace,
            f"run {run.pipeline}",
            (run.created_at, ended_at),
            facts,
            span_id=trace.span_id,
            parent_id=trace.parent_id,
            kind=SpanKind.INTERNAL,
            is_error=run.dead_lettered,
        )

    def _within_attempt(
        self, run: Manifest, name: str, seconds: float, facts: Mapping[str, Any], kind: SpanKind
    ) -> None:
        """Send a span that ends now, within that of the attempt that the run is in."""
        lease, trace, now = run.position.lease, self._trace(run), self._clock.now()
        parent = trace.span_id if lease is None else span_of(lease.lease_id)
        times = (now - timedelta(seconds=seconds), now)
        self._span(trace, name, times, facts, span_id="", parent_id=parent, kind=kind)

    def _span(
        self,
        trace: RunTrace,
        name: str,
        times: tuple[datetime, datetime],
        facts: Mapping[str, Any],
        *,
        span_id: str,
        parent_id: str,
        kind: SpanKind,
        is_error: bool = False,
    ) -> None:
        if not trace.is_sampled:
            return
        self._exporting.has_news = True
        began, ended = times
        within = self._within(trace, parent_id) if parent_id else Context()
        self._exporting.ids.give(trace.trace_id, span_id)
        span = self._exporting.tracer.start_span(
            name, within, kind, facts, start_time=_nanoseconds(began)
        )
        if is_error:
            span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(max(began, ended)))

    def _within(self, trace: RunTrace, span_id: str = "") -> Context:
        """Return the context of a span, for its children and for the exemplars of its counts."""
        self._exporting.has_news = True
        return _context_of(trace.trace_id, span_id or trace.span_id, trace.is_sampled)

    def _tool(self, name: str) -> str:
        """Return the first tool as a series has it: a handler may name any number of them."""
        if name not in self._tools:
            if len(self._tools) >= MAX_TOOL_SERIES:
                return "other"
            self._tools.add(name)
        return name


def _facts(run: Manifest) -> dict[str, Any]:
    at = run.position
    return {
        "run_id": run.run_id,
        "pipeline": run.pipeline,
        "step_type": run.step_type,
        "attempt": at.attempt,
        "trial": at.trial,
        "generation": at.dispatch.generation,
    }


def _context_of(
    trace_id: str, span_id: str, is_sampled: bool, *, is_remote: bool = False
) -> Context:
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    ids = int(trace_id, 16), int(span_id, 16)
    around = SpanContext(*ids, is_remote=is_remote, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(around), Context())


def _parent_around() -> Parent | None:
    """Return the span that a program around us is in; None: it is in none."""
    around = get_current_span().get_span_context()
    if not around.is_valid:
        return None
    ids = format(around.trace_id, "032x"), format(around.span_id, "016x")
    return Parent(*ids, is_sampled=around.trace_flags.sampled)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000


def open_telemetry(
    endpoint: str,
    environ: Mapping[str, str],
    *,
    env: str,
    steps: Registry[StepDispatchEntry],
    holder: str,
    clock: Clock,
    log: Callable[[str], object],
) -> OpenTelemetry:
    """Return the telemetry that is sent to `endpoint`; see `OpenTelemetry` and `Exporting`."""

    def agent_of(step: str) -> str:
        entry = steps.get(step)
        return step if entry is None or entry.handler == REMOTE else entry.handler

    about = {"service.instance.id": clock.new_id(), "deployment.environment.name": env}
    if not (
        environ.get("OTEL_SERVICE_NAME")
        or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    ):
        about["service.name"] = environ.get("K_SERVICE") or "leasehold"
    exporting = Exporting(endpoint, environ, about, clock, log)
    return OpenTelemetry(exporting, agent_of, holder=holder, env=env, clock=clock, log=log)
