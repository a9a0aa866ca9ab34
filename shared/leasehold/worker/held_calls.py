"""The calls of a context, answered by the attempt that this worker holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pydantic_core

from leasehold.domain.kept_checkpoint import Load, read_results
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress, StepRecord
from leasehold.domain.trial_record import TrialRecord
from leasehold.domain.trial_verdict import findings_in
from leasehold.domain.trials import last_review, record_with_output
from leasehold.errors import InvalidRequestError
from leasehold.ports.artifacts import Artifacts
from leasehold.worker.attempt_calls import AttemptFacts, KeptCheckpoint
from leasehold.worker.held_attempt import HeldAttempt
from leasehold.worker.recorded_calls import RecordedCalls
from leasehold.worker.run_artifacts import RunArtifacts

__all__ = ["HeldCalls", "Load", "output_text_of"]


class HeldCalls:
    """The calls of one attempt (`attempt_calls.py`), in the worker itself.

    Args:
        held: the attempt.
        artifacts: the files of runs.
        load: reads a value of a run.
        monotonic: seconds; the attempt's time runs from now on.
    """

    def __init__(
        self,
        held: HeldAttempt,
        *,
        artifacts: Artifacts,
        load: Load,
        monotonic: Callable[[], float],
    ) -> None:
        manifest = held.manifest
        self.facts = AttemptFacts.of(manifest)
        self.stop = held.stop
        self.files = RunArtifacts(artifacts, manifest, held.fetch, held.note_stored_file)
        self._held = held
        self._manifest = manifest
        self._load = load
        self._monotonic = monotonic
        self._recorded = RecordedCalls(held, load)
        self._ends_at = monotonic() + manifest.dispatch.timeout_ms / 1000

    def time_left(self) -> float:
        """Return for how many seconds the attempt may still run; below zero: for none."""
        return self._ends_at - self._monotonic()

    def check_lease(self) -> None:
        """Raise LeaseLostError where the lease may be over."""
        self._held.check_lease()

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing, or nothing that can be used."""
        kept = self._manifest.checkpoint
        if kept is None:
            return None
        found = self._held.fetch(partial(read_results, self._manifest, kept, self._load))
        if found.problem:
            self._held.reject_checkpoint(kept, found.problem)
            return None
        return KeptCheckpoint(kept.phase, kept.iteration_count, found.text)

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results, JSON text."""
        self._held.checkpoint(iteration_count, phase, results)

    def reject_checkpoint(self, why: str) -> None:
        """Drop what an earlier attempt kept, and say in the run why."""
        kept = self._manifest.checkpoint
        if kept is not None:
            self._held.reject_checkpoint(kept, why)

    def recorded_result(self, key: str, type_: str) -> str | None:
        """Return the result of a call that was recorded, JSON text; None: it is to be made."""
        return self._recorded.find(key, type_)

    def record_result(self, key: str, type_: str, result: str, *, keep: bool) -> None:
        """Record the result of a call that was made, JSON text."""
        self._recorded.record(key, type_, result, keep=keep)

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        self._held.progress = progress

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        return self._held.fetch(partial(output_text_of, self._manifest, self._load, step_type))

    def status_of(self, step_type: str) -> str:
        """Return the status of the output of an earlier step."""
        return _output_record(self._manifest, step_type).output_status or "SUCCESS"

    def findings(self) -> str:
        """Return what the reviewer of the trial before this one found: a list, JSON text."""
        review = last_review(self._manifest)
        if review is None:
            return "[]"
        text = self._held.fetch(partial(self._load, review))
        return pydantic_core.to_json(findings_in(text)).decode()


def output_text_of(manifest: Manifest, load: Load, step_type: str) -> str:
    """Return the output of an earlier step, JSON text, or raise InvalidRequestError."""
    kept = _output_record(manifest, step_type).kept_output
    assert kept is not None  # noqa: S101 - its record has it
    return load(kept)


def _output_record(manifest: Manifest, step_type: str) -> StepRecord | TrialRecord:
    record = record_with_output(manifest, step_type)
    if record is None:
        done = [name for name in manifest.steps if record_with_output(manifest, name)]
        allowed = ", ".join(done) or "none yet"
        raise InvalidRequestError(field="step_type", value=step_type, allowed=allowed)
    return record
