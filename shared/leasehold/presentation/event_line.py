"""The events of a run, one line each, and what is kept of a failure or a stack, in lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.printable import counted, one_line, printable
from leasehold.domain.status import RunStatus
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.presentation.formatting import StyledText, duration
from leasehold.presentation.run_state import DEAD_LETTER_ICON

# An error as people read it: what it found, its traceback, and when its step comes again.


_INDENT: Final = "  "
#: Of one issue or detail, in characters; a record keeps shorter ones.
_MAX_DETAIL_CHARS: Final = 1000
#: So many runs are named that an event began.
_MAX_RUNS_NAMED: Final = 5


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

    Of an attempt that was ended at a limit it is what that did then; and of one that was asked.
    """
    facts = event.model_extra or {}
    if event.type is TraceType.STACK_TAKEN:
        lines = tuple(_traceback_lines(event.stacks))
        return Failure((event.step, event.type, event.at.isoformat()), lines)
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
    return one_line(text, _MAX_DETAIL_CHARS)


#: How much of a note a line shows; it is whole in the event.
_MAX_NOTE_CHARS: Final = 200

#: The sentence of an event for who watches a run; an event that is not here is not announced.
_SENTENCES: Final[Mapping[str, str]] = {
    TraceType.RUN_STARTED: "run started",
    TraceType.STEP_STARTED: "step {step} started",
    TraceType.STEP_COMPLETED: "step {step} completed",
    TraceType.STEP_ERROR: "step {step} failed, attempt {attempt}",
    TraceType.STEP_TERMINATED: "step {step} ended without an output, attempt {attempt}",
    TraceType.STEP_CONTINUED: "step {step} to be continued, attempt {attempt}",
    TraceType.STACK_TAKEN: "step {step} asked what it does, attempt {attempt}",
    TraceType.CALL_DIVERGED: "step {step} pays again, attempt {attempt}",
    TraceType.LIMIT_LOWERED: "step {step} lowered a limit, attempt {attempt}",
    TraceType.CHECKPOINT_RESUMED: "step {step} resumed, attempt {attempt}",
    TraceType.CHECKPOINT_REJECTED: "step {step} began again: its checkpoint cannot be used",
    TraceType.STEP_UNKNOWN: "step {step} is not known here",
    TraceType.STEP_BLOCKED: "step {step} cannot run with this code",
    TraceType.GATE_BLOCKED: "step {step} blocked by a gate",
    TraceType.BUDGET_EXCEEDED: "run blocked at step {step}",
    TraceType.CALL_UNCONFIRMED: "run blocked at step {step}",
    TraceType.AUTHOR_SLOT_OPENED: "trial {trial} begins at step {step}",
    TraceType.AUTHOR_SLOT_REFUSED: "no further trial begins",
    TraceType.TRIAL_CHOSEN: "trial {trial} counts",
    TraceType.STEP_DEAD_LETTERED: "run given up at step {step}",
    TraceType.SIGNAL_RECEIVED: "signal received",
    TraceType.SIGNAL_REFUSED: "signal refused at step {step}",
    TraceType.WAIT_TIMED_OUT: "no signal came for step {step}",
    TraceType.RUN_PAUSED: "run paused",
    TraceType.RUN_RESUMED: "run resumed",
    TraceType.RUN_CANCELLED: "run cancelled",
    TraceType.RUN_RETRIED: "run retried",
    TraceType.RUN_APPROVED: "run approved",
    TraceType.RUN_COMPLETED: "run completed",
    TraceType.ANNOUNCEMENT_GIVEN_UP: "announcement to channel {channel} given up",
}

#: What happens in each trial anew.
_IN_TRIALS: Final = (
    TraceType.STEP_STARTED,
    TraceType.STEP_COMPLETED,
    TraceType.STEP_ERROR,
    TraceType.STEP_TERMINATED,
    TraceType.GATE_BLOCKED,
)

_STYLES: Final[Mapping[str, str]] = {
    TraceType.STEP_ERROR: "red",
    TraceType.STEP_TERMINATED: "yellow",
    TraceType.LIMIT_LOWERED: "yellow",
    TraceType.CHECKPOINT_REJECTED: "yellow",
    TraceType.GATE_BLOCKED: "yellow",
    TraceType.BUDGET_EXCEEDED: "yellow",
    TraceType.CALL_UNCONFIRMED: "yellow",
    TraceType.SIGNAL_REFUSED: "yellow",
    TraceType.WAIT_TIMED_OUT: "yellow",
    TraceType.STEP_UNKNOWN: "yellow",
    TraceType.STEP_BLOCKED: "yellow",
    TraceType.STEP_DEAD_LETTERED: "bold red",
    TraceType.RUN_COMPLETED: "green",
    TraceType.ANNOUNCEMENT_GIVEN_UP: "red",
}


