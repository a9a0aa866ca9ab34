"""The alarm: by when something must have happened to a run, or the sweep looks at it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.archive import longest_wait
from leasehold.domain.effect import is_awaited, owed_effects
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Dispatch

#: Where an alarm is looked at later than this, nobody was there to look: time off, or an outage.
#: What cuts a step short within as long after another is the same outage.
OUTAGE: Final = timedelta(minutes=10)

#: A wait for a remote worker is looked at so often, so that time off is noticed.
_LOOKS: Final = 12


def is_unattended(due_at: datetime, now: datetime) -> bool:
    """Return whether nobody was there to look when something was due.

    Such time proves nothing against a run: it is not counted, and the look begins it anew.

    Args:
        due_at: when somebody was to look.
        now: when somebody did.
    """
    return now > due_at + OUTAGE


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
    written_at = written_at or manifest.updated_at
    lease = manifest.position.lease
    if lease is not None and not manifest.is_terminal:
        return lease.expires_at
    if manifest.is_idle:
        return _alarm_of_idle(manifest, grace, written_at)
    if manifest.look_at is not None:
        return manifest.look_at
    dispatch = manifest.position.dispatch
    if dispatch.schedule_to_start_s is not None:
        return _next_look(dispatch, written_at)
    return dispatch.waits_since + grace


def _next_look(dispatch: Dispatch, written_at: datetime) -> datetime:
    """Return when somebody looks next whether a remote step is still to be claimed."""
    since, until = dispatch.waits_since, dispatch.claim_by
    assert until is not None  # noqa: S101 - who asks has seen that it is remote
    each = max(OUTAGE, (until - since) / _LOOKS)
    looks = max(timedelta(), written_at - since) // each
    return min(until, since + (looks + 1) * each)


def _alarm_of_idle(manifest: Manifest, grace: timedelta, written_at: datetime) -> datetime | None:
    """Return when what an idle run owes is to be carried out; a live one owes no deletion."""
    told = manifest.announcement
    is_owed = any(map(is_awaited, owed_effects(manifest)))
    if is_owed or (told is not None and told.pending):
        return written_at + grace
    return _alarm_of_archive(manifest, grace, written_at) if manifest.owes_archive else None


def _alarm_of_archive(manifest: Manifest, grace: timedelta, written_at: datetime) -> datetime:
    """Return when the sweep is to archive the run, if nobody has by then."""
    archive = manifest.archive
    if archive is None or archive.not_before is None:
        return written_at + grace
    return min(archive.not_before, written_at + longest_wait(grace))
