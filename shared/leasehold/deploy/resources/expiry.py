"""How long the ledger is kept: Firestore deletes an entry some time after its run has ended.

Runs themselves are never left to Firestore, which would delete the one document and leave the
trace, the deliveries and the files of the run: the sweep purges those (LEASEHOLD_RETENTION_DAYS).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from google.api_core.exceptions import Aborted, NotFound
from google.cloud.firestore_admin_v1.types import Field

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.database import Database
from leasehold.deploy.resources.indexes import BUSY
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    BusyError,
    Difference,
    Look,
    Resource,
    State,
)
from leasehold.live.clients import ONE_TRY, GoogleClients
from leasehold.live.firestore_builds import begun_at

#: A time that never changes once the entry is written; see docs/ledger.md.
_COLLECTION: Final = "ledger"
_FIELD: Final = "endedAt"


def expiries(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the expiry of the ledger, if it is to have one."""
    if installation.ledger_days is not None:
        yield Expiry(clients, installation, timedelta(days=installation.ledger_days))


@dataclass(frozen=True, slots=True)
class Expiry:
    """That entries are deleted so long after their time."""

    clients: GoogleClients
    installation: Installation
    kept: timedelta
    kind = "expiry"

    @property
    def name(self) -> str:
        """Its collection and field."""
        return f"{_COLLECTION}.{_FIELD}"

    @property
    def needs(self) -> Sequence[Resource]:
        """The database."""
        return (Database(self.clients, self.installation),)

    def look(self) -> Look:
        """Return whether it is set, and to the same time."""
        try:
            found = self.clients.firestore_admin.get_field(name=self._full_name(), **ONE_TRY)
        except NotFound:
            return MISSING
        if "ttl_config" not in found:
            return MISSING
        look = self._look_at(found.ttl_config.state)
        offset = found.ttl_config.expiration_offset or timedelta()
        if offset == self.kept:
            return look
        difference = Difference("kept", found=_days(offset), wanted=_days(self.kept))
        return Look(State.DIFFERENT, (difference, *look.differences), repair=self._repair())

    def create(self) -> None:
        """Set it; Firestore then goes through all entries, for which no one waits."""
        field = {"name": self._full_name(), "ttl_config": {"expiration_offset": self.kept}}
        asked = {"field": field, "update_mask": {"paths": ["ttl_config"]}}
        try:
            self.clients.firestore_admin.update_field(request=asked, **ONE_TRY)
        except Aborted as error:
            raise BusyError(BUSY) from error

    def _full_name(self) -> str:
        group = f"{self.installation.database_name}/collectionGroups/{_COLLECTION}"
        return f"{group}/fields/{_FIELD}"

    def _look_at(self, state: Field.TtlConfig.State) -> Look:
        match state:
            case Field.TtlConfig.State.CREATING:
                database = self.installation.database_name
                begun = begun_at(self.clients.firestore_admin, database)
                why = "Firestore to take it up, which may take some hours"
                return Look(State.WAITING, why=why, since=begun.get(self._full_name()))
            case Field.TtlConfig.State.NEEDS_REPAIR:
                difference = Difference("state", found="NEEDS_REPAIR", wanted="ACTIVE")
                return Look(State.DIFFERENT, (difference,), repair=self._repair())
            case _:
                return PRESENT

    def _repair(self) -> str:
        """Return how it is taken away, so that the next `apply` sets it anew."""
        of = f"--collection-group={_COLLECTION} --project={self.installation.project}"
        base = f"gcloud firestore fields ttls update {_FIELD} {of}"
        of_database = f"--database='{self.installation.database}'"
        return f"{base} {of_database} --disable-ttl"


def _days(time: timedelta) -> str:
    return f"{time.days} days"
