"""The alarm: by when something must have happened to a run, or the sweep looks at it."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus


def alarm_for(manifest: Manifest, grace: timedelta) -> datetime | None:
    """Return when the run must be looked at; None where it rests for good or for a person.

    A paused run whose attempt still runs is not at rest yet: its alarm is the end of the lease.
    """
    if manifest.is_terminal:
        return None
    if manifest.lease is not None:
        return manifest.lease.expires_at
    if manifest.paused or manifest.status is RunStatus.BLOCKED:
        return None
    dispatch = manifest.dispatch
    since = max(dispatch.not_before, dispatch.seen_at or dispatch.not_before)
    if dispatch.schedule_to_start_s is not None:
        return since + timedelta(seconds=dispatch.schedule_to_start_s)
    return since + grace
