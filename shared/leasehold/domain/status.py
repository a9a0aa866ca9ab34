"""The states of a run, its events, and the state after each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from leasehold.errors import ImpossibleEventError


class StoredText(StrEnum):
    """A text that documents have; it is written as it is, where others are asked for their value.

    That is a call of Python for each, and a run has one in every step and every settlement.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(source), "serialization": {"type": "str"}}


class RunStatus(StoredText):
    """Where a run stands; why it does not move, its overlays say."""

    PENDING = "PENDING"  # dispatched, waiting for a worker
    IN_PROGRESS = "IN_PROGRESS"  # leased
    ERROR = "ERROR"  # an attempt failed; a retry is scheduled, or the run is dead-lettered
    BLOCKED = "BLOCKED"  # it waits for a person, or for code that can run it
    COMPLETED = "COMPLETED"


class RunEvent(StrEnum):
    """An event that can happen to a run."""

    LEASE_ACQUIRED = "lease acquired"
    LEASE_TAKEN_OVER = "lease taken over"
    LEASE_RENEWED = "lease renewed"
    LEASE_RELEASED = "lease released"
    STEP_CONTINUED = "step continued"
    LEASE_EXPIRED = "lease expired"
    STEP_HANDED_OFF = "step handed off"
    TRIAL_OPENED = "trial opened"
    LAST_STEP_DONE = "last step done"
    ATTEMPT_FAILED = "attempt failed"
    GATE_FAILED = "gate failed"
    STEP_UNKNOWN = "step unknown"
    CANNOT_RUN = "cannot run"
    LOOKED_AGAIN = "looked again"
    BUDGET_EXCEEDED = "budget exceeded"
    CALL_UNCONFIRMED = "call unconfirmed"
    WAIT_BEGUN = "wait begun"
    WAIT_OVER = "wait over"
    PAUSED = "paused"
    RESUMED = "resumed"
    BUDGET_RAISED = "budget raised"
    RETRIED = "retried"
    APPROVED = "approved"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead-lettered"
    CHILDREN_BEGUN = "children begun"
    CHILDREN_STOPPED = "children stopped"
    CHILD_FAILED = "child failed"
    ITEM_LEFT = "item left"
    LAST_ITEM_LEFT = "last item left"


#: For what each step asks often: Python 3.11 looks the member of an enum up with a call or two.
PENDING, IN_PROGRESS, ERROR, BLOCKED, COMPLETED = RunStatus

#: The whole state machine: a pair that is not here cannot happen.
NEXT: Final[Mapping[tuple[RunStatus, RunEvent], RunStatus]] = {
    (PENDING, RunEvent.LEASE_ACQUIRED): IN_PROGRESS,
    (ERROR, RunEvent.LEASE_ACQUIRED): IN_PROGRESS,
    (IN_PROGRESS, RunEvent.LEASE_TAKEN_OVER): IN_PROGRESS,
    (IN_PROGRESS, RunEvent.LEASE_RENEWED): IN_PROGRESS,
    (IN_PROGRESS, RunEvent.LEASE_RELEASED): PENDING,
    (IN_PROGRESS, RunEvent.STEP_CONTINUED): PENDING,
    (IN_PROGRESS, RunEvent.LEASE_EXPIRED): PENDING,
    (IN_PROGRESS, RunEvent.STEP_HANDED_OFF): PENDING,
    (IN_PROGRESS, RunEvent.TRIAL_OPENED): PENDING,
    (IN_PROGRESS, RunEvent.LAST_STEP_DONE): COMPLETED,
    (IN_PROGRESS, RunEvent.ATTEMPT_FAILED): ERROR,
    (IN_PROGRESS, RunEvent.GATE_FAILED): BLOCKED,
    (PENDING, RunEvent.STEP_UNKNOWN): BLOCKED,
    (ERROR, RunEvent.STEP_UNKNOWN): BLOCKED,
    (IN_PROGRESS, RunEvent.CANNOT_RUN): BLOCKED,
    (PENDING, RunEvent.BUDGET_EXCEEDED): BLOCKED,
    (ERROR, RunEvent.BUDGET_EXCEEDED): BLOCKED,
    (PENDING, RunEvent.CALL_UNCONFIRMED): BLOCKED,
    (ERROR, RunEvent.CALL_UNCONFIRMED): BLOCKED,
    (PENDING, RunEvent.WAIT_BEGUN): BLOCKED,
    (BLOCKED, RunEvent.WAIT_OVER): PENDING,
    (PENDING, RunEvent.WAIT_OVER): PENDING,
    (PENDING, RunEvent.LAST_STEP_DONE): COMPLETED,
    (BLOCKED, RunEvent.LOOKED_AGAIN): PENDING,
    (ERROR, RunEvent.RETRIED): PENDING,
    (BLOCKED, RunEvent.RETRIED): PENDING,
    (BLOCKED, RunEvent.APPROVED): PENDING,
    (BLOCKED, RunEvent.TRIAL_OPENED): PENDING,
    (BLOCKED, RunEvent.LAST_STEP_DONE): COMPLETED,
    (PENDING, RunEvent.PAUSED): PENDING,
    (IN_PROGRESS, RunEvent.PAUSED): IN_PROGRESS,
    (ERROR, RunEvent.PAUSED): ERROR,
    (BLOCKED, RunEvent.PAUSED): BLOCKED,
    (PENDING, RunEvent.RESUMED): PENDING,
    (IN_PROGRESS, RunEvent.RESUMED): IN_PROGRESS,
    (ERROR, RunEvent.RESUMED): PENDING,
    (BLOCKED, RunEvent.RESUMED): BLOCKED,
    (BLOCKED, RunEvent.BUDGET_RAISED): PENDING,
    (PENDING, RunEvent.CANCELLED): PENDING,
    (IN_PROGRESS, RunEvent.CANCELLED): PENDING,
    (ERROR, RunEvent.CANCELLED): ERROR,
    (BLOCKED, RunEvent.CANCELLED): BLOCKED,
    (PENDING, RunEvent.DEAD_LETTERED): ERROR,
    (IN_PROGRESS, RunEvent.DEAD_LETTERED): ERROR,
    (ERROR, RunEvent.DEAD_LETTERED): ERROR,
    (BLOCKED, RunEvent.DEAD_LETTERED): ERROR,
    (IN_PROGRESS, RunEvent.CHILDREN_BEGUN): PENDING,
    (PENDING, RunEvent.CHILDREN_STOPPED): BLOCKED,
    (PENDING, RunEvent.CHILD_FAILED): BLOCKED,
    (IN_PROGRESS, RunEvent.CHILD_FAILED): BLOCKED,
    (ERROR, RunEvent.CHILD_FAILED): BLOCKED,
    (BLOCKED, RunEvent.CHILD_FAILED): BLOCKED,
    (PENDING, RunEvent.LAST_ITEM_LEFT): COMPLETED,
    (IN_PROGRESS, RunEvent.LAST_ITEM_LEFT): COMPLETED,
    (ERROR, RunEvent.LAST_ITEM_LEFT): COMPLETED,
    (PENDING, RunEvent.ITEM_LEFT): PENDING,
    (IN_PROGRESS, RunEvent.ITEM_LEFT): PENDING,
    (ERROR, RunEvent.ITEM_LEFT): PENDING,
}


