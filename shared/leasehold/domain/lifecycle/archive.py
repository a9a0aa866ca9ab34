"""The archive of an ended run: what came of a try. Once all of it is done, the run owes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from leasehold.domain.archive import SILENT_FOR
from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceType

_MAX_DETAIL: Final = 500


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
        life: the mark of what was archived; another life of the id has nothing of it.
        failed: the steps that failed, and why. One that failed the last time is not traced again.
        is_over: no step is still under way.
    """
    archive = manifest.archive
    if archive is None or not manifest.is_terminal or manifest.life != life:
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    for step, why in failed.items():
        if step not in archive.failed:
            draft.trace(TraceType.ARCHIVE_FAILED, reason=step, detail=why[:_MAX_DETAIL])
    if failed or not is_over:
        later = archive.with_(failed=tuple(failed))
    elif again_at := _may_be_written_until(manifest, now):
        later = archive.with_(failed=(), not_before=again_at)
    else:
        draft.set(archive=None, owed=())
        return draft.commit(Outcome.ARCHIVED)
    if later == manifest.archive:
        return unchanged(manifest, Outcome.ARCHIVE_OWED)
    draft.set(archive=later)
    return draft.commit(Outcome.ARCHIVE_OWED)


def _may_be_written_until(manifest: Manifest, now: datetime) -> datetime | None:
    """Return until when a worker may write a temporary file; None: none may any more.

    It may, if nobody heard that its attempt was over.
    """
    last, heard_at = manifest.position.last_settlement, manifest.position.heartbeat_at
    if heard_at is None or heard_at + SILENT_FOR <= now:
        return None
    is_heard = last is not None and last.fencing_token == manifest.fencing_token
    was_stopped = last is not None and last.outcome is Outcome.CANCELLED
    return None if is_heard and not was_stopped else heard_at + SILENT_FOR
