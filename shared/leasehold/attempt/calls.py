"""The interface between a handler's context and its attempt, and the worker's side of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pydantic_core

from leasehold.attempt.files import RunArtifacts, RunFiles
from leasehold.attempt.stop import StopSignal
from leasehold.attempt.values import load
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.kept_checkpoint import Load, furthest_of, read_results
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress, StepRecord, TrialRecord
from leasehold.domain.signal import place_of, signal_for
from leasehold.domain.spend import Spend
from leasehold.domain.traceparent import attempt_traceparent
from leasehold.domain.trials import findings_in, last_review, record_with_output
from leasehold.errors import InvalidRequestError, UnknownLimitError

if TYPE_CHECKING:  # the process of a handler has no attempt, and asks the worker that has
    from leasehold.attempt.attempt import Attempt
    from leasehold.attempt.recorded_calls import RecordedCalls
    from leasehold.domain.recorded_calls import Intent, MadeCall, Request


class AttemptFacts(NamedTuple):
    """Which attempt it is.

    Args:
        run_id: the run.
        step: its name in the plan.
        step_type: its type.
        attempt: its number, from 1.
        trial: the number of the trial, from 1.
        hard_s: its agent timeout, in seconds.
        cleanup_s: what is left of that at its soft limit.
        furthest: the most iterations of each phase that any attempt of the step ever kept.
        has_checkpoint: whether an earlier attempt kept something.
        has_budget: whether the run, or its step, may spend so much only.
        note: a person's words for it, if any.
        traceparent: its span, for what it calls; None: its run has no trace.
    """

    run_id: str
    step: str
    step_type: str
    attempt: int
    trial: int
    hard_s: float
    cleanup_s: float
    furthest: Mapping[str, int]
    has_checkpoint: bool = False
    has_budget: bool = False
    note: str | None = None
    traceparent: str | None = None

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptFacts:
        """Return the facts of an attempt that begins."""
        (run_id, step, number), run = attempt.name, attempt.manifest
        return cls(
            run_id,
            step,
            attempt.step_type,
            number,
            run.position.trial,
            hard_s=run.position.dispatch.timeout_ms / 1000,
            cleanup_s=run.position.dispatch.cleanup_s,
            furthest=furthest_of(run) if run.position.checkpoint else {},  # most have none
            has_checkpoint=run.position.checkpoint is not None,
            has_budget=bool(run.budget or run.position.dispatch.budget),
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


class FoundSignal(NamedTuple):
    """The signal of a name: its value, JSON text; or that none came in its time."""

    text: str
    is_missed: bool = False


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

    def check_budget(self) -> None:
        """Raise BudgetExceededError where the budget is used up: nothing more may be spent."""
        ...

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing, or nothing that can be used."""
        ...

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results; InvalidRequestError: they are not JSON text."""
        ...

    def is_at_hand(self, key: str, request: Request | None, intent: Intent | None) -> bool:
        """Return whether `recorded_result` is quick: it asks neither a store nor a process."""
        ...

    def recorded_result(
        self, key: str, type_: str, request: Request | None, intent: Intent | None = None
    ) -> str | None:
        """Return the result of a call that was recorded, JSON text; None: it is to be made.

        Args:
            key: of the call.
            type_: that it returns.
            request: what its result depends on, as `fingerprint_of` returns it; None: not known.
            intent: how it is noted before it is made; None: not at all.
        """
        ...

    def forget_intent(self, key: str) -> None:
        """Forget that a call was to be made: it has raised."""
        ...

    def record_result(self, made: MadeCall) -> str:
        """Record the result of a call; return the one that counts: another worker may be first."""
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

    def find_signal(self, name: str) -> FoundSignal | None:
        """Return the signal of a name, which is the step's from now on; None: it has not come."""
        ...

    def take_limit(self, name: str) -> bool:
        """Take a limit of the step; False: it has no room, and the attempt is to end.

        Raises:
            UnknownLimitError: the step declares none of this name for its handler.
        """
        ...

    def free_limit(self, name: str, retry_after_s: float | None = None) -> None:
        """Free a limit that was taken; its provider takes no more for that long. None: it does."""
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

    def check_budget(self) -> None:
        """Raise BudgetExceededError where the budget is used up."""
        self._attempt.tally.check_budget()

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing, or nothing that can be used."""
        kept = self._run.position.checkpoint
        if kept is None:
            return None
        found = self._attempt.fetch(partial(read_results, self._run, kept, self._load))
        if found.problem:
            self.reject_checkpoint(found.problem)
            return None
        return KeptCheckpoint(kept.phase, kept.iteration_count, found.text)

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results, JSON text."""
        from leasehold.attempt.checkpoints import keep_checkpoint  # noqa: PLC0415 - see `_recorded`

        keep_checkpoint(self._attempt, iteration_count, phase, results)

    def reject_checkpoint(self, why: str) -> None:
        """Drop what an earlier attempt kept, and say in the run why."""
        from leasehold.attempt.checkpoints import reject_checkpoint  # noqa: PLC0415 - as above

        kept = self._run.position.checkpoint
        if kept is not None:
            reject_checkpoint(self._attempt, kept, why)

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        self._attempt.progress = progress

    def note_spend(self, spend: Spend) -> None:
        """Have what was spent, beside calls that are recorded, stored with the next write."""
        self._attempt.tally.note_spend(spend)

    def mark_bootstrap(self, tool: str) -> None:
        """Note the first tool call of the handler."""
        self._attempt.phases.mark_bootstrap(tool, self._attempt.engine.clock.monotonic())

    def mark_execution(self) -> None:
        """Note that the handler has its result."""
        self._attempt.phases.mark_execution(self._attempt.engine.clock.monotonic())

    def take_limit(self, name: str) -> bool:
        """Take a limit of the step; False: it has no room, and the attempt is to end."""
        limits = self._attempt.limits
        if limits is None:
            raise UnknownLimitError(limit=name, step=self._run.step_type, known="none")
        return limits.take(name)

    def free_limit(self, name: str, retry_after_s: float | None = None) -> None:
        """Free a limit that was taken; its provider takes no more for that long. None: it does."""
        if self._attempt.limits is not None:
            self._attempt.limits.free(name, retry_after_s)

    def find_signal(self, name: str) -> FoundSignal | None:
        """Return the signal of a name, which is the step's from now on; None: it has not come."""
        run = self._attempt.manifest  # as it was last written: a signal may have come since
        taker = place_of(self._run.position.step, self._run.position.trial)
        found = signal_for(run.signals, name, taker)
        if found is None:
            return None
        self._attempt.note_waited(name)
        if found.is_missed:
            return FoundSignal("null", is_missed=True)
        return FoundSignal(self._attempt.fetch(partial(self._load, found.value)))

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

    # --- recorded calls; for any thread, but for one key at a time ---

    def is_at_hand(self, key: str, request: Request | None, intent: Intent | None) -> bool:
        """Return whether `recorded_result` is quick. See `RecordedCalls`."""
        return self._recorded.is_at_hand(key, request, intent)

    def recorded_result(
        self, key: str, type_: str, request: Request | None, intent: Intent | None = None
    ) -> str | None:
        """Return a result, JSON text; None: the call is to be made. Raises as `RecordedCalls`."""
        return self._recorded.find(key, type_, request, intent)

    def forget_intent(self, key: str) -> None:
        """Forget that a call was to be made: it has raised."""
        self._recorded.forget(key)

    def record_result(self, made: MadeCall) -> str:
        """Record a result; return the one that counts. Raises as `RecordedCalls`."""
        return self._recorded.record(made)

    @property
    def _recorded(self) -> RecordedCalls:
        from leasehold.attempt.recorded_calls import recorded_calls_of  # noqa: PLC0415 - see above

        return recorded_calls_of(self._attempt)

    def _load(self, value: KeptValue) -> str:
        return load(self._attempt.engine.artifacts, value)


def output_text_of(manifest: Manifest, read: Load, step: str) -> str:
    """Return the output of an earlier step, JSON text, or raise InvalidRequestError."""
    kept = _output_record(manifest, step).kept_output
    assert kept is not None  # noqa: S101 - its record has it
    return read(kept)


def _output_record(manifest: Manifest, step: str) -> StepRecord | TrialRecord:
    record = record_with_output(manifest, step)
    if record is None:
        done = [name for name in manifest.steps if record_with_output(manifest, name)]
        allowed = ", ".join(done) or "none yet"
        raise InvalidRequestError(field="step", value=step, allowed=allowed)
    return record