def after(status: RunStatus, event: RunEvent) -> RunStatus:
    """Return the status that `event` leaves a run in, or raise ImpossibleEventError."""
    try:
        return NEXT[status, event]
    except KeyError:
        raise ImpossibleEventError(status=status.value, event=event.value) from None


class Outcome(StoredText):
    """What became of one change; `word` is its name outside the engine."""

    # a run begins, and its attempts
    STARTED = "started"
    EXISTING = "existing"  # the idempotency key began the run before
    ACQUIRED = "acquired"
    RENEWED = "renewed"
    CHECKPOINTED = "checkpointed"
    HANDED_OFF = "handed_off"
    COMPLETED = "completed"
    RELEASED = "released"
    CONTINUED = "continued"
    BLOCKED = "blocked"
    RETRY_SCHEDULED = "retry_scheduled"
    DEAD_LETTERED = "dead_lettered"
    CHILDREN_BEGUN = "children_begun"  # its children run; it waits for them without a worker
    RESTING = "resting"  # its children are not through
    ASKED = "asked"  # by its alarm: whether they are
    CHILDREN_TOLD = "children_told"  # all of them have heard its last word
    ITEMS_TAKEN = "items_taken"  # by a lane that was through

    # a hint, or a claim, that got no lease
    REJECTED = "rejected"  # no dispatch has its generation yet
    STALE = "stale"  # a later dispatch took its own place
    ALREADY_COMPLETED = "already_completed"
    LEASE_HELD = "lease_held"
    LEASE_LOST = "lease_lost"  # it got the lease, and another attempt has the run by now
    PARKED = "parked"  # the run is paused
    AWAITS_CLAIM = "awaits_claim"  # a remote worker has to claim the step
    AWAITS_SLOT = "awaits_slot"  # its limit has no room: it is called when it is next
    STEP_UNKNOWN = "step_unknown"  # it is left to the workers that know the step

    # the sweep, and a repair
    EXPIRED = "expired"
    REDISPATCHED = "redispatched"
    REPAIRED = "repaired"
    REPUBLISHED = "republished"  # what an idle run owes is published again
    ARCHIVED = "archived"  # an ended run owes nothing any more
    ARCHIVE_OWED = "archive_owed"  # part of its archive failed, or is not over: it is tried again
    STILL_QUEUED = "still_queued"  # the task is in its queue, or may be
    ALARM_SET = "alarm_set"  # it came too early, by a shorter grace; or it looks again later
    LOOKED_AGAIN = "looked_again"  # a blocked run is tried once more where it stands
    CALLED = "called"  # its limit has room, and it is next: it is dispatched
    UNCOUNTED = "uncounted"  # a task that could not be created counts as lost no more
    WAIT_TIMED_OUT = "wait_timed_out"  # no signal came in the time of a wait
    NOT_DUE = "not_due"
    MOVED_ON = "moved_on"  # the generation or the lease that was looked at is not the current one
    IN_ORDER = "in_order"  # there is nothing to repair

    # what people do
    PAUSED = "paused"
    RESUMED = "resumed"
    RETRIED = "retried"
    APPROVED = "approved"
    CANCELLED = "cancelled"
    RECREATED = "recreated"
    SIGNALLED = "signalled"  # it waited for that, and goes on
    SIGNAL_KEPT = "signal_kept"  # nothing waits for it so far
    SIGNAL_KNOWN = "signal_known"  # its id came before
    STACK_REQUESTED = "stack_requested"  # of the attempt that runs, which goes on
    PURGED = "purged"

    @property
    def word(self) -> str:
        """Its name in HTTP and `--json`, which distinguish fewer."""
        return _WORDS.get(self, self.value)


