"""What no transition could have written into a run, or no sweep has seen to; and its repair."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft, alarm_for, unchanged
from leasehold.domain.deadlines import MAX_DEADLINE
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import owed_effects
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lease import compute_lease_ttl, lease_for
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.start import shard_of
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.domain.timestamps import SKEW, ClockStep, after_step
from leasehold.domain.trace import TraceType
from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which a run breaks the rule that nothing is live without an owner or an alarm."""

    code: str
    finding: str
    repair: str


_AGAIN: Final = "The step is dispatched again."

#: An alarm this long past says that no sweep runs, or that none can help.
LONG_PAST: Final = timedelta(minutes=5)
#: No lease may run longer, with all its renewals.
MAX_LEASE: Final = compute_lease_ttl(MAX_DEADLINE)
#: An alarm may have been set by another grace, of a day at most.
_DAY: Final = timedelta(days=1, minutes=5)
_SOON: Final = timedelta(minutes=5)


def breaches(manifest: Manifest, now: datetime, rules: Rules) -> Iterator[Breach]:
    """Yield what is wrong with a run; nothing, for one that the engine wrote and swept."""
    yield from (*flaws(manifest, rules.grace), *flaws_at(manifest, now))
    alarm, wanted = manifest.alarm_at, _wanted_alarm(manifest, rules.grace)
    if wanted is not None and alarm is not None and alarm + LONG_PAST < now:
        passed = round((now - alarm).total_seconds())
        finding = f"Its alarm was due {passed} s ago, and no sweep has attended to it."
        yield Breach("overdue", finding, "What the sweep would do is done.")


def flaws(manifest: Manifest, grace: timedelta) -> Iterator[Breach]:
    """Yield what is wrong with a run at any time; nothing, for one that the engine wrote."""
    lease, leased = manifest.position.lease, _is_leased(manifest)
    wanted = _wanted_alarm(manifest, grace)
    if leased and lease is None:
        yield Breach("no_lease", "It is IN_PROGRESS, but no worker holds a lease.", _AGAIN)
    if lease is not None and not leased:
        finding = f"It is {manifest.state}, and {lease.holder or 'no worker'} holds a lease."
        yield Breach("stray_lease", finding, "The lease is taken away.")
    elif lease is not None and not lease.holder:
        yield Breach("no_holder", "Its lease names no holder.", _AGAIN)
    if wanted is None and manifest.alarm_at is not None:
        finding = f"It is {manifest.state} and owes nothing, and has an alarm."
        yield Breach("stray_alarm", finding, "The alarm is taken away.")
    if wanted is not None and manifest.alarm_at is None:
        finding = f"It is {manifest.state}{_owing(manifest)}, and has no alarm."
        yield Breach("no_alarm", finding, "It gets its alarm.")
    yield from _endless(manifest, wanted)
    if manifest.shard != shard_of(manifest.run_id):
        finding = f"It is in shard {manifest.shard}, where no sweep looks for it."
        yield Breach("wrong_shard", finding, "It is moved to its shard.")
    yield from _strays(manifest)


def _strays(manifest: Manifest) -> Iterator[Breach]:
    """Yield what a run is found by that its state rules out."""
    claimable = manifest.claimable_step
    if manifest.claimable != claimable:
        finding = f"It is listed for remote workers as {manifest.claimable}, and waits for none."
        if claimable is not None:
            finding = f"Step {claimable} waits for a remote worker, and is not listed for them."
        yield Breach("stray_claim", finding, "It is listed as what it is.")
    stands, place = (manifest.waits_in, manifest.line), manifest.place_in_line
    if stands != (place or (None, None)):
        finding = f"It stands in the line {manifest.waits_in!r}, and waits for no limit there."
        if place is not None:
            finding = f"It waits for a limit, and does not stand in the line {place[0]!r}."
        yield Breach("stray_line", finding, "It stands where it is to be called.")


def _owing(manifest: Manifest) -> str:
    """Return what the run owes, in words; a message is owed by its delivery."""
    owed = [each for each in owed_effects(manifest) if not isinstance(each, EventMessage)]
    kinds = {type(effect).__name__.lower() for effect in owed}
    return "".join(f", and owes its {kind}" for kind in sorted(kinds))


def flaws_at(manifest: Manifest, now: datetime) -> Iterator[Breach]:
    """Yield what is wrong with a run as seen from now; `flaws` sees no clock."""
    if finding := time_in_future(manifest, now):
        remedy = "A waiting step is dispatched again; a lease runs on from now."
        yield Breach("time_in_future", finding, remedy)


