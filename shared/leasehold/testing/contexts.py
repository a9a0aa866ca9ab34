"""The contexts of handlers and gates for unit tests: the real ones, without engine or store."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pydantic_core

from leasehold.bootstrap import folder_artifacts
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.json_text import check_depth
from leasehold.domain.lifecycle.start import NewRun, new_manifest
from leasehold.domain.manifest import Manifest, is_run_id
from leasehold.domain.manifest_parts import (
    Attempts,
    Checkpoint,
    KeptValue,
    Lease,
    Progress,
    StepRecord,
)
from leasehold.domain.printable import printable
from leasehold.domain.status import RunStatus, Termination
from leasehold.errors import InvalidRequestError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.services.kept_values import load
from leasehold.testing.clock import FrozenClock
from leasehold.testing.memory_attempt import MemoryAttempt
from leasehold.worker.context import IncrementalState, RunArtifacts, StepContext
from leasehold.worker.gates import GateContext
from leasehold.worker.held_attempt import HeldAttempt

_MAX_SHOWN: Final = 200
_MAX_TIME_S: Final = 86_400.0
_LEASE: Final = timedelta(days=365)


@dataclass(slots=True)
class Recorded:
    """What a handler did with its context.

    Args:
        checkpoints: each checkpoint it kept, as the next attempt would find it in `resume`.
        progress: each progress it made.
        files: the files of the run, by name: as they are, and in the end.
        log: each record that it logged with `ctx.log`.
    """

    checkpoints: list[IncrementalState] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    log: list[logging.LogRecord] = field(default_factory=list)
    _artifacts: RunArtifacts | None = None
    _files: dict[str, bytes] = field(default_factory=dict)

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the run, by name."""
        if self._artifacts is not None:
            return {name: self._artifacts.get(name) for name in self._artifacts.list()}
        return self._files

    @property
    def messages(self) -> list[str]:
        """What was logged, as text."""
        return [record.getMessage() for record in self.log]


class RecordingContext(StepContext):
    """A StepContext that records what is done with it.

    Attributes:
        recorded: what the handler did.
        clock: the time that `time_left` and waits go by; a FrozenClock that skips waits.
    """

    def __init__(
        self, held: HeldAttempt, recorded: Recorded, artifacts: Artifacts, clock: Clock
    ) -> None:
        super().__init__(
            held,
            artifacts=artifacts,
            load=partial(load, artifacts),
            monotonic=clock.monotonic,
        )
        self.recorded = recorded
        self.clock = clock

    def progress(self, fraction: float, message: str = "") -> None:
        """Record how far the work is."""
        super().progress(fraction, message)
        if self._held.progress is not None:
            self.recorded.progress.append(self._held.progress)

    def request_stop(self) -> None:
        """Ask the handler to end, as SIGTERM does: `shutdown_requested` is True from now on."""
        self._held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)


