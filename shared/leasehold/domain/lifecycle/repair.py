"""A manifest that no transition could have written: what is wrong with it, and its repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.alarm import alarm_for
from leasehold.domain.change import Change, change_to, owed_tasks, unchanged
from leasehold.domain.claim import claimable_step
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.attend import attend
from leasehold.domain.lifecycle.moving import dispatch_next
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.trace import TraceType, event_of

#: An alarm this long past says that no sweep runs, or that none can help.
LONG_PAST: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which a run breaks the rule that nothing rests without an owner or an alarm."""

    code: str
    finding: str
    repair: str


def breaches(manifest: Manifest, now: datetime, rules: Rules) -> Iterator[Breach]:
    """Tell what is wrong with a run; nothing, for one that the engine wrote and swept."""
    lease, alarm = manifest.lease, manifest.alarm_at
    leased = manifest.status is RunStatus.IN_PROGRESS
    if leased and lease is None and not manifest.is_terminal:
        yield Breach("no_lease", "It is IN_PROGRESS, and nobody holds it.", _AGAIN)
    if lease is not None and (not leased or manifest.is_terminal):
        said = f"It is {manifest.state}, and {lease.holder or 'nobody'} holds a lease."
        yield Breach("stray_lease", said, "The lease is taken away.")
    elif lease is not None and not lease.holder:
        yield Breach("no_holder", "Its lease names no holder.", _AGAIN)
    wanted = alarm_for(manifest, rules.grace)
    if wanted is None and alarm is not None:
        said = f"It rests as {manifest.state}, and has an alarm."
        yield Breach("stray_alarm", said, "The alarm is taken away.")
    if wanted is not None and alarm is None:
        owed = ", and owes its task" if owed_tasks(manifest) else ""
        said = f"It is {manifest.state}{owed}, and has no alarm."
        yield Breach("no_alarm", said, "It gets its alarm.")
    if wanted is not None and alarm is not None and alarm + LONG_PAST < now:
        passed = round((now - alarm).total_seconds())
        said = f"Its alarm was due {passed} s ago, and no sweep has attended to it."
        yield Breach("overdue", said, "What the sweep would do is done.")
    if manifest.claimable != claimable_step(manifest):
        said = f"It is listed as claimable as {manifest.claimable}, and is not."
        yield Breach("stray_claim", said, "It is listed as what it is.")


_AGAIN: Final = "The step is dispatched again."


def repair(
    manifest: Manifest, now: datetime, *, rules: Rules, generation: int, in_queue: bool
) -> Change:
    """Mend the run; one that is in order stays as it is.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether it was found.
    """
    found = {breach.code: breach for breach in breaches(manifest, now, rules)}
    if not found:
        return unchanged(manifest, Outcome.DUPLICATE)
    if found.keys() == {"overdue"}:
        return attend(manifest, now, rules=rules, generation=generation, in_queue=in_queue)
    said = " ".join(breach.finding for breach in found.values())
    told = event_of(manifest, TraceType.STEP_RECOVERED, now, reason="repaired", detail=said)
    update: dict[str, Any] = {}
    if found.keys() & {"no_lease", "no_holder", "stray_lease"}:
        update["lease"] = None
    if found.keys() & {"no_lease", "no_holder"}:
        status = RunStatus.PENDING
        update |= {
            "status": status,
            "steps": manifest.with_step(manifest.current_step, status=status),
        }
        return dispatch_next(manifest, now, rules, Outcome.REDISPATCHED, told, **update)
    return change_to(manifest, now, rules, Outcome.REPAIRED, told, **update)
