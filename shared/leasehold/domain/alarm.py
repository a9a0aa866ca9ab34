"""The alarm: by when something must have happened to a run, or the sweep looks at it."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasehold.domain.archive import SILENT_FOR, longest_wait
from leasehold.domain.effect import is_awaited, owed_effects
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
    told = manifest.announcement
    is_owed = any(map(is_awaited, owed_effects(manifest)))
    if is_owed or (told is not None and told.pending):
        return written_at + grace
    return _alarm_of_archive(manifest, grace, written_at) if manifest.owes_archive else None


def _alarm_of_archive(manifest: Manifest, grace: timedelta, written_at: datetime) -> datetime:
    """Return when the sweep is to archive the run, if nobody has by then.

    One that a version before this one ended owes the deletion of its temporary files alone.
    """
    archive = manifest.archive
    if archive is None:
        return written_at + SILENT_FOR
    if archive.not_before is None:
        return written_at + grace
    return min(archive.not_before, written_at + longest_wait(grace))
