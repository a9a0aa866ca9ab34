"""The calls of a context, answered by the attempt that this worker holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import KeptValue, Progress
from leasehold.errors import InvalidRequestError
from leasehold.ports.artifacts import Artifacts
from leasehold.worker.attempt_calls import AttemptFacts, KeptCheckpoint
from leasehold.worker.held_attempt import HeldAttempt
from leasehold.worker.run_artifacts import RunArtifacts

_LOG: Final = logging.getLogger("leasehold.attempt")

#: Returns the JSON text of a value of a run; raises as `services.kept_values.load`.
Load = Callable[[KeptValue], str]


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
        self.files = RunArtifacts(artifacts, manifest.run_id, held.fetch)
        self._held = held
        self._manifest = manifest
        self._load = load
        self._monotonic = monotonic
        self._ends_at = monotonic() + manifest.dispatch.timeout_ms / 1000

    def time_left(self) -> float:
        """Return for how many seconds the attempt may still run; below zero: for none."""
        return self._ends_at - self._monotonic()

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing."""
        kept = self._manifest.checkpoint
        if kept is None:
            return None
        results = self._held.fetch(partial(self._load, kept.partial_results))
        return KeptCheckpoint(kept.phase, kept.iteration_count, results)

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results, JSON text."""
        self._held.checkpoint(iteration_count, phase, results)

    def reject_checkpoint(self, why: str) -> None:
        """Say that what an earlier attempt kept cannot be used; the next checkpoint replaces it."""
        _LOG.warning(
            "run %s, attempt %s of step %s begins at the beginning, its checkpoint is rejected: %s",
            *(self.facts.run_id, self.facts.attempt, self.facts.step_type, why),
        )

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        self._held.progress = progress

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        return self._held.fetch(partial(output_text_of, self._manifest, self._load, step_type))


def output_text_of(manifest: Manifest, load: Load, step_type: str) -> str:
    """Return the output of an earlier step, JSON text, or raise InvalidRequestError."""
    record = manifest.steps.get(step_type)
    kept = None if record is None else record.kept_output
    if kept is None:
        done = [name for name, step in manifest.steps.items() if step.kept_output]
        allowed = ", ".join(done) or "none yet"
        raise InvalidRequestError(field="step_type", value=step_type, allowed=allowed)
    return load(kept)
