"""The limits of one attempt, on the clock that a worker shares with its child."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from leasehold.domain.status import Termination
from leasehold.worker.held_attempt import HeldAttempt

#: A handler of a worker that is shut down is ended by who shuts it down; at the latest, then.
_SHUTDOWN_S: Final = 10.0

#: So long before the dispatch deadline it is killed: at that itself the attempt is ended without
#: what the handler was doing.
_BEFORE_DEADLINE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When an attempt is to end, in monotonic seconds, and how much memory it may take.

    Args:
        soft_at: when the handler is asked to end.
        hard_at: when it is killed.
        deadline_at: the dispatch deadline, which comes first where the attempt began late.
        cleanup_s: how long a handler may take to end that is asked to.
        memory: in bytes; None: no limit.
    """

    soft_at: float
    hard_at: float
    deadline_at: float
    cleanup_s: float
    memory: int | None

    @classmethod
    def of(cls, held: HeldAttempt, now: float) -> Self:
        """Return the limits of an attempt whose process is there now."""
        dispatch = held.manifest.dispatch
        soft, hard = dispatch.soft_limit.total_seconds(), dispatch.hard_limit.total_seconds()
        return cls(
            soft_at=now + soft,
            hard_at=now + hard,
            deadline_at=held.answer_by - _BEFORE_DEADLINE_S,
            cleanup_s=hard - soft,
            memory=dispatch.memory_limit_bytes,
        )

    def kill_at(self, reason: Termination | None, held: HeldAttempt, now: float) -> float:
        """Return when a handler is killed that is asked to stop now."""
        if reason is Termination.INSTANCE_SHUTDOWN:
            return now + _SHUTDOWN_S
        if reason is Termination.DISPATCH_DEADLINE_EXCEEDED:
            return now
        if reason is Termination.LEASE_EXPIRED:  # another worker may have the run then
            return min(now + self.cleanup_s, max(now, held.ends_at))
        return now + self.cleanup_s