def repair(manifest: Manifest, now: datetime, rules: Rules, broken: tuple[Breach, ...]) -> Change:
    """Repair these breaches, but no overdue alarm; a step without a lease is dispatched again."""
    codes = {breach.code for breach in broken}
    draft = Draft(manifest, now, rules)
    findings = " ".join(breach.finding for breach in broken)
    draft.trace(TraceType.STEP_RECOVERED, reason="repaired", detail=findings)
    draft.run = replace(draft.run, shard=shard_of(manifest.run_id))
    if "time_in_future" in codes:
        set_times_from_now(draft)
    if "endless_wait" in codes:
        draft.position = replace(
            draft.position, dispatch=replace(draft.position.dispatch, seen_at=None)
        )
    if codes & {"no_lease", "no_holder", "endless_lease"}:
        draft.step = replace(draft.step, status=RunStatus.PENDING)
        draft.run = replace(draft.run, status=RunStatus.PENDING)
        draft.position = replace(draft.position, lease=None)
        return dispatch_next(draft, Outcome.REDISPATCHED)
    if "time_in_future" in codes and manifest.waits_for_worker:
        draft.position = replace(draft.position, lease=None)
        return dispatch_next(draft, Outcome.REDISPATCHED)
    if not _is_leased(manifest):
        draft.position = replace(draft.position, lease=None)
    return draft.commit(Outcome.REPAIRED)


def _endless(manifest: Manifest, wanted: datetime | None) -> Iterator[Breach]:
    """Yield times that lie further ahead than any that the engine writes."""
    lease, dispatch, alarm = manifest.position.lease, manifest.position.dispatch, manifest.alarm_at
    seen_at = dispatch.seen_at
    cap = min(compute_lease_ttl(timedelta(seconds=dispatch.deadline_s)), MAX_LEASE)
    if lease is not None and lease.expires_at - lease.acquired_at > cap:
        finding = f"Its lease runs until {lease.expires_at.isoformat()}, longer than any may."
        yield Breach("endless_lease", finding, _AGAIN)
    elif lease is None and seen_at is not None and seen_at > manifest.updated_at + _SOON:
        finding = f"Its task was seen at {seen_at.isoformat()}, which is after it was last written."
        yield Breach("endless_wait", finding, "It gets its alarm.")
    elif wanted is not None and alarm is not None and alarm > wanted + _DAY:
        finding = f"Its alarm is at {alarm.isoformat()}, long after it is due."
        yield Breach("late_alarm", finding, "It gets its alarm.")


def _wanted_alarm(manifest: Manifest, grace: timedelta) -> datetime | None:
    """Return when the run must be looked at, whatever lease it shows that it cannot have."""
    if not _is_leased(manifest):
        manifest = replace(manifest, position=replace(manifest.position, lease=None))
    return alarm_for(manifest, grace)


def _is_leased(manifest: Manifest) -> bool:
    return manifest.status is RunStatus.IN_PROGRESS and not manifest.is_terminal


# Times that lie ahead of now: the store's clock was wrong when they were written, or is so now.
#
# A run whose alarm is in 2056 is looked at by no sweep before. The audit finds it, and gives it
# times from now.


#: No wait before an attempt is longer than a day, whatever the settings.
MAX_ATTEMPT_WAIT: Final = timedelta(days=1)


def time_in_future(manifest: Manifest, now: datetime) -> str | None:
    """Return a sentence on a time of a live run that cannot be, seen from now; None: all can."""
    if manifest.is_terminal:
        return None
    lease = manifest.position.lease
    times = (
        ("It was last written", manifest.updated_at, now),
        ("Its next attempt is due", manifest.position.dispatch.not_before, now + MAX_ATTEMPT_WAIT),
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
    that is dead lets it run out. From here it is unknown which it is.
    """
    run, now = draft.run, draft.now
    dispatch, lease = run.position.dispatch, run.position.lease
    seen_at, block = dispatch.seen_at, run.block
    if lease is not None and lease.acquired_at > now:
        ttl = draft.rules.lease_ttl
        lease = lease_for(run, now, lease_id=lease.lease_id, holder=lease.holder, ttl=ttl)
    draft.run = replace(
        draft.run,
        error_at=_at_most(now, run.error_at),
        block=None if block is None else replace(block, look_at=_at_most(now, block.look_at)),
    )
    draft.position = replace(
        draft.position,
        lease=lease,
        heartbeat_at=_at_most(now, run.position.heartbeat_at),
        dispatch=replace(
            dispatch,
            not_before=min(now, dispatch.not_before),
            seen_at=None if seen_at is None or now < seen_at else seen_at,
        ),
    )


def _at_most(now: datetime, at: datetime | None) -> datetime | None:
    return None if at is None else min(now, at)
