"""Purging: an ended run is marked, and deleted after that; nobody sees it from the mark on.

A purge that is cut off between the two leaves a mark, which the next purge finds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from leasehold.domain.change import Change
from leasehold.domain.effect import is_awaited, owed_effects
from leasehold.domain.manifest import Manifest
from leasehold.domain.moment import time_or_date
from leasehold.domain.status import Outcome
from leasehold.domain.trace import run_mark
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
    return Change(Outcome.PURGED, manifest.with_(purged_at=now))


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
    except (ValueError, TypeError):  # somebody edited it
        return False
