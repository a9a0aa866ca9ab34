"""A run that is not parked comes to an end, from any state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import owed_tasks
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from tests.properties.model import ERROR, MAX_FAILURES, MAX_INTERRUPTIONS, NOBODY, PLAN

#: How the workers of a proof of liveness behave, attempt after attempt.
HABITS: dict[str, tuple[str, ...]] = {
    "good": ("complete",),
    "failing": ("fail",),
    "dying": ("die",),
    "hanging": ("exceed_limit",),
    "interrupted": ("release",),
    "without a store": ("defer", "defer", "complete"),
    "moody": ("die", "fail", "release", "complete"),
    "continued for ever": ("continue_later",),
    "failing after progress": ("checkpoint_and_fail",),
    "busy": ("checkpoint", "checkpoint", "release"),
}

#: Those that bring no step to its end.
ENDLESS = ("failing", "failing after progress", "hanging", "continued for ever")

#: Each step may fail, be interrupted, get on once, be interrupted again and succeed; an attempt
#: takes a sweep, a hint and an end.
BOUND = 3 * len(PLAN) * (MAX_FAILURES + 1 + 2 * (MAX_INTERRUPTIONS + 1) + 1)


def comes_to_an_end(
    manifest: Manifest, now: datetime, rules: Rules, habit: str, *, by_hints: bool
) -> None:
    """Check that the run ends by its tasks, or where each first task is lost, by its alarms.

    Workers elsewhere claim what is offered, or none of them ever comes.
    """
    replaced = False
    for attempt in range(BOUND):
        if manifest.is_terminal:
            assert habit not in ENDLESS or manifest.dead_lettered
            return
        assert manifest.alarm_at is not None
        owed = owed_tasks(manifest)
        comes = (by_hints or replaced) and owed
        now = max(now, owed[0].not_before if comes else manifest.alarm_at)
        generation = manifest.position.dispatch.generation
        if by_hints and manifest.claimable is not None:
            now = max(now, manifest.position.dispatch.not_before)
            change = lifecycle.claim(
                manifest, now, rules=rules, lease_id=f"proof-{attempt}", holder="proof"
            )
        elif comes or (by_hints and manifest.position.lease is not None):
            change = lifecycle.arrive(
                manifest,
                now,
                rules=rules,
                generation=generation,
                lease_id=f"proof-{attempt}",
                holder="proof",
            )
        elif manifest.look_at is not None:
            change = lifecycle.look_again(manifest, now, rules=rules)
        elif manifest.position.lease is not None:
            lease_id = manifest.position.lease.lease_id
            change = lifecycle.expire(manifest, now, rules=rules, lease_id=lease_id)
        else:
            change = lifecycle.redispatch(
                manifest, now, rules=rules, generation=generation, in_queue=False
            )
        replaced = change.outcome is Outcome.REDISPATCHED
        manifest = change.manifest
        if change.outcome is Outcome.ACQUIRED:
            deed = HABITS[habit][attempt % len(HABITS[habit])]
            manifest = _do(deed, manifest, now, rules)
            if deed == "release":
                now += NOBODY  # before the next shutdown; sooner it would be the same outage
    pytest.fail(f"a run with {habit} workers did not end in {BOUND} steps: {manifest!r}")


def _do(deed: str, manifest: Manifest, now: datetime, rules: Rules) -> Manifest:  # noqa: PLR0911
    assert manifest.position.lease is not None
    facts: dict[str, Any] = {
        "rules": rules,
        "fence": Fence(manifest.position.lease.lease_id, manifest.fencing_token),
    }
    match deed:
        case "complete":
            return lifecycle.complete(manifest, now, **facts, output=KeptValue(text="1")).manifest
        case "fail" | "exceed_limit":
            limit = {"reason": "agent_timeout_exceeded"} if deed == "exceed_limit" else {}
            fail = getattr(lifecycle, deed)
            change: Change = fail(manifest, now, **facts, **limit, error=ERROR)
            return change.manifest
        case "checkpoint":
            facts |= {"iteration_count": 1, "phase": "read", "partial_results": KeptValue()}
            return lifecycle.checkpoint(manifest, now, **facts).manifest
        case "checkpoint_and_fail":
            further = {"iteration_count": manifest.fencing_token, "partial_results": KeptValue()}
            kept = lifecycle.checkpoint(manifest, now, **facts, **further, phase="read").manifest
            return _do("fail", kept, now, rules)
        case "defer":
            facts |= {"reason": "store_unavailable", "detail": "It does not answer."}
            return lifecycle.defer(manifest, now, **facts).manifest
        case "die":
            return manifest
    more = {"reason": "instance_shutdown"} if deed == "release" else {}
    end: Change = getattr(lifecycle, deed)(manifest, now, **facts, **more)
    return end.manifest