@contextlib.contextmanager
def step_context(
    *,
    run_id: str = "r-test",
    step_type: str = "step",
    attempt: int = 1,
    trial: int = 1,
    resume: IncrementalState | None = None,
    outputs: Mapping[str, Any] | None = None,
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
        attempt: the number of the attempt, from 1.
        trial: the number of the trial, from 1.
        resume: what an earlier attempt kept; None: it begins at the beginning.
        outputs: of earlier steps, for `ctx.output_of`; JSON values or pydantic models.
        files: of the run.
        time_left: a timedelta, or seconds.
        stop_at_checkpoint: ask the handler to end as it keeps its n-th checkpoint; at any other
            point, call `ctx.request_stop()`.
        clock: in place of a FrozenClock that skips waits.

    Raises:
        InvalidRequestError: an argument is not what it may be.
    """
    clock = clock or FrozenClock(skips_waits=True)
    _check_number("attempt", attempt)
    _check_number("trial", trial)
    if stop_at_checkpoint is not None:
        _check_number("stop_at_checkpoint", stop_at_checkpoint)
    manifest = _manifest(clock, run_id, step_type, outputs or {}, _duration(time_left))
    failed = Attempts(failed=attempt - 1)
    kept = None if resume is None else _checkpoint(clock, step_type, resume)
    manifest = manifest.with_(attempts=failed, trial=trial, checkpoint=kept)
    with contextlib.ExitStack() as stack:
        if isinstance(clock, FrozenClock):
            stack.enter_context(clock.watched_by(lambda: None))
        recorded = Recorded()
        artifacts = stack.enter_context(_artifacts(run_id, files or {}, clock, recorded))

        def on_checkpoint(state: IncrementalState) -> None:
            recorded.checkpoints.append(state)
            if len(recorded.checkpoints) == stop_at_checkpoint:
                ctx.request_stop()

        lease = clock.monotonic() + _LEASE.total_seconds()
        held = HeldAttempt(MemoryAttempt(manifest, lease, on_checkpoint), clock, patience=0.0)
        ctx = RecordingContext(held, recorded, artifacts, clock)
        stack.enter_context(_logged(ctx.log.logger, run_id, recorded.log))
        yield ctx


class RecordingGateContext(GateContext):
    """A GateContext; `recorded.files` has what the gate stored."""

    recorded: Recorded


@contextlib.contextmanager
def gate_context(
    *,
    run_id: str = "r-test",
    step_type: str = "step",
    given: Any = None,
    outputs: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Iterator[RecordingGateContext]:
    """Make the context of a gate, for a test that calls the gate itself.

    Args:
        run_id: the run.
        step_type: the step whose output is judged.
        given: what the step was given, where it is the first; a JSON value or a pydantic model.
        outputs: of earlier steps, in order, for `ctx.output_of`; the last of them is `ctx.given`.
        files: of the run.

    Raises:
        InvalidRequestError: an argument is not what it may be.
    """
    clock, recorded = FrozenClock(), Recorded()
    if outputs and given is not None:
        allowed = "nothing beside outputs: a step is given the last of them"
        raise InvalidRequestError(field="given", value=_shown(given), allowed=allowed)
    manifest = _manifest(clock, run_id, step_type, outputs or {}, timedelta(minutes=10))
    manifest = manifest.with_(input=_text("given", given))
    with _artifacts(run_id, files or {}, clock, recorded) as artifacts:
        ctx = RecordingGateContext(manifest, artifacts, partial(load, artifacts))
        ctx.recorded = recorded
        yield ctx


def _manifest(
    clock: Clock,
    run_id: str,
    step_type: str,
    outputs: Mapping[str, Any],
    time_left: timedelta,
) -> Manifest:
    """Return a run whose step is at work, with the outputs of the steps before it."""
    if not isinstance(run_id, str) or not is_run_id(run_id):
        allowed = "up to 128 of a-z A-Z 0-9 _ -, beginning with a letter or digit"
        raise InvalidRequestError(field="run_id", value=_shown(run_id), allowed=allowed)
    if not isinstance(step_type, str) or not step_type or step_type in outputs:
        allowed = "the name of a step that is not in outputs"
        raise InvalidRequestError(field="step_type", value=_shown(step_type), allowed=allowed)
    settings = StepSettings(
        step_type=step_type,
        agent_timeout=time_left,
        dispatch_deadline=_LEASE,
        max_retries=5,
        heartbeat=None,
        queue=step_type,
        remote=False,
        schedule_to_start=timedelta(hours=1),
        sources={},
    )
    done = {
        name: StepRecord(status=RunStatus.COMPLETED, output=_text(f"outputs[{name!r}]", value))
        for name, value in outputs.items()
    }
    new = NewRun(
        run_id=run_id,
        pipeline="test",
        plan=(*outputs, step_type),
        input=KeptValue(text="null"),
        input_digest="",
        nonce=clock.new_id(),
    )
    now = clock.now()
    manifest = new_manifest(
        now,
        rules=Rules(settings_for={step_type: settings}.get),
        settings=settings,
        new=new,
        steps={**done, step_type: StepRecord(status=RunStatus.IN_PROGRESS)},
    )
    ends = now + _LEASE
    lease = Lease(
        lease_id=clock.new_id(),
        holder="test",
        acquired_at=now,
        expires_at=ends,
        max_expires_at=ends,
    )
    return manifest.with_(status=RunStatus.IN_PROGRESS, lease=lease, fencing_token=1)


def _checkpoint(clock: Clock, step_type: str, resume: IncrementalState) -> Checkpoint:
    if not isinstance(resume, IncrementalState):
        allowed = "IncrementalState(phase, iteration_count, partial_results), or None"
        raise InvalidRequestError(field="resume", value=_shown(resume), allowed=allowed)
    return Checkpoint(
        step=step_type,
        trial=1,
        phase=resume.phase,
        iteration_count=resume.iteration_count,
        inline=_text("resume", resume.partial_results),
        saved_at=clock.now(),
        fencing_token=1,
    )


@contextlib.contextmanager
def _artifacts(
    run_id: str, files: Mapping[str, bytes], clock: Clock, recorded: Recorded
) -> Iterator[Artifacts]:
    """Keep artifacts in a temporary folder; what the run has in the end is recorded."""
    with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
        artifacts = folder_artifacts(Path(folder), clock)
        of_run = recorded._artifacts = RunArtifacts(artifacts, run_id)  # noqa: SLF001 - its maker
        for name, data in files.items():
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


def _text(field_name: str, value: Any) -> str:
    """Return the JSON text of a value, as the engine keeps it."""
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
        pydantic_core.from_json(text, allow_inf_nan=False)
        check_depth(text)
    except ValueError as error:
        problem = str(error)[:_MAX_SHOWN]
        raise InvalidRequestError(field=field_name, value=problem, allowed="JSON values") from None
    return text


def _duration(time_left: timedelta | float) -> timedelta:
    is_number = isinstance(time_left, int | float) and not isinstance(time_left, bool)
    seconds = time_left.total_seconds() if isinstance(time_left, timedelta) else time_left
    if not (is_number or isinstance(time_left, timedelta)) or not 0 <= seconds <= _MAX_TIME_S:
        allowed = f"a timedelta or seconds from 0 to {_MAX_TIME_S:g}"
        raise InvalidRequestError(field="time_left", value=_shown(time_left), allowed=allowed)
    return timedelta(seconds=seconds)


def _check_number(field_name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        allowed = "a whole number from 1 on"
        raise InvalidRequestError(field=field_name, value=_shown(value), allowed=allowed)


def _shown(value: object) -> str:
    return printable(value if isinstance(value, str) else repr(value))[:_MAX_SHOWN]
