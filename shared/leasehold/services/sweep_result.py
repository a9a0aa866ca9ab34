"""What a sweep did: counts for whoever called it, and a line of the log for everybody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from leasehold.domain.change import Change
from leasehold.domain.status import Outcome

#: The `event` of the line.
SWEEP_FINISHED: Final = "SWEEP_FINISHED"
#: How much of an error's text is logged: an entry may have 256 KiB.
_MAX_DETAIL: Final = 2000


class RunEnd(NamedTuple):
    """What became of one run; of one that was given up now, `reason` says why."""

    outcome: Outcome
    reason: str | None = None

    @classmethod
    def of(cls, change: Change) -> RunEnd:
        """Return what a change comes to."""
        reason = change.manifest.dead_letter_reason
        return cls(change.outcome, str(reason) if change.changed and reason else None)


@dataclass(slots=True)
class SweepResult:
    """What a sweep did.

    Args:
        job_id: how traces and logs name the sweep.
        recovered: runs whose lease had run out: the step is dispatched again.
        redispatched: runs whose task was lost: the step has a new one.
        still_queued: runs that wait for a worker: their task is in its queue, or may be.
        dead_lettered: runs that were given up; `by_reason` says why.
        unattended: runs and deliveries that could not be attended, and are left to the next sweep.
        reannounced: deliveries that were due, and whose message was published again.
        archived: ended runs whose archive was finished: whoever ended them could not.
        purged: ended runs that were deleted, because LEASEHOLD_RETENTION_DAYS are over.
        documents_read: how many documents the store gave for runs that are due.
        more: whether further runs may be due: the time of the sweep was over.
        oldest_pending_s: how many seconds the run that waits longest in a queue waits by now, of
            those that this sweep looked at; see `note_pending`. 0: none waits.
        failure: why the store, a queue or the event bus could not be asked, if so.
    """

    job_id: str
    recovered: int = 0
    redispatched: int = 0
    still_queued: int = 0
    dead_lettered: int = 0
    unattended: int = 0
    reannounced: int = 0
    archived: int = 0
    purged: int = 0
    documents_read: int = 0
    more: bool = False
    oldest_pending_s: int = 0
    failure: str | None = None
    by_reason: Counter[str] = field(default_factory=Counter)

    def count(self, end: RunEnd) -> None:
        """Count what became of one run."""
        self.recovered += end.outcome is Outcome.EXPIRED
        self.redispatched += end.outcome is Outcome.REDISPATCHED
        self.still_queued += end.outcome in (Outcome.STILL_QUEUED, Outcome.ALARM_SET)
        if end.outcome is Outcome.DEAD_LETTERED and end.reason is not None:
            self.dead_lettered += 1
            self.by_reason[end.reason] += 1

    def note_pending(self, waits_s: float) -> None:
        """Note a run that waits for a worker, and for how long it does.

        Its task was found in its queue, or the queue does not answer. It waits since the time its
        attempt was to begin: a wait that was planned, as before a retry, does not count.
        """
        self.oldest_pending_s = max(self.oldest_pending_s, int(waits_s))

    def counts(self) -> dict[str, Any]:
        """Return what callers are answered; it is logged too."""
        return {
            "deadLettered": self.dead_lettered,
            "byReason": dict(self.by_reason),
            "recovered": self.recovered,
            "redispatched": self.redispatched,
            "stillQueued": self.still_queued,
            "unattended": self.unattended,
            "reannounced": self.reannounced,
            "archived": self.archived,
            "purged": self.purged,
            "documentsRead": self.documents_read,
            "more": self.more,
        }


class Report(StrEnum):
    """Whether a sweep is written as one line of the log."""

    NEVER = "never"
    IF_DUE = "if due"  # where anything was due, or something failed
    ALWAYS = "always"  # a metric of it comes back to zero, and where it is missing no sweep ran

    def wants(self, result: SweepResult) -> bool:
        """Return whether this sweep is to be written."""
        was_due = result.documents_read or result.purged or result.failure
        return self is Report.ALWAYS or (self is Report.IF_DUE and bool(was_due))


def line_of(result: SweepResult) -> Mapping[str, Any]:
    """Return a sweep as one structured line of the log; its answer is read by nobody."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in result.by_reason.items())
    given_up = f"{result.dead_lettered} ({reasons})" if reasons else str(result.dead_lettered)
    waits, detail = result.oldest_pending_s, result.failure and result.failure[:_MAX_DETAIL]
    further = [
        f"{result.reannounced} reannounced" if result.reannounced else "",
        f"{result.archived} archived" if result.archived else "",
        f"{result.purged} purged" if result.purged else "",
        f"the oldest pending waits for {waits} s" if waits else "",
        detail or "",
    ]
    is_left = result.unattended or result.more or detail
    return {
        "severity": "WARNING" if is_left else "INFO",
        "message": f"sweep: {result.recovered} recovered, {result.redispatched} redispatched, "
        f"{result.still_queued} still queued, {given_up} given up, "
        + ", ".join([f"{result.unattended} unattended", *filter(None, further)]),
        "event": SWEEP_FINISHED,
        "sweepJobId": result.job_id,
        **result.counts(),
        "oldestPendingS": waits,
        "detail": detail,
    }
