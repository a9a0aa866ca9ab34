"""The contexts of handlers and gates for unit tests: the real ones, without engine or store."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pydantic_core

from leasehold.attempt.attempt import Attempt, LimitsOfAttempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.files import RunArtifacts
from leasehold.attempt.outage import pause
from leasehold.attempt.values import load
from leasehold.bootstrap import folder_artifacts, no_documents
from leasehold.bounded_calls import side_by_side
from leasehold.domain.artifact_name import RunLife
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import CallResult, Checkpoint, KeptValue, PhaseReached
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle.start import NewRun, new_manifest
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.manifest_parts import (
    Attempts,
    Lease,
    Place,
    Progress,
    StepRecord,
    TrialRecord,
    TrialRule,
)
from leasehold.domain.recorded_calls import MadeCall, check_call_key
from leasehold.domain.signal import Signal
from leasehold.domain.spend import NOTHING, Spend, checked_spend
from leasehold.domain.status import RunStatus, Termination
from leasehold.domain.stored import replace
from leasehold.errors import UnknownLimitError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock, Threads
from leasehold.ports.documents import Committed, KnownRun, Snapshot
from leasehold.ports.telemetry import NO_TELEMETRY, Telemetry
from leasehold.services.request_bounds import NOTE, is_note
from leasehold.testing.arguments import (
    checked_clock,
    checked_mapping,
    checked_number,
    checked_run_id,
    checked_seconds,
    json_text,
    refuse,
)
from leasehold.testing.clock import FrozenClock
from leasehold.worker.context.checkpoints import IncrementalState
from leasehold.worker.context.step_context import StepContext
from leasehold.worker.handler.gates import GateContext

_MAX_TIME_LEFT_S: Final = 86_400.0
_VALUES: Final = "JSON values"
_FREE: Final = "free"
_TAKEN: Final = "taken"


@dataclass(slots=True)
class Recorded:
    """The record of a handler's use of its context.

    Attributes:
        checkpoints: each checkpoint it kept, as the `IncrementalState` that the next attempt would
            find in `resume`.
        calls: the results of the calls that it made once (`once`), by key, as JSON values; those
            that were spared are not among them.
        progress: each progress it made, with its `fraction` from 0 to 1 and its `message`.
        spent: what it spent, in calls that it made once and beside them: `tokens`, and `usd`.
        limits: each limit that it held, in order.
        refusals: the limits in whose blocks a provider took no more (429), and for how many
            seconds: one that adapts is lowered.
        log: each `logging.LogRecord` that it logged with `ctx.log`.
    """

    checkpoints: list[IncrementalState] = field(default_factory=list)
    calls: dict[str, Any] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)
    spent: Spend = NOTHING
    limits: list[str] = field(default_factory=list)
    refusals: list[tuple[str, float]] = field(default_factory=list)
    log: list[logging.LogRecord] = field(default_factory=list)
    _artifacts: RunArtifacts | None = None
    _files: dict[str, bytes] = field(default_factory=dict)

    @property
    def files(self) -> Mapping[str, bytes]:
        """The bytes of the files of the run, by name: as they are now, or were in the end."""
        if self._artifacts is not None:
            return {name: self._artifacts.get(name) for name in self._artifacts.list()}
        return self._files

    @property
    def messages(self) -> list[str]:
        """The texts that it logged with `ctx.log`, in order."""
        return [record.getMessage() for record in self.log]


class _GivenLimits(LimitsOfAttempt):
    """The limits of a step as a test says that they are: free or taken."""

    def __init__(self, step: str, limits: Mapping[str, str], recorded: Recorded) -> None:
        self._step, self._limits, self._recorded = step, limits, recorded

    def take(self, name: str) -> bool:
        """Take a limit; False: it has no room, and the attempt is to end."""
        if name not in self._limits:
            known = ", ".join(self._limits) or "none"
            raise UnknownLimitError(limit=name, step=self._step, known=known)
        if self._limits[name] == _TAKEN:
            return False
        self._recorded.limits.append(name)
        return True

    def free(self, name: str, retry_after_s: float | None = None) -> None:
        """Note what the provider said in the block."""
        if retry_after_s is not None:
            self._recorded.refusals.append((name, retry_after_s))


class _RecordingCalls(AttemptCalls):
    """The calls of an attempt; results that it records are noted by their keys."""

    def __init__(self, attempt: Attempt, noted: dict[str, Any]) -> None:
        super().__init__(attempt)
        self._noted = noted

    def record_result(self, made: MadeCall) -> str:
        """Record a result, and note it."""
        text = super().record_result(made)
        self._noted[made.key] = pydantic_core.from_json(text)
        return text


class RecordingContext(StepContext):
    """A StepContext that records what is done with it.

    Attributes:
        recorded: what the handler did, as a `Recorded`.
        clock: the time that `time_left` and waits go by; a FrozenClock that skips waits.
    """

    def __init__(self, attempt: Attempt, recorded: Recorded) -> None:
        super().__init__(_RecordingCalls(attempt, recorded.calls))
        self._attempt = attempt
        self.recorded = recorded
        self.clock = attempt.engine.clock

    def progress(self, fraction: float, message: str = "") -> None:
        """Record how far the work is, as `StepContext.progress` does."""
        super().progress(fraction, message)
        if self._attempt.progress is not None:
            self.recorded.progress.append(self._attempt.progress)

    def spend(self, *, tokens: int = 0, usd: float = 0.0) -> None:
        """Record what the work has cost, as `StepContext.spend` does."""
        super().spend(tokens=tokens, usd=usd)
        self.recorded.spent = checked_spend(tokens, usd).plus(self.recorded.spent)

    def request_stop(self) -> None:
        """Ask the handler to end, as SIGTERM does: `shutdown_requested` is True from now on."""
        self._attempt.ask_to_stop(Termination.INSTANCE_SHUTDOWN)


@contextlib.contextmanager
def step_context(
    *,
    run_id: str = "r-test",
    step_type: str = "step",
    step: str | None = None,
    attempt: int = 1,
    trial: int = 1,
    note: str | None = None,
    resume: IncrementalState | None = None,
    calls: Mapping[str, Any] | None = None,
    signals: Mapping[str, Any] | None = None,
    limits: Mapping[str, str] | None = None,
    outputs: Mapping[str, Any] | None = None,
    statuses: Mapping[str, str] | None = None,
    findings: Sequence[Any] = (),
    files: Mapping[str, bytes] | None = None,
    time_left: timedelta | float = timedelta(minutes=10),
    stop_at_checkpoint: int | None = None,
    clock: Clock | None = None,
) -> Iterator[RecordingContext]:
    """Make the context of one attempt of a step, for a test that calls the handler itself.

    What the engine refuses is refused here: a checkpoint that is not JSON, names of files, sizes.

    Args:
        run_id: the run.
        step_type: the step.
        step: its name, where it stands in the pipeline under another one than its type.
        attempt: the number of the attempt, from 1.
        trial: the number of the trial, from 1.
        note: the words of the person who had the step retried.
        resume: what an earlier attempt kept; None: it begins at the beginning.
        calls: results of `ctx.once` that earlier attempts recorded, by key; JSON values or
            pydantic models.
        signals: what was sent to the run before, by name, for `ctx.wait_for`; None: the time of
            that wait is over. JSON values or pydantic models. A wait for any other name raises
            SignalAwaitedError, as it ends an attempt.
        limits: those that the handler takes by `ctx.limit`, by their keys: `free`, or `taken`, and
            then it raises ContinuedError, as it ends an attempt. Any other one is a mistake.
        outputs: of earlier steps, for `ctx.output_of`; JSON values or pydantic models.
        statuses: of those outputs that are PARTIAL, for `ctx.status_of`: `{"draft": "PARTIAL"}`.
        findings: what the reviewer of the trial before found; only where `trial` is 2 or more.
        files: of the run.
        time_left: a timedelta, or seconds.
        stop_at_checkpoint: ask the handler to end as it keeps its n-th checkpoint; at any other
            point, call `ctx.request_stop()`.
        clock: in place of a FrozenClock that skips waits.

    Raises:
        InvalidRequestError: an argument is not what it may be.
    """
    clock = checked_clock(clock or FrozenClock(skips_waits=True))
    left = timedelta(seconds=checked_seconds("time_left", time_left, _MAX_TIME_LEFT_S))
    if stop_at_checkpoint is not None:
        checked_number("stop_at_checkpoint", stop_at_checkpoint)
    manifest = run_at_work(clock, run_id, step_type, _outputs(outputs), left, name=step)
    manifest = with_statuses(manifest, statuses or {})
    failed = Attempts(failed=checked_number("attempt", attempt) - 1)
    number = checked_number("trial", trial)
    recorded_calls = checked_mapping("calls", calls or {}, object, _VALUES)
    results = results_of(manifest.position.step, number, recorded_calls)
    if note is not None and not (isinstance(note, str) and is_note(note)):
        refuse("note", note, NOTE)
    manifest = replace(
        manifest,
        position=replace(
            manifest.position, attempts=failed, trial=number, calls=results, note=note
        ),
    )
    manifest = replace(manifest, signals=signals_of(clock, signals or {}))
    if resume is not None:
        manifest = replace(
            manifest,
            position=replace(manifest.position, checkpoint=checkpoint_of(clock, manifest, resume)),
        )
    manifest = after_review(manifest, findings)
    with contextlib.ExitStack() as stack:
        if isinstance(clock, FrozenClock):
            stack.enter_context(clock.watched_by(None))
        recorded = Recorded()
        artifacts = stack.enter_context(_artifacts(manifest, files, clock, recorded))

        def on_checkpoint(state: IncrementalState) -> None:
            recorded.checkpoints.append(state)
            if len(recorded.checkpoints) == stop_at_checkpoint:
                ctx.request_stop()

        engine = MemoryEngine(artifacts, clock, on_checkpoint)
        at_work = engine.attempt(manifest)
        at_work.limits = _GivenLimits(step_type, limits_of(limits or {}), recorded)
        ctx = RecordingContext(at_work, recorded)
        stack.enter_context(_logged(ctx.log.logger, run_id, recorded.log))
        yield ctx


class RecordingGateContext(GateContext):
    """A GateContext that records what the gate stores.

    Attributes:
        recorded: a `Recorded`, of which `files` has something.
    """

    recorded: Recorded


@contextlib.contextmanager
def gate_context(
    *,
    run_id: str = "r-test",
    step_type: str = "step",
    trial: int = 1,
    given: Any = None,
    outputs: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Iterator[RecordingGateContext]:
    """Make the context of a gate, for a test that calls the gate itself.

    Args:
        run_id: the run.
        step_type: the step whose output is judged.
        trial: the number of the trial, from 1.
        given: what the step was given, where it is the first; a JSON value or a pydantic model.
        outputs: of earlier steps, in order, for `ctx.output_of`; the last of them is `ctx.given`.
        files: of the run.

    Raises:
        InvalidRequestError: an argument is not what it may be.
    """
    clock, recorded = FrozenClock(), Recorded()
    if outputs and given is not None:
        refuse("given", given, "nothing beside outputs: a step is given the last of them")
    manifest = run_at_work(clock, run_id, step_type, _outputs(outputs), timedelta(minutes=10))
    number = checked_number("trial", trial)
    position = replace(manifest.position, trial=number)
    manifest = replace(manifest, input=json_text("given", given), position=position)
    with _artifacts(manifest, files, clock, recorded) as artifacts:
        ctx = RecordingGateContext(manifest, artifacts, partial(load, artifacts))
        ctx.recorded = recorded
        yield ctx


@contextlib.contextmanager
def _artifacts(
    run: RunLife, files: Mapping[str, bytes] | None, clock: Clock, recorded: Recorded
) -> Iterator[Artifacts]:
    """Keep artifacts in a temporary folder; what the run has in the end is recorded."""
    with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
        artifacts = folder_artifacts(Path(folder), clock)
        of_run = recorded._artifacts = RunArtifacts(artifacts, run)  # noqa: SLF001 - its maker
        for name, data in checked_mapping("files", files or {}, bytes, "bytes").items():
            of_run.put(name, data)
        try:
            yield artifacts
        finally:
            recorded._files = dict(recorded.files)  # noqa: SLF001 - as above
            recorded._artifacts = None  # noqa: SLF001 - as above


@contextlib.contextmanager
def _logged(
    logger: logging.Logger, run_id: str, records: list[logging.LogRecord]
) -> Iterator[None]:
    """Note what is logged for the run inside, whatever the level of the logger is."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "run_id", run_id) == run_id:
                records.append(record)

    notes, level = Notes(), logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(notes)


