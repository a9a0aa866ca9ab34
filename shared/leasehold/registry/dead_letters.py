"""Why runs are given up: a label, how grave it is, and what a person can do, for each reason."""

from __future__ import annotations

from typing import Final, Literal

from leasehold.domain.status import DeadLetterReason
from leasehold.frozen import dataclass
from leasehold.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    """A reason.

    Args:
        reason: its code.
        label: for lists and alerts.
        severity: of the log line, as Cloud Logging names it.
        meaning: what has happened.
        remediation: what to do about it, in words.
    """

    reason: DeadLetterReason
    label: str
    severity: Literal["ERROR", "CRITICAL"]
    meaning: str
    remediation: str

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.reason.value


DEAD_LETTERS: Final = Registry(
    "dead letters",
    [
        DeadLetterEntry(
            DeadLetterReason.RETRIES_EXHAUSTED,
            "Retries exhausted",
            "ERROR",
            "The step failed, or was ended at one of its limits, once more than it may be "
            "repeated without progress, or too often in all.",
            "Read the error of the last attempt; repair the cause (agent_timeout_exceeded, "
            "dispatch_deadline_exceeded, memory_limit_exceeded: a handler that does with less, or "
            "a higher limit; silence_limit_exceeded: what it hangs in; the error has the line it "
            "was at), then recreate the run from this step.",
        ),
        DeadLetterEntry(
            DeadLetterReason.STUCK_IN_PROGRESS,
            "Stuck in progress",
            "CRITICAL",
            "The step was cut short again and again, or was silent for too long for the second "
            "time, without progress in between. Time off does not count.",
            "Look at who held the lease and how it ended (step_terminated): a step that is killed "
            "each time needs more memory, or checkpoints. Then recreate the run from this step.",
        ),
        DeadLetterEntry(
            DeadLetterReason.UNRECOVERED_ERROR,
            "Error not recovered",
            "ERROR",
            "The step failed, and the tasks of its next attempt were lost again and again, for the "
            "recovery window.",
            "Find what removes undelivered tasks: a queue that is purged or created again. Then "
            "recreate the run from this step.",
        ),
        DeadLetterEntry(
            DeadLetterReason.PERMANENT_FAILURE,
            "Permanent failure",
            "ERROR",
            "The step failed in a way that no retry can repair.",
            "Read the error; correct the input or the code, then recreate the run, with another "
            "input where that was the cause.",
        ),
        DeadLetterEntry(
            DeadLetterReason.NEVER_STARTED,
            "Never started",
            "CRITICAL",
            "The tasks of the step were lost again and again, or no remote worker claimed it. Time "
            "off does not count.",
            "See whether the queue delivers to execute_step, or whether the step's remote workers "
            "run. Then recreate the run from this step.",
        ),
    ],
)