#: What dispatches an attempt that the same worker may take at once.
DISPATCHES: Final = (Outcome.STARTED, Outcome.HANDED_OFF, Outcome.CONTINUED)

#: Outcomes that callers outside need not distinguish; every other one is its own word.
_WORDS: Final[Mapping[Outcome, str]] = {
    Outcome.STALE: "duplicate",
    Outcome.ALREADY_COMPLETED: "duplicate",
    Outcome.LEASE_LOST: "duplicate",
    Outcome.RESTING: "parked",
    Outcome.CHILDREN_BEGUN: "parked",
    Outcome.ASKED: "parked",
    Outcome.CHILDREN_TOLD: "duplicate",
    Outcome.ITEMS_TAKEN: "duplicate",
    Outcome.NOT_DUE: "duplicate",
    Outcome.MOVED_ON: "duplicate",
    Outcome.IN_ORDER: "duplicate",
    Outcome.AWAITS_CLAIM: "parked",
    Outcome.AWAITS_SLOT: "parked",
    Outcome.CALLED: "parked",
    Outcome.STILL_QUEUED: "parked",
    Outcome.ALARM_SET: "parked",
    Outcome.UNCOUNTED: "parked",
    Outcome.ARCHIVED: "duplicate",
    Outcome.ARCHIVE_OWED: "duplicate",
}


class Termination(StrEnum):
    """Why an attempt was cut short: the `reason` of `step_terminated`."""

    INSTANCE_SHUTDOWN = "instance_shutdown"  # SIGTERM, a deploy; or the worker released the step
    LEASE_EXPIRED = "lease_expired"  # its worker fell silent before the deadline
    DISPATCH_DEADLINE_EXCEEDED = (
        "dispatch_deadline_exceeded"  # its last heartbeat is past it: it hung
    )
    AGENT_TIMEOUT_EXCEEDED = "agent_timeout_exceeded"  # the handler did not end at its limit
    SILENCE_LIMIT_EXCEEDED = "silence_limit_exceeded"  # the handler said nothing for too long
    MEMORY_LIMIT_EXCEEDED = "memory_limit_exceeded"  # the handler took more than its step may
    CANCELLED = "cancelled"
    STORE_UNAVAILABLE = "store_unavailable"  # an outage: the attempt is put off
    THREAD_UNAVAILABLE = "thread_unavailable"  # likewise: nothing could renew the lease
    PROCESS_UNAVAILABLE = "process_unavailable"  # likewise: none to run the handler in


class BlockCode(StrEnum):
    """Why a run cannot go on with the code that is deployed; put right, it goes on by itself."""

    HANDLER_UNAVAILABLE = "handler_unavailable"  # of the step, a gate or an entry action of it
    HANDLER_MISTAKE = "handler_mistake"  # it asks for what cannot be, or returns what is not JSON
    INPUT_MISMATCH = "input_mismatch"  # what the step is given does not fit the handler any more
    INPUT_MISSING = "input_missing"  # what the step is given is not among the artifacts
    LIMIT_UNUSABLE = "limit_unusable"  # a limit has no key for the run
    STEP_UNKNOWN = "step_unknown"  # no catalog that is in force has the step
    SKIP_REFUSED = "skip_refused"  # the step skips to where its pipeline does not say it may


class DeadLetterReason(StoredText):
    """Why a run will not be tried again."""

    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    STUCK_IN_PROGRESS = "STUCK_IN_PROGRESS"
    UNRECOVERED_ERROR = "UNRECOVERED_ERROR"
    PERMANENT_FAILURE = "PERMANENT_FAILURE"
    NEVER_STARTED = "NEVER_STARTED"


class AttemptEnd(StrEnum):
    """How an attempt can end without an output that counts; the names `attempts` counts by."""

    FAILED = "failed"
    INTERRUPTED = "interrupted"  # SIGTERM, a deploy
    EXPIRED = "expired"  # its lease ran out, and no heartbeat came past the deadline
    CONTINUED = "continued"  # the next attempt goes on where it ended
    REPEATED = "repeated"  # a gate refused its output, and a person had the step run again
    DEFERRED = "deferred"  # a store was away, or a thread could not be had
