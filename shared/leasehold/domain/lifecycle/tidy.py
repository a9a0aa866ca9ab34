"""The temporary files of an ended run: once they are deleted, it owes nothing any more."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.draft import Draft
from leasehold.domain.effect import DELETED_AFTER
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome


def note_deleted(manifest: Manifest, now: datetime, *, rules: Rules) -> Change:
    """Note that all folders of temporary files that an ended run owed are deleted.

    Not while a worker may be about to write another file: one that was not heard to end. The sweep
    deletes that one.
    """
    if not (manifest.is_terminal and manifest.owed) or _may_be_written(manifest, now):
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    draft.set(owed=())
    return draft.commit(Outcome.TIDIED)


def _may_be_written(manifest: Manifest, now: datetime) -> bool:
    last, heard_at = manifest.last_settlement, manifest.heartbeat_at
    if heard_at is None or heard_at + DELETED_AFTER <= now:
        return False
    is_heard = last is not None and last.fencing_token == manifest.fencing_token
    return not is_heard or (last is not None and last.outcome is Outcome.CANCELLED)
