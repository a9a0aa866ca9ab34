"""A step that is paused holds the runs that come to it: without a lease, and without a task.

A run notes who paused it and why. A resume finds the held runs by an index, and reads no other.
"""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.step_pause import StepPause, hold_of
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType


def hold(draft: Draft, pause: StepPause) -> Change:
    """Hold a run whose attempt was to begin; one that is held by this pause stays as it is."""
    dispatch = draft.position.dispatch
    if dispatch.held is not None and dispatch.held.pause == pause.id:
        return unchanged(draft.before, Outcome.PARKED)
    return _held(draft, pause)


def hold_at_alarm(manifest: Manifest, now: datetime, rules: Rules) -> Change | None:
    """Hold a run whose dispatch is due; one that is held goes on where no pause is left.

    None: no pause has to do with it.
    """
    draft = Draft(manifest, now, rules)
    if (pause := rules.pause_of(manifest.step_type)) is not None:
        return _held(draft, pause)
    return None if manifest.position.dispatch.held is None else _released(draft)


def release_hold(manifest: Manifest, now: datetime, *, rules: Rules, pause: str) -> Change:
    """Dispatch a run anew that this pause has held; another pause may hold it then.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        pause: its id.
    """
    held = manifest.held
    if held is None or held.pause != pause:
        return unchanged(manifest, Outcome.MOVED_ON)
    return _released(Draft(manifest, now, rules))


def _held(draft: Draft, pause: StepPause) -> Change:
    before = draft.position.dispatch.held
    held = hold_of(pause, draft.now)
    if before is not None:
        held = replace(held, since=before.since)
    dispatch = replace(
        draft.position.dispatch,
        held=held,
        seen_at=draft.now,
        enqueued=True,
        redispatched=0,
        lost_since=None,
    )
    draft.position = replace(draft.position, dispatch=dispatch)
    return draft.commit(Outcome.PARKED)


def _released(draft: Draft) -> Change:
    dispatch = draft.position.dispatch
    words = "" if dispatch.held is None else dispatch.held.words
    draft.trace(
        TraceType.STEP_REDISPATCHED,
        generation=dispatch.generation,
        detail=f"It was held while {words}." if words else None,
    )
    return dispatch_next(draft, Outcome.REDISPATCHED)
