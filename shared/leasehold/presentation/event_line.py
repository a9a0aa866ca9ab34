"""The events of a run, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from leasehold.domain.printable import counted
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.presentation.formatting import StyledText, one_line
from leasehold.presentation.run_state import DEAD_LETTER_ICON

#: How much of a note a line shows; it is whole in the event.
_MAX_NOTE: Final = 200

#: The sentence of an event for who watches a run; an event that is not here is not announced.
_SENTENCES: Final[Mapping[str, str]] = {
    TraceType.RUN_STARTED: "run started",
    TraceType.STEP_STARTED: "step {step} started",
    TraceType.STEP_COMPLETED: "step {step} completed",
    TraceType.STEP_ERROR: "step {step} failed, attempt {attempt}",
    TraceType.STEP_TERMINATED: "step {step} ended without an output, attempt {attempt}",
    TraceType.STEP_CONTINUED: "step {step} to be continued, attempt {attempt}",
    TraceType.CHECKPOINT_RESUMED: "step {step} resumed, attempt {attempt}",
    TraceType.CHECKPOINT_REJECTED: "step {step} began again: its checkpoint cannot be used",
    TraceType.STEP_UNKNOWN: "step {step} is not known here",
    TraceType.STEP_BLOCKED: "step {step} cannot run with this code",
    TraceType.GATE_BLOCKED: "step {step} blocked by a gate",
    TraceType.AUTHOR_SLOT_OPENED: "trial {trial} begins at step {step}",
    TraceType.AUTHOR_SLOT_REFUSED: "no further trial begins",
    TraceType.TRIAL_CHOSEN: "trial {trial} counts",
    TraceType.STEP_DEAD_LETTERED: "run given up at step {step}",
    TraceType.RUN_PAUSED: "run paused",
    TraceType.RUN_RESUMED: "run resumed",
    TraceType.RUN_CANCELLED: "run cancelled",
    TraceType.RUN_RETRIED: "run retried",
    TraceType.RUN_APPROVED: "run approved",
    TraceType.RUN_COMPLETED: "run completed",
    TraceType.ANNOUNCEMENT_GIVEN_UP: "channel {channel} is not told",
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
    TraceType.CHECKPOINT_REJECTED: "yellow",
    TraceType.GATE_BLOCKED: "yellow",
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
    return ": ".join(filter(None, (by, told, state, event.reason, event.detail, said, into, calls)))


def has_trials(events: Iterable[TraceEvent]) -> bool:
    """Return whether the run came to a second trial, so that events have to say theirs."""
    return any((event.trial or 1) > 1 for event in events)


def _said(event: TraceEvent) -> str | None:
    """Return what a person asked for besides: to begin anew, their own output, a note."""
    facts = event.model_extra or {}
    marks = [mark for mark in ("anew", "edited") if facts.get(mark) is True]
    note = facts.get("note")
    noted = [f"note: {one_line(note, _MAX_NOTE)}"] if isinstance(note, str) else []
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
