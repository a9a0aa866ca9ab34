"""The interface between a handler's context and its attempt, and the worker's side of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pydantic_core

from leasehold.attempt.files import RunArtifacts, RunFiles
from leasehold.attempt.stop import StopSignal
from leasehold.attempt.values import load
from leasehold.domain.checkpoint import CallResult, KeptValue
from leasehold.domain.json_text import OUTPUT_BYTES, check_json, check_size
from leasehold.domain.kept_checkpoint import Load, furthest_of, may_read, read_results
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress, StepRecord
from leasehold.domain.once_results import (
    check_call_key,
    check_room,
    expected_reference,
    recorded_call,
)
from leasehold.domain.spend import Spend
from leasehold.domain.stored import replace
from leasehold.domain.traceparent import attempt_traceparent
from leasehold.domain.trial_record import TrialRecord
from leasehold.domain.trials import findings_in, last_review, record_with_output
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    CallResultError,
    DamagedFileError,
    InvalidRequestError,
)
from leasehold.logs.attempt import STEP_LOG

if TYPE_CHECKING:  # the process of a handler has no attempt, and asks the worker that has
    from leasehold.attempt.attempt import Attempt

_LOG: Final = logging.getLogger(STEP_LOG)


class AttemptFacts(NamedTuple):
    """Which attempt it is.

    Args:
        run_id: the run.
        step_type: the step.
        attempt: its number, from 1.
        trial: the number of the trial, from 1.
        hard_s: its agent timeout, in seconds.
        cleanup_s: what is left of that at its soft limit.
        furthest: the most iterations of each phase that any attempt of the step ever kept.
        has_checkpoint: whether an earlier attempt kept something.
        note: a person's words for it, if any.
        traceparent: its span, for what it calls; None: its run has no trace.
    """

    run_id: str
    step_type: str
    attempt: int
    trial: int
    hard_s: float
    cleanup_s: float
    furthest: Mapping[str, int]
    has_checkpoint: bool = False
    note: str | None = None
    traceparent: str | None = None

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptFacts:
        """Return the facts of an attempt that begins."""
        (run_id, step, number), run = attempt.name, attempt.manifest
        return cls(
            run_id,
            step,
            number,
            run.position.trial,
            hard_s=run.position.dispatch.timeout_ms / 1000,
            cleanup_s=run.position.dispatch.cleanup.total_seconds(),
            furthest=furthest_of(run) if run.position.checkpoint else {},
            has_checkpoint=run.position.checkpoint is not None,
            note=run.position.note,
            traceparent=None
            if run.traceparent is None
            else attempt_traceparent(run, run.traceparent, attempt.fence.lease_id),
        )


class KeptCheckpoint(NamedTuple):
    """What an earlier attempt kept; its results as JSON text."""

    phase: str
    iteration_count: int
    results: str


class ContextCalls(Protocol):
    """The requests of a context, wherever its handler runs; errors as in `StepContext`."""

    @property
    def facts(self) -> AttemptFacts:
        """Which attempt it is."""
        ...

    @property
    def stop(self) -> StopSignal:
        """Given when the handler should end."""
        ...

    @property
    def files(self) -> RunFiles:
        """The files of the run."""
        ...

    def time_left(self) -> float:
        """Return for how many seconds the attempt may still run; below zero: for none."""
        ...

    def check_lease(self) -> None:
        """Raise LeaseLostError where the lease may be over: nothing is to begin then."""
        ...

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing, or nothing that can be used."""
        ...

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results; InvalidRequestError: they are not JSON text."""
        ...

    def recorded_result(self, key: str, type_: str) -> str | None:
        """Return the result of a call that was recorded, JSON text; None: it is to be made."""
        ...

    def record_result(self, key: str, type_: str, result: str, *, keep: bool) -> None:
        """Record the result of a call that was made, JSON text; `keep`: beyond the step."""
        ...

    def reject_checkpoint(self, why: str) -> None:
        """Drop what an earlier attempt kept: it cannot be used, as a sentence says."""
        ...

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        ...

    def note_spend(self, spend: Spend) -> None:
        """Have what was spent, beside calls that are recorded, stored with the next write."""
        ...

    def mark_bootstrap(self, tool: str) -> None:
        """Note the first tool call of the handler: its execution begins."""
        ...

    def mark_execution(self) -> None:
        """Note that the handler has its result: its execution is over."""
        ...

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        ...

    def status_of(self, step_type: str) -> str:
        """Return the status of the output of an earlier step."""
        ...

    def findings(self) -> str:
        """Return what the reviewer of the trial before this one found: a list, JSON text."""
        ...


class AttemptCalls:
    """The calls of one attempt, in the worker that holds it.

    Args:
        attempt: the attempt; its time runs from now on.
    """

    def __init__(self, attempt: Attempt) -> None:
        run = attempt.manifest
        self.facts = AttemptFacts.of(attempt)
        self.stop = attempt.stop
        self._attempt = attempt
        self._run = run
        self._expected: dict[str, CallResult] = {}
        self._begun: dict[str, float] = {}
        self._unreadable: dict[str, str] = {}
        self._expecting = threading.Lock()
        self._ends_at = attempt.engine.clock.monotonic() + run.position.dispatch.timeout_ms / 1000

    @property
    def files(self) -> RunFiles:
        """The files of the run."""
        attempt = self._attempt
        return RunArtifacts(
            attempt.engine.artifacts, self._run, attempt.fetch, attempt.note_stored_file
        )

    def time_left(self) -> float:
        """Return for how many seconds the attempt may still run; below zero: for none."""
        return self._ends_at - self._attempt.engine.clock.monotonic()

    def check_lease(self) -> None:
        """Raise LeaseLostError where the lease may be over."""
        self._attempt.check_lease()

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing, or nothing that can be used."""
        kept = self._run.position.checkpoint
        if kept is None:
            return None
        found = self._attempt.fetch(partial(read_results, self._run, kept, self._load))
        if found.problem:
            self._attempt.reject_checkpoint(kept, found.problem)
            return None
        return KeptCheckpoint(kept.phase, kept.iteration_count, found.text)

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results, JSON text."""
        self._attempt.checkpoint(iteration_count, phase, results)

    def reject_checkpoint(self, why: str) -> None:
        """Drop what an earlier attempt kept, and say in the run why."""
        kept = self._run.position.checkpoint
        if kept is not None:
            self._attempt.reject_checkpoint(kept, why)

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        self._attempt.progress = progress

    def note_spend(self, spend: Spend) -> None:
        """Have what was spent, beside calls that are recorded, stored with the next write."""
        self._attempt.note_spend(spend)

    def mark_bootstrap(self, tool: str) -> None:
        """Note the first tool call of the handler."""
        self._attempt.phases.mark_bootstrap(tool, self._attempt.engine.clock.monotonic())

    def mark_execution(self) -> None:
        """Note that the handler has its result."""
        self._attempt.phases.mark_execution(self._attempt.engine.clock.monotonic())

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        return self._attempt.fetch(partial(output_text_of, self._run, self._load, step_type))

    def status_of(self, step_type: str) -> str:
        """Return the status of the output of an earlier step."""
        return _output_record(self._run, step_type).output_status or "SUCCESS"

    def findings(self) -> str:
        """Return what the reviewer of the trial before this one found: a list, JSON text."""
        review = last_review(self._run)
        if review is None:
            return "[]"
        text = self._attempt.fetch(partial(self._load, review))
        return pydantic_core.to_json(findings_in(text)).decode()

    # --- recorded results; for any thread, but for one key at a time ---

    def recorded_result(self, key: str, type_: str) -> str | None:
        """Return a result, JSON text, and count the call as spared; None: it is to be made.

        Raises:
            CallResultError: the result is of another type.
            TooManyCallsError: there would be no room for the result.
            LeaseLostError: the call is to be made, and the lease may be over.
            StoreUnavailableError: it could not be read.
        """
        check_call_key(key)
        found = recorded_call(self._attempt.manifest, key)
        if found is not None:
            _check_type(found, type_)
            text = self._text_of(found)
            if text is not None:
                self._attempt.note_spared_call()
                return text
        self._expect(self._result(key, type_))
        self._attempt.check_lease()
        self._begun[key] = self._attempt.engine.clock.monotonic()
        return None

    def record_result(self, key: str, type_: str, result: str, *, keep: bool) -> None:
        """Record a result; raises as `Attempt.record_call`, and ValueError: it is not JSON."""
        check_call_key(key)
        check_size(f"the result of call {key!r}", result, OUTPUT_BYTES)
        check_json(result)  # a process of a handler may send anything
        call = replace(self._result(key, type_), inline=result, keep=keep)
        self._attempt.record_call(call, self._unreadable.get(key))
        with self._expecting:
            self._expected.pop(key, None)
        now = self._attempt.engine.clock.monotonic()
        took = now - self._begun.pop(key, now)
        self._attempt.engine.telemetry.call_recorded(self._attempt.manifest, key, took)

    def _load(self, value: KeptValue) -> str:
        return load(self._attempt.engine.artifacts, value)

    def _result(self, key: str, type_: str) -> CallResult:
        return CallResult(
            step=self._run.position.step, trial=self._run.position.trial, key=key, type=type_
        )

    def _expect(self, call: CallResult) -> None:
        """Note that a call is to be made, or refuse that before it costs anything."""
        with self._expecting:
            run = self._attempt.manifest
            by_reference = expected_reference(run, call)
            others = {
                (one.step, one.key): one for one in (*self._expected.values(), *run.position.calls)
            }
            others.pop((call.step, call.key), None)
            check_room(run, [*others.values()], by_reference)
            self._expected[call.key] = by_reference

    def _text_of(self, call: CallResult) -> str | None:
        """Return the text of a result; None: it is lost or damaged, so the call is made again."""
        run = self._attempt.manifest
        try:
            _check_own(run, call)
            return self._attempt.fetch(partial(self._load, call.value))
        except (ArtifactNotFoundError, ArtifactNameError, DamagedFileError) as error:
            facts = {
                "run_id": run.run_id,
                "step": run.position.step,
                "attempt": run.position.attempt,
            }
            words = "the result of call %r is lost, it is made again: %s"
            _LOG.warning(words, call.key, error, extra=facts)
            self._unreadable[call.key] = call.ref or ""
            return None


def output_text_of(manifest: Manifest, read: Load, step_type: str) -> str:
    """Return the output of an earlier step, JSON text, or raise InvalidRequestError."""
    kept = _output_record(manifest, step_type).kept_output
    assert kept is not None  # noqa: S101 - its record has it
    return read(kept)


def _output_record(manifest: Manifest, step_type: str) -> StepRecord | TrialRecord:
    record = record_with_output(manifest, step_type)
    if record is None:
        done = [name for name in manifest.steps if record_with_output(manifest, name)]
        allowed = ", ".join(done) or "none yet"
        raise InvalidRequestError(field="step_type", value=step_type, allowed=allowed)
    return record


def _check_type(found: CallResult, type_: str) -> None:
    if found.type and type_ and found.type != type_:
        problem = (
            f"was recorded as {found.type}, and the call returns {type_} now: give a call of "
            f"another type another key"
        )
        raise CallResultError(key=found.key, problem=problem)


def _check_own(run: Manifest, call: CallResult) -> None:
    """Refuse a file that is not the run's, even if the manifest names it."""
    if call.ref and not may_read(run, call.ref):
        raise DamagedFileError(name=call.ref, problem="it is of another run")
