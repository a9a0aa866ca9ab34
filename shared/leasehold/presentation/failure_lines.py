"""An error as people read it: its traceback, and when its step comes again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.printable import printable
from leasehold.domain.status import RunStatus
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.presentation.formatting import duration

_INDENT: Final = "  "


#: Step, class, code and origin: what failed again in the same way is of the same kind.
FailureKind = tuple[str | None, ...]


class Failure(NamedTuple):
    """A failed attempt: its kind, and its traceback."""

    kind: FailureKind
    traceback: str | None


def failure_of(error: ErrorRecord) -> Failure:
    """Return the failure that a run keeps."""
    return Failure((error.step, error.type, error.code, error.origin), error.traceback)


def traced_failure(event: TraceEvent) -> Failure | None:
    """Return the failure that an event tells of; None: it tells of something else.

    Of an attempt that was ended at a limit it is what that did then.
    """
    facts = event.model_extra or {}
    if event.type is TraceType.STEP_TERMINATED and event.stacks is not None:
        return Failure((event.step, event.reason), event.stacks)
    if event.type is not TraceType.STEP_ERROR:
        return None
    kind = (event.step, event.reason, facts.get("errorCode"), facts.get("origin"))
    return Failure(kind, event.traceback)


def traceback_lines(traceback: str | None) -> list[str]:
    """Return the lines of a traceback, as a terminal shows them."""
    return [f"{_INDENT}{printable(line)}".rstrip() for line in (traceback or "").split("\n")]


def headed_tracebacks(events: Iterable[TraceEvent]) -> Iterator[tuple[str, list[str]]]:
    """Yield a heading for each failed attempt, and its traceback unless the one before had it."""
    last: tuple[str | None, str] | None = None
    for event in events:
        failure = traced_failure(event)
        if failure is None or failure.traceback is None:
            continue
        heading = f"attempt {event.attempt} of step {event.step}:"
        if (event.step, failure.traceback) == last:
            yield f"{heading} the same", []
        else:
            yield heading, traceback_lines(failure.traceback)
        last = event.step, failure.traceback


def next_attempt(run: Manifest) -> str | None:
    """Return when a step that failed comes again: `attempt 2 of 6, in 10 s`; None: it does not."""
    if run.status is not RunStatus.ERROR or run.is_terminal or run.paused:
        return None
    wait = duration(run.dispatch.not_before - run.updated_at)
    unfailed = run.attempts.ended - run.attempts.failed
    return f"attempt {run.attempt} of {run.dispatch.max_retries + 1 + unfailed}, in {wait}"
