"""A run as it moves, for logs and pipes: one line a change, and each stays as it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from leasehold.cli.formatting import one_line, stamp
from leasehold.cli.run_watcher import View
from leasehold.cli.stderr import say
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.trace import TraceEvent, TraceType

#: What is told of an event; what is not here goes without saying.
_SAID: Final[Mapping[str, str]] = {
    TraceType.RUN_STARTED: "run started",
    TraceType.STEP_STARTED: "step {step} started",
    TraceType.STEP_COMPLETED: "step {step} completed",
    TraceType.STEP_ERROR: "step {step} failed, attempt {attempt}",
    TraceType.STEP_TERMINATED: "step {step} ended without an output, attempt {attempt}",
    TraceType.STEP_UNKNOWN: "step {step} is not known here",
    TraceType.GATE_BLOCKED: "step {step} blocked by a gate",
    TraceType.STEP_DEAD_LETTERED: "run given up at step {step}",
    TraceType.RUN_PAUSED: "run paused",
    TraceType.RUN_RESUMED: "run resumed",
    TraceType.RUN_CANCELLED: "run cancelled",
    TraceType.RUN_RETRIED: "run retried",
    TraceType.RUN_APPROVED: "run approved",
    TraceType.RUN_COMPLETED: "run completed",
}


class NoDisplay:
    """Shows nothing."""

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *end: object) -> None:
        """Do nothing."""

    def update(self, run: Manifest) -> None:
        """Show nothing."""


class LineDisplay(NoDisplay):
    """Says each change once.

    Args:
        view: how the run can be looked at.
        known: events that need no telling.
    """

    def __init__(self, view: View, known: Iterable[TraceEvent]) -> None:
        self._view = view
        self._told = {_name(event) for event in known}
        self._seen: Manifest | None = None

    def update(self, run: Manifest) -> None:
        """Say what happened since the last look."""
        if self._seen is None or run.updated_at != self._seen.updated_at:
            for event in self._view.trace():
                if _name(event) not in self._told:
                    self._told.add(_name(event))
                    _say(event)
            self._say_retry(run)
        self._seen = run

    def _say_retry(self, run: Manifest) -> None:
        known = None if self._seen is None else self._seen.dispatch.generation
        waits = run.status is RunStatus.ERROR and not run.is_terminal
        if waits and known != run.dispatch.generation:
            due = stamp(run.dispatch.not_before)
            say(f"{due} step {run.current_step} is due again, attempt {run.attempt}")


def _say(event: TraceEvent) -> None:
    text = _SAID.get(event.type)
    if text is None:
        return
    said = text.format(step=event.step, attempt=event.attempt)
    why = ": ".join(part for part in (event.reason, event.detail) if part)
    say(f"{stamp(event.at)} {said}" + (f": {one_line(why)}" if why else ""))


def _name(event: TraceEvent) -> tuple[Any, ...]:
    return event.type, event.step, event.trial, event.attempt, event.at
