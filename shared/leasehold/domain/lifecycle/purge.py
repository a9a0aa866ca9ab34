"""Purging: an ended run is marked, and deleted after that; it is hidden from the mark on.

A purge that is cut off between the two leaves a mark, which the next purge finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from leasehold.domain.archive import SILENT_FOR
from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import is_awaited, owed_effects
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.domain.timestamps import time_or_date
from leasehold.domain.trace import MAX_DETAIL_CHARS, TraceType, run_mark
from leasehold.errors import NotAllowedError

#: When a run may be purged, in words.
PURGEABLE: Final = "completed, cancelled or dead-lettered before {}, and owes nothing"


def is_purgeable(manifest: Manifest, ended_before: datetime) -> bool:
    """Return whether the run ended before then, and nothing is to come of it any more."""
    ended_at = manifest.ended_at
    is_over = ended_at is not None and ended_at < ended_before
    is_owing = any(map(is_awaited, owed_effects(manifest)))  # its archive is part of the purge
    return is_over and manifest.position.lease is None and not is_owing


def purge(manifest: Manifest, now: datetime, *, ended_before: datetime) -> Change:
    """Mark the run: it is as if it was not there, and can be deleted.

    One that is marked is marked anew: the purge that did it may be cut off, and if it is not, it
    finds out by that.

    Raises:
        NotAllowedError: it is live, ended later, or owes something.
    """
    if manifest.purged_at is None and not is_purgeable(manifest, ended_before):
        raise NotAllowedError(
            operation="purge",
            run_id=manifest.run_id,
            state=manifest.state,
            allowed=PURGEABLE.format(ended_before.isoformat()),
        )
    return Change(Outcome.PURGED, replace(manifest, purged_at=now))


def goes_with(run: Manifest, mark: str | None, at: object) -> bool:
    """Return whether something of the run's id is deleted with the run.

    It is its own; or an earlier life of the id left it, whose document was deleted by hand. Nothing
    of the next life is as old as this one.

    Args:
        run: the run.
        mark: of the life that it belongs to; None: a version before this one wrote it.
        at: when it was made, as it is stored.
    """
    return mark in (None, run_mark(run)) or _is_before(at, run.created_at)


def _is_before(at: object, then: datetime) -> bool:
    try:
        return (at if isinstance(at, datetime) else time_or_date(str(at))) < then
    except (ValueError, TypeError):  # it was edited
        return False


# The archive of an ended run: what came of a try. Once all of it is done, the run owes nothing.


def note_archive(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    life: str,
    failed: Mapping[str, str],
    is_over: bool,
) -> Change:
    """Note what came of a try to archive a run.

    It owes its archive until every step of it is done; and while a worker may write another
    temporary file, which a later try deletes.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        life: the mark of the archived run; another life of the id has nothing of it.
        failed: the steps that failed, and why. One that failed the last time is not traced again.
        is_over: no step is still under way.
    """
    archive = manifest.archive
    if archive is None or not manifest.is_terminal or manifest.life != life:
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    for step, why in failed.items():
        if step not in archive.failed:
            draft.trace(TraceType.ARCHIVE_FAILED, reason=step, detail=why[:MAX_DETAIL_CHARS])
    if failed or not is_over:
        later = replace(archive, failed=tuple(failed))
    elif again_at := _may_be_written_until(manifest, now):
        later = replace(archive, failed=(), not_before=again_at)
    else:
        draft.run = replace(draft.run, archive=None, owed=())
        return draft.commit(Outcome.ARCHIVED)
    if later == manifest.archive:
        return unchanged(manifest, Outcome.ARCHIVE_OWED)
    draft.run = replace(draft.run, archive=later)
    return draft.commit(Outcome.ARCHIVE_OWED)


def _may_be_written_until(manifest: Manifest, now: datetime) -> datetime | None:
    """Return until when a worker may write a temporary file; None: none may any more.

    It may, if the end of its attempt was not heard of.
    """
    last, heard_at = manifest.position.last_settlement, manifest.position.heartbeat_at
    if heard_at is None or heard_at + SILENT_FOR <= now:
        return None
    is_heard = last is not None and last.fencing_token == manifest.fencing_token
    was_stopped = last is not None and last.outcome is Outcome.CANCELLED
    return None if is_heard and not was_stopped else heard_at + SILENT_FOR