def event_sentence(event: TraceEvent) -> str | None:
    """Return what happened, and why, for who watches the run; None: it goes without saying."""
    sentence = _SENTENCES.get(event.type)
    if sentence is None:
        return None
    why = ": ".join(filter(None, (_grade(event), _kept(event), event.reason, event.detail)))
    channel = (event.model_extra or {}).get("channel")
    what = sentence.format(
        step=event.step, attempt=event.attempt, trial=event.trial, channel=channel
    )
    if event.type in _IN_TRIALS and (event.trial or 1) > 1:
        what += f", trial {event.trial}"
    return f"{what}: {why}" if why else what


def event_name(event: TraceEvent) -> StyledText:
    """Return the type of the event."""
    name = str(event.type)
    is_end = event.type is TraceType.STEP_DEAD_LETTERED
    short_form = f"{DEAD_LETTER_ICON} {name}" if is_end else None
    return StyledText(name, _STYLES.get(event.type, ""), short_form)


def event_reason(event: TraceEvent) -> str:
    """Return who did it and why, and what came of it, as far as the event says."""
    facts = event.model_extra or {}
    actor, new_run = facts.get("actor"), facts.get("recreatedAs")
    by, into = actor and f"by {actor}", new_run and f"as {new_run}"
    made, spared = facts.get("callsMade"), facts.get("callsSpared")
    calls = None if made is None else f"{_counted(made, 'call')} made, {spared} spared"
    state = _grade(event) or _kept(event)
    told = _telling(event)
    said = _said(event)
    words = (by, told, state, event.reason, event.detail, _children(event), said, into, calls)
    return ": ".join(filter(None, words))


def _children(event: TraceEvent) -> str:
    """Return the ids of the runs that it began; of many, of the first."""
    found = (event.model_extra or {}).get("runs")
    runs = [str(run_id) for run_id in found] if isinstance(found, list) else []
    more = f" and {len(runs) - _MAX_RUNS_NAMED} more" if len(runs) > _MAX_RUNS_NAMED else ""
    return f"{', '.join(runs[:_MAX_RUNS_NAMED])}{more}"


def has_trials(events: Iterable[TraceEvent]) -> bool:
    """Return whether the run came to a second trial, so that events have to say theirs."""
    return any((event.trial or 1) > 1 for event in events)


def _said(event: TraceEvent) -> str | None:
    """Return what a person asked for besides: to begin anew, their own output, a note."""
    facts = event.model_extra or {}
    marks = [mark for mark in ("anew", "edited") if facts.get(mark) is True]
    if isinstance(call := facts.get("call"), str):
        marks.append(f"call {one_line(call, _MAX_NOTE_CHARS)} has happened")
    note = facts.get("note")
    noted = [f"note: {one_line(note, _MAX_NOTE_CHARS)}"] if isinstance(note, str) else []
    return ", ".join([*marks, *noted]) or None


def _telling(event: TraceEvent) -> str | None:
    """Return the channel of an announcement, the result, and the number of tries."""
    facts = event.model_extra or {}
    if facts.get("channel") is None:
        return None
    tries, unknown = facts.get("tries") or 1, facts.get("unknown")
    effort = [_counted(tries, "try", "tries")] if tries != 1 else []
    effort += [f"{unknown} unknown"] if unknown else []
    return ", ".join([f"{facts.get('runEvent')} to {facts['channel']}", *effort])


def _counted(count: object, one: str, more: str = "") -> str:
    """Return how many there are, as far as a server that is asked says so."""
    return counted(count, one, more) if isinstance(count, int) else f"{count} {more or one + 's'}"


def _grade(event: TraceEvent) -> str | None:
    """Return the status of an output that is not whole."""
    status = (event.model_extra or {}).get("outputStatus")
    return None if status in (None, "SUCCESS") else str(status)


def _kept(event: TraceEvent) -> str | None:
    """Return which checkpoint the event tells of."""
    facts = event.model_extra or {}
    count, phase = facts.get("iterationCount"), facts.get("phase")
    if count is None:
        return None
    return f"checkpoint {count} of {phase}" if phase else f"checkpoint {count}"
