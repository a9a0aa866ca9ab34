"""The contexts of handlers and gates for unit tests: the real ones, without engine or store."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.files import RunArtifacts
from leasehold.attempt.values import load
from leasehold.bootstrap import folder_artifacts
from leasehold.domain.artifact_name import RunLife
from leasehold.domain.manifest_parts import Attempts, Progress
from leasehold.domain.status import Termination
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.services.limits import NOTE, is_note
from leasehold.testing.arguments import (
    checked_clock,
    checked_mapping,
    checked_number,
    checked_seconds,
    json_text,
    refuse,
)
from leasehold.testing.clock import FrozenClock
from leasehold.testing.given_run import (
    after_review,
    checkpoint_of,
    results_of,
    run_at_work,
    with_statuses,
)
from leasehold.testing.memory_engine import MemoryEngine
from leasehold.worker.context import IncrementalState, StepContext
from leasehold.worker.gates import GateContext

_LONGEST_S: Final = 86_400.0
_VALUES: Final = "JSON values"


@dataclass(slots=True)
class Recorded:
    """What a handler did with its context.

    Args:
        checkpoints: each checkpoint it kept, as the next attempt would find it in `resume`.
        calls: the results of the calls that it made once (`once`), by key, as JSON values; those
            that were spared are not among them.
        progress: each progress it made.
        files: the files of the run, by name: as they are, and in the end.
        log: each record that it logged with `ctx.log`.
    """

    checkpoints: list[IncrementalState] = field(default_factory=list)
    calls: dict[str, Any] = field(default_factory=dict)
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

    def __init__(self, attempt: Attempt, recorded: Recorded) -> None:
        super().__init__(AttemptCalls(attempt))
        self._attempt = attempt
        self.recorded = recorded
        self.clock = attempt.engine.clock

    def progress(self, fraction: float, message: str = "") -> None:
        """Record how far the work is."""
        super().progress(fraction, message)
        if self._attempt.progress is not None:
            self.recorded.progress.append(self._attempt.progress)

    def request_stop(self) -> None:
        """Ask the handler to end, as SIGTERM does: `shutdown_requested` is True from now on."""
        self._attempt.ask_to_stop(Termination.INSTANCE_SHUTDOWN)


@contextlib.contextmanager
def step_context(
    *,
    run_id: str = "r-test",
    step_type: str = "step",
    attempt: int = 1,
    trial: int = 1,
    note: str | None = None,
    resume: IncrementalState | None = None,
    calls: Mapping[str, Any] | None = None,
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
        attempt: the number of the attempt, from 1.
        trial: the number of the trial, from 1.
        note: the words of the person who had the step retried.
        resume: what an earlier attempt kept; None: it begins at the beginning.
        calls: results of `ctx.once` that earlier attempts recorded, by key; JSON values or
            pydantic models.
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
    left = timedelta(seconds=checked_seconds("time_left", time_left, _LONGEST_S))
    if stop_at_checkpoint is not None:
        checked_number("stop_at_checkpoint", stop_at_checkpoint)
    manifest = run_at_work(clock, run_id, step_type, _outputs(outputs), left)
    manifest = with_statuses(manifest, statuses or {})
    failed = Attempts(failed=checked_number("attempt", attempt) - 1)
    number = checked_number("trial", trial)
    results = results_of(step_type, number, checked_mapping("calls", calls or {}, object, _VALUES))
    if note is not None and not (isinstance(note, str) and is_note(note)):
        refuse("note", note, NOTE)
    manifest = manifest.at(attempts=failed, trial=number, calls=results, note=note)
    if resume is not None:
        manifest = manifest.at(checkpoint=checkpoint_of(clock, manifest, resume))
    manifest = after_review(manifest, findings)
    with contextlib.ExitStack() as stack:
        if isinstance(clock, FrozenClock):
            stack.enter_context(clock.watched_by(lambda: None))
        recorded = Recorded()
        artifacts = stack.enter_context(_artifacts(manifest, files, clock, recorded))

        def on_checkpoint(state: IncrementalState) -> None:
            recorded.checkpoints.append(state)
            if len(recorded.checkpoints) == stop_at_checkpoint:
                ctx.request_stop()

        on_call = recorded.calls.__setitem__
        engine = MemoryEngine(artifacts, clock, on_checkpoint, on_call)
        ctx = RecordingContext(engine.attempt(manifest), recorded)
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
    manifest = manifest.with_(input=json_text("given", given)).at(trial=number)
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
