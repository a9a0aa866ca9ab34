"""The archive of an ended run: what is done once people have been told."""

from __future__ import annotations

from pydantic import AwareDatetime

from leasehold.domain.stored import Stored


class OwedArchive(Stored):
    """The archive that an ended run still owes; a run that is archived has none.

    `failed` names the steps of it that failed the last time.
    """

    tries: int = 0
    failed: tuple[str, ...] = ()
    not_before: AwareDatetime | None = None  # when the sweep tries again; None: at the grace
