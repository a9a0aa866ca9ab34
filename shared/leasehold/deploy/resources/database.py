"""The Firestore database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.api_core.exceptions import NotFound
from google.cloud.firestore_admin_v1.types import Database as Found

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, State
from leasehold.live.clients import ONE_TRY, GoogleClients

#: It takes some seconds; all that is in it needs it.
_PATIENCE_S: Final = 180.0
_NATIVE: Final = Found.DatabaseType.FIRESTORE_NATIVE
#: Each version of the last 7 days is kept, by the minute: https://cloud.google.com/firestore/docs/pitr
_RECOVERABLE: Final = Found.PointInTimeRecoveryEnablement.POINT_IN_TIME_RECOVERY_ENABLED
_ONLY_LAST_HOUR: Final = Found.PointInTimeRecoveryEnablement.POINT_IN_TIME_RECOVERY_DISABLED
_PROTECTED: Final = Found.DeleteProtectionState.DELETE_PROTECTION_ENABLED


@dataclass(frozen=True, slots=True)
class Database:
    """The database of the runs: Native mode, in its place, safe from deletions and bad writes."""

    clients: GoogleClients
    installation: Installation
    kind = "database"

    @property
    def name(self) -> str:
        """Its id."""
        return self.installation.database

    def look(self) -> Look:
        """Return whether it is there; one that the engine cannot use is not what the others need.

        Old projects have one of App Engine's, in Datastore mode, under the name `(default)`.
        """
        try:
            found = self.clients.firestore_admin.get_database(
                name=self.installation.database_name, **ONE_TRY
            )
        except NotFound:
            return MISSING
        if found.type_ != _NATIVE:
            why = f"it is of the type {found.type_.name}, which the engine cannot use"
            return Look(State.UNKNOWN, why=f"{why} (--database=NAME makes another one)")
        differences = tuple(self._differences(found))
        if not differences:
            return PRESENT
        return Look(State.DIFFERENT, differences, repair=self._repair(found))

    def create(self) -> None:
        """Create it, and wait until it is there."""
        creating = self.clients.firestore_admin.create_database(
            parent=f"projects/{self.installation.project}",
            database_id=self.installation.database,
            database=Found(
                type_=_NATIVE,
                location_id=self.installation.database_place,
                delete_protection_state=_PROTECTED,
                point_in_time_recovery_enablement=(
                    _RECOVERABLE if self.installation.backup_days else _ONLY_LAST_HOUR
                ),
            ),
            **ONE_TRY,
        )
        creating.result(timeout=_PATIENCE_S)  # type: ignore[no-untyped-call]

    def _differences(self, found: Found) -> Iterator[Difference]:
        if found.location_id != self.installation.database_place:
            yield Difference("location", found.location_id, self.installation.database_place)
        if found.delete_protection_state != _PROTECTED:
            yield Difference("delete protection", found="off", wanted="on")
        if self._lacks_recovery(found):
            yield Difference("point-in-time recovery", found="off", wanted="on")

    def _lacks_recovery(self, found: Found) -> bool:
        """Return whether it should be on and is not; one that is on is somebody's choice."""
        is_on = found.point_in_time_recovery_enablement == _RECOVERABLE
        return bool(self.installation.backup_days) and not is_on

    def _repair(self, found: Found) -> str:
        """Return what helps: the place of a database is for good."""
        flags = [] if found.delete_protection_state == _PROTECTED else ["--delete-protection"]
        flags += ["--enable-pitr"] if self._lacks_recovery(found) else []
        if not flags:
            return ""
        of = f"--database='{self.name}' --project={self.installation.project}"
        return f"gcloud firestore databases update {of} {' '.join(flags)}"
