"""How a run moves on: the next dispatch, or the next step, or the end of the plan."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.change import Change, change_to
from leasehold.domain.dispatch import Rules, dispatch_of
from leasehold.domain.manifest import Attempts, Block, Dispatch, Manifest, StepRecord
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.trace import TraceEvent, TraceType, event_of

_NOW: Final = timedelta()


def dispatch_next(
    manifest: Manifest,
    now: datetime,
    rules: Rules,
    outcome: Outcome,
    *events: TraceEvent,
    wait: timedelta = _NOW,
    **update: Any,
) -> Change:
    """Change the manifest and dispatch its current step once more, as the next generation.

    A paused run is changed and stays where it is. A step that this deploy does not know blocks.
    """
    moved = manifest.with_(**update)
    if moved.paused:
        if manifest.block is not None:
            update["dispatch"] = under_next_generation(manifest)  # the block keeps its own
        return change_to(manifest, now, rules, outcome, *events, **update)
    settings = rules.settings_for(moved.current_step)
    if settings is None:
        return block_unknown_step(manifest, now, rules, *events, **update)
    dispatch = dispatch_of(
        settings,
        generation=manifest.dispatch.generation + 1,
        trial=moved.trial,
        not_before=now + wait,
        nonce=manifest.dispatch.nonce,
    )
    return change_to(manifest, now, rules, outcome, *events, **update, dispatch=dispatch)


def under_next_generation(manifest: Manifest) -> Dispatch:
    """Return the dispatch of a run that stops, under a generation of its own.

    A generation names one attempt or one block, and never two: a decision that names it cannot
    hit a block that nobody has looked at.
    """
    return manifest.dispatch.with_(generation=manifest.dispatch.generation + 1)


def block_unknown_step(
    manifest: Manifest, now: datetime, rules: Rules, *events: TraceEvent, **update: Any
) -> Change:
    """Block a run whose current step this deploy does not know."""
    moved = manifest.with_(**update)
    found = Block(
        code="UNKNOWN_STEP",
        finding=f"This deploy knows no step {moved.current_step!r}.",
        remediation="Deploy a catalog that has the step and retry the run, or cancel it.",
    )
    told = event_of(moved, TraceType.STEP_UNKNOWN, now, reason=found.code, detail=found.finding)
    update |= {
        "status": after(moved.status, RunEvent.STEP_UNKNOWN),
        "steps": moved.with_step(moved.current_step, status=RunStatus.BLOCKED),
        "lease": None,
        "block": found,
        "dispatch": under_next_generation(manifest),
    }
    return change_to(manifest, now, rules, Outcome.BLOCKED, *events, told, **update)


def hand_off(
    manifest: Manifest,
    now: datetime,
    rules: Rules,
    event: RunEvent,
    *events: TraceEvent,
    steps: dict[str, StepRecord],
    **update: Any,
) -> Change:
    """Move to the step after the current one and dispatch it, or complete the run."""
    done = steps[manifest.current_step]
    update |= {"lease": None, "error": None, "error_at": None, "block": None, "checkpoint": None}
    following = manifest.next_step
    if following is None:
        steps[manifest.current_step] = done.with_(status=RunStatus.COMPLETED)
        update |= {
            "status": after(manifest.status, RunEvent.LAST_STEP_DONE),
            "steps": steps,
            "paused": False,
            "completed_at": now,
        }
        return change_to(manifest, now, rules, Outcome.COMPLETED, *events, **update)
    steps[manifest.current_step] = done.with_(status=RunStatus.COMPLETED, handed_off_at=now)
    update |= {
        "status": after(manifest.status, event),
        "steps": steps,
        "current_step": following,
        "trial": 1,
        "step_started_at": None,
        "heartbeat_at": None,
        "attempts": Attempts(),
        "interruptions": 0,
        "silences": 0,
    }
    return dispatch_next(manifest, now, rules, Outcome.HANDED_OFF, *events, **update)
