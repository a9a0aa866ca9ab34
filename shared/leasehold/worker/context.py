"""The context: what a handler may ask of the engine while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import pydantic_core

from leasehold.domain.manifest import Manifest
from leasehold.errors import InvalidRequestError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.values import load

_LOG: Final = logging.getLogger("leasehold.step")
_MAX_MESSAGE: Final = 200


class StepContext:
    """One attempt of one step, as its handler sees it.

    Attributes:
        run_id: the run.
        step_type: the step.
        attempt: the number of this attempt, from 1.
        trial: the number of this trial, from 1.
        artifacts: files of this run.
        log: a logger that names run and step in each line.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        artifacts: Artifacts,
        monotonic: Callable[[], float],
        stop: threading.Event,
        report: Callable[[float, str], None],
    ) -> None:
        self.run_id = manifest.run_id
        self.step_type = manifest.current_step
        self.attempt = manifest.attempt
        self.trial = manifest.trial
        self.artifacts = RunArtifacts(artifacts, self.run_id)
        facts = {"run_id": self.run_id, "step": self.step_type, "attempt": self.attempt}
        self.log = logging.LoggerAdapter(_LOG, facts)
        self._manifest = manifest
        self._store = artifacts
        self._monotonic = monotonic
        self._ends_at = monotonic() + manifest.dispatch.timeout_ms / 1000
        self._stop = stop
        self._report = report

    def time_left(self) -> timedelta:
        """Return how long the attempt may still run; never below zero."""
        return timedelta(seconds=max(0.0, self._ends_at - self._monotonic()))

    @property
    def shutdown_requested(self) -> bool:
        """Whether the attempt should end: the process stops, or the lease is lost."""
        return self._stop.is_set()

    def wait_or_shutdown(self, seconds: float) -> bool:
        """Wait, but not longer than until the attempt should end; True: it should."""
        return self._stop.wait(seconds)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the work is: a share of 1, and a word on it."""
        clean = message.encode("utf-8", "replace").decode()  # a file name may be no text
        share = min(1.0, max(0.0, fraction)) if fraction == fraction else 0.0  # noqa: PLR0124 - NaN
        self._report(share, clean[:_MAX_MESSAGE])

    def output_of(self, step_type: str) -> Any:
        """Return the output of an earlier step of this run, as plain JSON values.

        Raises:
            InvalidRequestError: no earlier step of that name has an output.
        """
        record = self._manifest.steps.get(step_type)
        kept = None if record is None else record.kept_output
        if kept is None:
            done = [name for name, step in self._manifest.steps.items() if step.kept_output]
            raise InvalidRequestError(
                field="step_type", value=step_type, allowed=", ".join(done) or "none yet"
            )
        return pydantic_core.from_json(load(self._store, kept))


class RunArtifacts:
    """The files of one run. They are not fenced: the last writer wins."""

    def __init__(self, artifacts: Artifacts, run_id: str) -> None:
        self._artifacts = artifacts
        self._folder = f"runs/{run_id}/files"

    def put(self, name: str, data: bytes) -> str:
        """Store a file whole or not at all, in place of what was there; return its address."""
        return self._artifacts.put(f"{self._folder}/{name}", data)

    def get(self, name: str) -> bytes:
        """Return a file, or raise ArtifactNotFoundError."""
        return self._artifacts.get(f"{self._folder}/{name}")

    def exists(self, name: str) -> bool:
        """Return whether the run has the file."""
        return self._artifacts.exists(f"{self._folder}/{name}")

    def list(self) -> Sequence[str]:
        """Return the names of the run's files, sorted."""
        start = len(self._folder) + 1
        return [name[start:] for name in self._artifacts.list(self._folder)]
