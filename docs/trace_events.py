"""The trace events: which are derived from the manifest, which are stored, and what each means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leasehold.domain.trace import TraceType
from leasehold.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class TraceEventEntry:
    """A kind of event: planned ones are derived from the manifest, the others are stored."""

    type: TraceType
    planned: bool
    meaning: str

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.type.value


TRACE_EVENTS: Final = Registry(
    "trace events",
    [
        TraceEventEntry(TraceType.RUN_STARTED, True, "The run was started."),
        TraceEventEntry(TraceType.STEP_STARTED, True, "The first attempt of a step began."),
        TraceEventEntry(TraceType.STEP_COMPLETED, True, "A step's output was recorded."),
        TraceEventEntry(TraceType.STEP_HANDED_OFF, True, "The next step was given the output."),
        TraceEventEntry(TraceType.STEP_SKIPPED, True, "A step before it skipped this one."),
        TraceEventEntry(TraceType.RUN_COMPLETED, True, "The last step's output was recorded."),
        TraceEventEntry(TraceType.STEP_ERROR, False, "An attempt failed; the error is whole."),
        TraceEventEntry(
            TraceType.STEP_TERMINATED,
            False,
            "An attempt was cut short; `reason` and `detail` say why, `stacks` what it did then.",
        ),
        TraceEventEntry(
            TraceType.LEASE_LOST,
            False,
            "A worker found that its lease was no longer held; it changed nothing.",
        ),
        TraceEventEntry(
            TraceType.STEP_CONTINUED,
            False,
            "An attempt ended to be continued by the next one; it uses up no retry.",
        ),
        TraceEventEntry(
            TraceType.STACK_TAKEN,
            False,
            "A person asked an attempt what it does: `stacks` and `detail` say it; it goes on.",
        ),
        TraceEventEntry(
            TraceType.CHECKPOINT_RESUMED,
            False,
            "An attempt goes on from what an earlier one kept. Of a run that is blocked until the "
            "code is put right, the looks have none: they may not come to the handler.",
        ),
        TraceEventEntry(
            TraceType.CALL_DIVERGED,
            False,
            "A recorded call had another request, so it was made and paid again: the first one of "
            "the attempt, with the first field that differs.",
        ),
        TraceEventEntry(
            TraceType.CHECKPOINT_REJECTED,
            False,
            "A checkpoint could not be used; the step began at the beginning.",
        ),
        TraceEventEntry(
            TraceType.STEP_REDISPATCHED,
            False,
            "The task of a step was lost, or a deploy moved the step; it was dispatched again.",
        ),
        TraceEventEntry(
            TraceType.STEP_RECOVERED,
            False,
            "The sweep, or a repair, dispatched a step again that had lost its worker.",
        ),
        TraceEventEntry(
            TraceType.STEP_UNKNOWN, False, "No worker knows the step; the run is blocked."
        ),
        TraceEventEntry(
            TraceType.STEP_BLOCKED,
            False,
            "The code that is deployed cannot run the step; `reason` says which way.",
        ),
        TraceEventEntry(TraceType.GATE_BLOCKED, False, "A gate refused an output; it is kept."),
        TraceEventEntry(
            TraceType.BUDGET_EXCEEDED,
            False,
            "The budget of the run, or of its step, is used up; the run is blocked.",
        ),
        TraceEventEntry(
            TraceType.CALL_UNCONFIRMED,
            False,
            "An attempt ended between a call that must not be repeated and its record; the run is "
            "blocked until a person says whether it has happened.",
        ),
        TraceEventEntry(
            TraceType.AUTHOR_SLOT_OPENED, False, "The reviewer wants another trial; it begins."
        ),
        TraceEventEntry(
            TraceType.AUTHOR_SLOT_REFUSED,
            False,
            "The reviewer wants another trial, and none begins: the author's output is partial.",
        ),
        TraceEventEntry(
            TraceType.TRIAL_CHOSEN, False, "The trials are over; `trial` is the one that counts."
        ),
        TraceEventEntry(
            TraceType.STEP_DEAD_LETTERED, False, "The run was given up; `reason` says why."
        ),
        TraceEventEntry(
            TraceType.SIGNAL_RECEIVED, False, "A signal was sent to the run; `reason` is its name."
        ),
        TraceEventEntry(
            TraceType.SIGNAL_REFUSED,
            False,
            "A signal did not fit the model of its wait; the step waits on for another one.",
        ),
        TraceEventEntry(
            TraceType.WAIT_TIMED_OUT,
            False,
            "No signal came in the time of a wait; `reason` is the name of the signal.",
        ),
        TraceEventEntry(TraceType.RUN_PAUSED, False, "A person paused the run."),
        TraceEventEntry(TraceType.RUN_RESUMED, False, "A person resumed the run."),
        TraceEventEntry(TraceType.RUN_CANCELLED, False, "A person cancelled the run."),
        TraceEventEntry(TraceType.RUN_RETRIED, False, "A person had the step run again."),
        TraceEventEntry(TraceType.RUN_APPROVED, False, "A person approved the kept output."),
        TraceEventEntry(TraceType.RUN_RECREATED, False, "A new run was made of this one."),
        TraceEventEntry(
            TraceType.ANNOUNCEMENT_SENT, False, "A channel got an announcement of the run."
        ),
        TraceEventEntry(
            TraceType.ANNOUNCEMENT_GIVEN_UP,
            False,
            "An announcement to a channel was given up; `reason` and `detail` say why.",
        ),
        TraceEventEntry(
            TraceType.ANNOUNCEMENT_REQUESTED, False, "A person had an announcement sent once more."
        ),
        TraceEventEntry(
            TraceType.ARCHIVE_FAILED,
            False,
            "What is done after the end of a run failed; the sweep does it again.",
        ),
        TraceEventEntry(
            TraceType.LIMIT_LOWERED,
            False,
            "A provider took no more for now (429, Retry-After), so a limit that adapts is "
            "lowered; `share` says to which part of it.",
        ),
        TraceEventEntry(
            TraceType.CHILDREN_BEGUN,
            False,
            "Small runs begin that the run waits for; `runs` names them.",
        ),
        TraceEventEntry(
            TraceType.CHILDREN_BLOCKED,
            False,
            "They all wait for a person, or left something out; `reason` and `detail` say it.",
        ),
        TraceEventEntry(
            TraceType.CHILD_FAILED,
            False,
            "A run that another one waits for would have been given up; it is blocked.",
        ),
        TraceEventEntry(
            TraceType.ITEM_FAILED, False, "A lane left an item that failed, as some may."
        ),
    ],
)
