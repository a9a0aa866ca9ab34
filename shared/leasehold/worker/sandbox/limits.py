"""The limits of one attempt, on the clock that a worker shares with its child."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

from leasehold.attempt.attempt import Attempt
from leasehold.domain.status import Termination

#: A handler of a worker that is shut down is ended by who shuts it down; at the latest, then.
_SHUTDOWN_S: Final = 10.0

#: So long before the dispatch deadline it is killed: at that itself the attempt is ended without
#: what the handler was doing.
_BEFORE_DEADLINE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When an attempt is to end, in monotonic seconds, and how much memory it may take.

    The time of a handler begins when its module is imported; until then only that is limited.

    Args:
        begun_at: when the process was there.
        soft_at: when the handler is asked to end; while it is imported: never.
        hard_at: when it is killed; while it is imported: when that has taken too long.
        timeout_s: the agent timeout: how long the handler may take.
        deadline_at: the dispatch deadline, which comes first where the attempt began late.
        cleanup_s: how long a handler may take to end that is asked to.
        memory: in bytes; None: no limit.
    """

    begun_at: float
    soft_at: float
    hard_at: float
    timeout_s: float
    deadline_at: float
    cleanup_s: float
    memory: int | None

    @classmethod
    def of(cls, held: Attempt, now: float, import_s: float) -> Self:
        """Return the limits of an attempt whose process is there now.

        Args:
            held: the attempt.
            now: monotonic seconds.
            import_s: how long the import of the handler may take.
        """
        dispatch = held.manifest.position.dispatch
        soft, hard = dispatch.soft_limit.total_seconds(), dispatch.hard_limit.total_seconds()
        deadline_at = held.answer_by - _BEFORE_DEADLINE_S
        return cls(
            begun_at=now,
            soft_at=math.inf,
            hard_at=min(now + import_s, deadline_at),
            timeout_s=hard,
            deadline_at=deadline_at,
            cleanup_s=hard - soft,
            memory=dispatch.memory_limit_bytes,
        )

    def from_import(self, now: float) -> Self:
        """Return the limits of a handler that is imported now."""
        hard_at = now + self.timeout_s
        return replace(self, soft_at=hard_at - self.cleanup_s, hard_at=hard_at)

    def kill_at(self, reason: Termination | None, held: Attempt, now: float) -> float:
        """Return the time of the kill if a handler is asked to stop now."""
        if reason is Termination.INSTANCE_SHUTDOWN:
            return now + _SHUTDOWN_S
        if reason is Termination.DISPATCH_DEADLINE_EXCEEDED:
            return now
        if reason is Termination.LEASE_EXPIRED:  # another worker may have the run then
            return min(now + self.cleanup_s, max(now, held.ends_at))
        return now + self.cleanup_s
