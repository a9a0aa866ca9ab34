"""What no transition could have written into a manifest; and how it is set right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.alarm import alarm_for
from leasehold.domain.change import Change, change_to
from leasehold.domain.claim import claimable_step
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import owed_effects
from leasehold.domain.lease import compute_lease_ttl
from leasehold.domain.lifecycle.future import time_in_future, with_times_from_now
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.start import shard_of
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.trace import TraceType, event_of


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which a run breaks the rule that nothing rests without an owner or an alarm."""

    code: str
    finding: str
    repair: str


_AGAIN: Final = "The step is dispatched again."

#: The longest dispatch deadline there is, and with it the longest that a lease may run.
LONGEST_LEASE: Final = compute_lease_ttl(timedelta(minutes=30))
#: An alarm may have been set by another grace, of a day at most.
_DAY: Final = timedelta(days=1, minutes=5)
_SOON: Final = timedelta(minutes=5)


def flaws(manifest: Manifest, grace: timedelta) -> Iterator[Breach]:
    """Tell what is wrong with a run at any time; nothing, for one that the engine wrote."""
    lease, leased, wanted = manifest.lease, _is_leased(manifest), wanted_alarm(manifest, grace)
    if leased and lease is None:
        yield Breach("no_lease", "It is IN_PROGRESS, and nobody holds it.", _AGAIN)
    if lease is not None and not leased:
        said = f"It is {manifest.state}, and {lease.holder or 'nobody'} holds a lease."
        yield Breach("stray_lease", said, "The lease is taken away.")
    elif lease is not None and not lease.holder:
        yield Breach("no_holder", "Its lease names no holder.", _AGAIN)
    if wanted is None and manifest.alarm_at is not None:
        said = f"It is {manifest.state} and owes nothing, and has an alarm."
        yield Breach("stray_alarm", said, "The alarm is taken away.")
    if wanted is not None and manifest.alarm_at is None:
        kinds = {type(effect).__name__.lower() for effect in owed_effects(manifest)}
        owed = "".join(f", and owes its {kind}" for kind in sorted(kinds))
        said = f"It is {manifest.state}{owed}, and has no alarm."
        yield Breach("no_alarm", said, "It gets its alarm.")
    yield from _endless(manifest, wanted)
    if manifest.shard != shard_of(manifest.run_id):
        said = f"It is in shard {manifest.shard}, where no sweep looks for it."
        yield Breach("wrong_shard", said, "It comes to its shard.")
    claimable = claimable_step(manifest)
    if manifest.claimable != claimable:
        said = f"It is listed for remote workers as {manifest.claimable}, and waits for none."
        if claimable is not None:
            said = f"Step {claimable} waits for a remote worker, and is not listed for them."
        yield Breach("stray_claim", said, "It is listed as what it is.")


def _endless(manifest: Manifest, wanted: datetime | None) -> Iterator[Breach]:
    """Tell of times that lie further ahead than any that the engine writes."""
    lease, seen_at = manifest.lease, manifest.dispatch.seen_at
    if lease is not None and lease.expires_at - lease.acquired_at > LONGEST_LEASE:
        said = f"Its lease runs until {lease.expires_at.isoformat()}, longer than any may."
        yield Breach("endless_lease", said, _AGAIN)
    elif seen_at is not None and seen_at > manifest.updated_at + _SOON:
        said = f"Its task was seen at {seen_at.isoformat()}, which is after it was last written."
        yield Breach("endless_wait", said, "It gets its alarm.")
    elif wanted is not None and manifest.alarm_at is not None and manifest.alarm_at > wanted + _DAY:
        said = f"Its alarm is at {manifest.alarm_at.isoformat()}, long after it is due."
        yield Breach("late_alarm", said, "It gets its alarm.")


def flaws_at(manifest: Manifest, now: datetime) -> Iterator[Breach]:
    """Yield what is wrong with a run as seen from now; `flaws` sees no clock."""
    if said := time_in_future(manifest, now):
        repair = "A waiting step is dispatched again; a lease runs on from now."
        yield Breach("time_in_future", said, repair)


def wanted_alarm(manifest: Manifest, grace: timedelta) -> datetime | None:
    """Return when the run must be looked at, whatever lease it shows that it cannot have."""
    return alarm_for(manifest if _is_leased(manifest) else manifest.with_(lease=None), grace)


def mend(manifest: Manifest, now: datetime, rules: Rules, found: tuple[Breach, ...]) -> Change:
    """Set right what was found; what nobody holds is dispatched again."""
    codes = {breach.code for breach in found}
    said = " ".join(breach.finding for breach in found)
    told = event_of(manifest, TraceType.STEP_RECOVERED, now, reason="repaired", detail=said)
    update: dict[str, Any] = {"shard": shard_of(manifest.run_id)}
    if "time_in_future" in codes:
        manifest = with_times_from_now(manifest, now, rules)
    if "endless_wait" in codes:
        manifest = manifest.with_(dispatch=manifest.dispatch.with_(seen_at=None))
    if codes & {"no_lease", "no_holder", "endless_lease"}:
        status = RunStatus.PENDING
        update["status"] = status
        update["steps"] = manifest.with_step(manifest.current_step, status=status)
    elif "time_in_future" not in codes or not _waits(manifest):
        kept = manifest.lease if _is_leased(manifest) else None
        return change_to(manifest, now, rules, Outcome.REPAIRED, told, lease=kept, **update)
    return dispatch_next(manifest, now, rules, Outcome.REDISPATCHED, told, **update, lease=None)


def _waits(manifest: Manifest) -> bool:
    """Return whether the run waits for a worker."""
    return manifest.status in (RunStatus.PENDING, RunStatus.ERROR) and not manifest.paused


def _is_leased(manifest: Manifest) -> bool:
    return manifest.status is RunStatus.IN_PROGRESS and not manifest.is_terminal
