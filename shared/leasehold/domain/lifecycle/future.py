"""Times that lie ahead of now: the store's clock was wrong when they were written, or is so now.

A run whose alarm is in 2056 is looked at by no sweep before. The audit finds it, and gives it
times from now.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.clock_step import SKEW, ClockStep, after_step
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import lease_for
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome

#: No wait before an attempt is longer than a day, whatever the settings.
LONGEST_WAIT: Final = timedelta(days=1)


def time_in_future(manifest: Manifest, now: datetime) -> str | None:
    """Return a sentence on a time of a live run that cannot be, seen from now; None: all can."""
    if manifest.is_terminal:
        return None
    lease = manifest.position.lease
    times = (
        ("It was last written", manifest.updated_at, now),
        ("Its next attempt is due", manifest.position.dispatch.not_before, now + LONGEST_WAIT),
        ("Its lease began", now if lease is None else lease.acquired_at, now),
    )
    for words, at, latest in times:
        if at > latest + SKEW:
            return f"{words} at {at.isoformat()}, which is too far ahead of now, {now.isoformat()}."
    return None


def follow_clock(manifest: Manifest, now: datetime, *, rules: Rules, step: ClockStep) -> Change:
    """Have the lease of the run last by the clock as it is since the step, as long as before."""
    run = after_step(manifest, now, step)
    if run is manifest:
        return unchanged(manifest, Outcome.IN_ORDER)
    return Draft(run, now, rules).commit(Outcome.REPAIRED)


def set_times_from_now(draft: Draft) -> None:
    """Leave no time ahead of now in the run that an alarm or a verdict would wait for.

    A lease stays with its holder and runs from now: a worker that is alive renews it, and one
    that is dead lets it run out. Which it is, nobody can know from here.
    """
    run, now = draft.run, draft.now
    dispatch, lease = run.position.dispatch, run.position.lease
    seen_at, block = dispatch.seen_at, run.block
    if lease is not None and lease.acquired_at > now:
        ttl = draft.rules.lease_ttl
        lease = lease_for(run, now, lease_id=lease.lease_id, holder=lease.holder, ttl=ttl)
    draft.set(
        error_at=_at_most(now, run.error_at),
        block=None if block is None else block.with_(look_at=_at_most(now, block.look_at)),
    )
    draft.set_position(
        lease=lease,
        heartbeat_at=_at_most(now, run.position.heartbeat_at),
        dispatch=dispatch.with_(
            not_before=min(now, dispatch.not_before),
            seen_at=None if seen_at is None or now < seen_at else seen_at,
        ),
    )


def _at_most(now: datetime, at: datetime | None) -> datetime | None:
    return None if at is None else min(now, at)
