"""The alarm: by when something must have happened to a run, or the sweep looks at it."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasehold.domain.effect import DELETED_AFTER, is_awaited, owed_effects
from leasehold.domain.manifest import Manifest


def alarm_for(
    manifest: Manifest, grace: timedelta, written_at: datetime | None = None
) -> datetime | None:
    """Return when the run must be looked at; None: it is idle, and owes nothing.

    A paused run whose attempt still runs is not idle yet: its alarm is the end of the lease.

    Args:
        manifest: the run.
        grace: how late a task may come, or what an idle run owes be carried out.
        written_at: when the run is written; None: it is as it was written last.
    """
    if manifest.is_idle:
        return _alarm_of_idle(manifest, grace, written_at or manifest.updated_at)
    if manifest.lease is not None:
        return manifest.lease.expires_at
    dispatch = manifest.dispatch
    since = max(dispatch.not_before, dispatch.seen_at or dispatch.not_before)
    if dispatch.schedule_to_start_s is not None:
        return since + timedelta(seconds=dispatch.schedule_to_start_s)
    return since + grace


def _alarm_of_idle(manifest: Manifest, grace: timedelta, written_at: datetime) -> datetime | None:
    """Return when what an idle run owes is to be carried out; a live one owes no deletion."""
    owed, told = owed_effects(manifest), manifest.announcement
    if any(map(is_awaited, owed)) or (told is not None and told.pending):
        return written_at + grace
    return written_at + DELETED_AFTER if owed and manifest.is_terminal else None