def _outputs(outputs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return checked_mapping("outputs", outputs or {}, object, _VALUES)


# A run as a test says that it is: at work on one step, with the outputs before it.


#: Of the lease of such a run: nothing ends it.
LEASE: Final = timedelta(days=365)

#: A step whose output is an ERROR has none that is kept.
_KEPT: Final = ("SUCCESS", "PARTIAL")


class RoomyRun(Manifest):
    """A run of a test: it has room for any text. A real one keeps the large ones in files."""

    @property
    def text_bytes(self) -> int:
        """Nothing."""
        return 0


def run_at_work(
    clock: Clock,
    run_id: str,
    step_type: str,
    outputs: Mapping[str, Any],
    time_left: timedelta,
    *,
    name: str | None = None,
) -> Manifest:
    """Return a run whose step is at work, with the outputs of the steps before it."""
    step = step_type if name is None else name
    for field_name, value in (("step_type", step_type), ("step", step)):
        if not isinstance(value, str) or not value or value in outputs:
            refuse(field_name, value, "the name of a step that is not in outputs")
    settings = _settings(step_type, time_left)
    done = {
        name: StepRecord(status=RunStatus.COMPLETED, output=json_text(f"outputs[{name!r}]", value))
        for name, value in outputs.items()
    }
    new = NewRun(
        run_id=checked_run_id(run_id),
        pipeline="test",
        plan=(*outputs, step),
        places=None if name is None else {step: Place(step_type=step_type)},
        input=KeptValue(text="null"),
        input_digest="",
        nonce=run_id,  # the same run has the same life: contexts on one folder share its files
    )
    now = clock.now()
    manifest = new_manifest(
        now,
        rules=Rules(settings_for={step_type: settings}.get),
        new=new,
        step=step,
        steps={**done, step: StepRecord(status=RunStatus.IN_PROGRESS)},
    )
    run = RoomyRun.model_construct(None, **dict(manifest))
    position = replace(run.position, lease=_lease(clock, now))
    return replace(run, status=RunStatus.IN_PROGRESS, fencing_token=1, position=position)


def checkpoint_of(clock: Clock, run: Manifest, resume: IncrementalState) -> Checkpoint:
    """Return what an earlier attempt kept, as the run has it."""
    fits = isinstance(resume, IncrementalState) and isinstance(resume.phase, str)
    if not fits or type(resume.iteration_count) is not int or resume.iteration_count < 0:
        allowed = "IncrementalState(phase: str, iteration_count: int, partial_results), or None"
        refuse("resume", resume, allowed)
    return Checkpoint(
        step=run.position.step,
        trial=run.position.trial,
        phase=resume.phase,
        iteration_count=resume.iteration_count,
        inline=json_text("resume", resume.partial_results),
        saved_at=clock.now(),
        fencing_token=run.fencing_token - 1,
        furthest=(PhaseReached(phase=resume.phase, iteration_count=resume.iteration_count),),
    )


def with_statuses(run: Manifest, statuses: Mapping[str, str]) -> Manifest:
    """Return the run with these statuses of the outputs that it has."""
    known = [step for step, record in run.steps.items() if record.kept_output is not None]
    for step, status in checked_mapping("statuses", statuses, str, "texts").items():
        if step not in known:
            refuse("statuses", step, ", ".join(known) or "none: no outputs are given")
        if status not in _KEPT:
            refuse(f"statuses[{step!r}]", status, ", ".join(_KEPT))
        run = replace(
            run, steps={**run.steps, step: replace(run.steps[step], output_status=status)}
        )
    return run


def after_review(run: Manifest, findings: Sequence[Any]) -> Manifest:
    """Return the run in the trial after one whose reviewer found that."""
    if not isinstance(findings, list | tuple):
        refuse("findings", findings, "a list of JSON values")
    if not findings:
        return run
    if run.position.trial == 1:
        refuse("findings", [*findings], "none in the first trial; give trial=2 as well")
    text = json_text("findings", {"findings": [*findings]})
    review = TrialRecord(trial=run.position.trial - 1, output=text, output_status="SUCCESS")
    reviewer = f"review of {run.position.step}"
    record = StepRecord(status=RunStatus.PENDING, trials=(review,))
    return replace(
        run,
        plan=(*run.plan, reviewer),
        steps={**run.steps, reviewer: record},
        trials=TrialRule(
            author=run.position.step, reviewer=reviewer, max_trials=run.position.trial
        ),
    )


def signals_of(clock: Clock, signals: Mapping[str, Any]) -> tuple[Signal, ...] | None:
    """Return the signals of a run, as it keeps them."""
    given = checked_mapping("signals", signals, object, _VALUES)
    found = tuple(
        Signal(
            name=name,
            id=f"signal-{name}",
            at=clock.now(),
            inline=json_text(f"signals[{name!r}]", value),
            is_missed=True if value is None else None,
        )
        for name, value in given.items()
    )
    return found or None


def limits_of(limits: Mapping[str, str]) -> Mapping[str, str]:
    """Return which limits are free, and which are taken."""
    given = checked_mapping("limits", limits, str, f"{_FREE!r} or {_TAKEN!r}")
    for key, state in given.items():
        if state not in (_FREE, _TAKEN):
            refuse(f"limits[{key!r}]", state, f"{_FREE!r} or {_TAKEN!r}")
    return given


def results_of(step: str, trial: int, calls: Mapping[str, Any]) -> tuple[CallResult, ...]:
    """Return the recorded results of earlier attempts, as a run has them."""
    for key in calls:
        check_call_key(key)
    return tuple(
        CallResult(
            step=step,
            trial=trial,
            key=key,
            type="",  # as the handler reads it
            inline=json_text(f"calls[{key!r}]", value),
        )
        for key, value in calls.items()
    )


def _settings(step_type: str, time_left: timedelta) -> StepSettings:
    return StepSettings(
        step_type=step_type,
        agent_timeout=time_left,
        dispatch_deadline=LEASE,
        max_retries=5,
        heartbeat=None,
        queue=step_type,
        remote=False,
        schedule_to_start=timedelta(hours=1),
        sources={},
    )


def _lease(clock: Clock, now: datetime) -> Lease:
    ends = now + LEASE
    return Lease(
        lease_id=clock.new_id(),
        holder="test",
        acquired_at=now,
        expires_at=ends,
        max_expires_at=ends,
    )


# An engine for the attempts of a test: what is written under a lease stays with the test.


class MemoryEngine:
    """An engine for one attempt (`ports/attempt_engine.py`), without a store of runs.

    Args:
        artifacts: the files of runs.
        clock: the time.
        on_checkpoint: given each checkpoint, as the next attempt would find it.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        clock: Clock,
        on_checkpoint: Callable[[IncrementalState], None],
    ) -> None:
        self.documents = no_documents(clock)
        self.artifacts = artifacts
        self.clock = clock
        self.rules = Rules(settings_for=lambda _: None)
        self.telemetry: Telemetry = NO_TELEMETRY
        self.threads = Threads(side_by_side, _at_once, partial(pause, clock))
        self._on_checkpoint = on_checkpoint

    def attempt(self, run: Manifest) -> Attempt:
        """Return an attempt of the run's current step, under the lease that the run has."""
        clock = self.clock
        found = Snapshot(run_ref(run.run_id), to_document(run), 1, clock.now(), clock.monotonic())
        return Attempt(self, KnownRun(run, found), fence_of(run), patience=0.0)

    def dispatch_rules(self) -> Rules:
        """Return the rules."""
        return self.rules

    def commit(
        self,
        run_id: str,
        transition: Transition,
        *,
        known: KnownRun | None = None,
        in_transaction: bool = False,  # noqa: ARG002 - as an engine has it
        within: float | None = None,  # noqa: ARG002 - as above
    ) -> Committed[Change]:
        """Tell the test what is new in the run; its lease ends when it would have ended."""
        assert known is not None, run_id  # noqa: S101 - nothing else changes the run
        run, snapshot = known
        change = transition(run, run.updated_at)
        after = change.manifest
        if after.position.lease is not None:
            after = replace(after, position=replace(after.position, lease=run.position.lease))
        self._tell(run, after)
        return Committed(change._replace(manifest=after), snapshot)

    def publish_or_leave(self, change: Change) -> Change:
        """Do nothing."""
        return change

    def _tell(self, before: Manifest, after: Manifest) -> None:
        kept = after.position.checkpoint
        if kept is not None and kept != before.position.checkpoint:
            found = pydantic_core.from_json(load(self.artifacts, kept.partial_results))
            self._on_checkpoint(IncrementalState(kept.phase, kept.iteration_count, found))


def _at_once(call: Callable[[], object], _patience_s: float | None) -> bool:
    call()
    return True
