"""An error as people read it: what it found, its traceback, and when its step comes again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.printable import counted, printable
from leasehold.domain.status import RunStatus
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.presentation.formatting import duration, one_line

_INDENT: Final = "  "
#: Of one issue or detail, in characters; a record keeps shorter ones.
_LONGEST: Final = 1000


#: Step, class, code and origin: what failed again in the same way is of the same kind.
FailureKind = tuple[str | None, ...]


class Failure(NamedTuple):
    """A failed attempt: its kind, and all that is kept of it, as a terminal shows it."""

    kind: FailureKind
    lines: tuple[str, ...] = ()


def failure_of(error: ErrorRecord) -> Failure:
    """Return the failure that a run keeps."""
    facts = _fact_lines(error.validation_issues, error.validation_issue_count, error.details)
    kind = (error.step, error.type, error.code, error.origin)
    return Failure(kind, (*facts, *_traceback_lines(error.traceback)))


def traced_failure(event: TraceEvent) -> Failure | None:
    """Return the failure that an event tells of; None: it tells of something else.

    Of an attempt that was ended at a limit it is what that did then.
    """
    facts = event.model_extra or {}
    if event.type is TraceType.STEP_TERMINATED and event.stacks is not None:
        return Failure((event.step, event.reason), tuple(_traceback_lines(event.stacks)))
    if event.type is not TraceType.STEP_ERROR:
        return None
    kind = (event.step, event.reason, facts.get("errorCode"), facts.get("origin"))
    named = ("validationIssues", "validationIssueCount", "details")
    found = _fact_lines(*(facts.get(name) for name in named))
    return Failure(kind, (*found, *_traceback_lines(event.traceback)))


def headed_failures(events: Iterable[TraceEvent]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield a heading for each failed attempt, and what it left unless the one before had it."""
    last: tuple[str | None, Sequence[str]] | None = None
    for event in events:
        failure = traced_failure(event)
        if failure is None or not failure.lines:
            continue
        heading = f"attempt {event.attempt} of step {event.step}:"
        if (event.step, failure.lines) == last:
            yield f"{heading} the same", []
        else:
            yield heading, failure.lines
        last = event.step, failure.lines


def next_attempt(run: Manifest) -> str | None:
    """Return when a step that failed comes again: `attempt 2 of 6, in 10 s`; None: it does not."""
    if run.status is not RunStatus.ERROR or run.is_terminal or run.paused:
        return None
    wait = duration(run.position.dispatch.not_before - run.updated_at)
    last = (
        run.position.attempt + run.position.dispatch.max_retries - run.position.failures
    )  # unless it makes progress
    return f"attempt {run.position.attempt} of {last}, in {wait}"


def _traceback_lines(traceback: str | None) -> Iterator[str]:
    if traceback is not None:
        yield from (f"{_INDENT}{printable(line)}".rstrip() for line in traceback.split("\n"))


def _fact_lines(issues: Any, count: Any, details: Any) -> Iterator[str]:
    """Yield the issues that are kept, a line each, and the details.

    A server that is asked may have anything there, and a version to come something else.
    """
    kept = issues if isinstance(issues, Sequence) and not isinstance(issues, str) else ()
    if kept:
        number = max(count, len(kept)) if isinstance(count, int) else len(kept)
        yield f"{_INDENT}{counted(number, 'issue')}:"
        yield from (f"{_INDENT * 2}{_issue_line(issue)}" for issue in kept)
        if left := number - len(kept):
            yield f"{_INDENT * 2}[{left} more are not kept]"
    if details is not None:
        yield f"{_INDENT}details:"
        yield from (f"{_INDENT * 2}{line}" for line in _detail_lines(details))


def _issue_line(issue: Any) -> str:
    """Return `path: message (input: 'x')`, as far as the issue has these."""
    if not isinstance(issue, Mapping):
        return _line(_text(issue))
    further = {**issue}
    head = ": ".join(_text(further.pop(name)) for name in ("path", "message") if further.get(name))
    rest = ", ".join(f"{name}: {_text(value)}" for name, value in further.items())
    return _line(f"{head} ({rest})" if head and rest else head or rest)


def _detail_lines(details: Any) -> Iterator[str]:
    """Yield the details, which are JSON text: of an object a line for each name."""
    try:
        plain = json.loads(details)
    except (TypeError, ValueError, RecursionError):  # a long text is cut, and no JSON any more
        plain = details
    if isinstance(plain, Mapping):
        yield from (_line(f"{name}: {_text(value)}") for name, value in plain.items())
    else:
        yield one_line(_text(plain))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _line(text: str) -> str:
    return one_line(text, _LONGEST)
