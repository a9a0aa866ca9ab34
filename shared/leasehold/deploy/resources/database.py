"""The Firestore database, and its daily backups; what a restore does to runs: docs/restore.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from google.api_core.exceptions import NotFound
from google.cloud.firestore_admin_v1.types import BackupSchedule, DailyRecurrence
from google.cloud.firestore_admin_v1.types import Database as Found

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients

#: It takes some seconds; all that is in it needs it.
_CREATION_TIMEOUT_S: Final = 180.0
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
        creating.result(timeout=_CREATION_TIMEOUT_S)  # type: ignore[no-untyped-call]

    def _differences(self, found: Found) -> Iterator[Difference]:
        if found.location_id != self.installation.database_place:
            yield Difference("location", found.location_id, self.installation.database_place)
        if found.delete_protection_state != _PROTECTED:
            yield Difference("delete protection", found="off", wanted="on")
        if self._lacks_recovery(found):
            yield Difference("point-in-time recovery", found="off", wanted="on")

    def _lacks_recovery(self, found: Found) -> bool:
        """Return whether it should be on and is not; one that is on was chosen by a person."""
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


def backups(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the schedule, if there are to be backups."""
    if installation.backup_days:
        yield DailyBackups(clients, installation)


@dataclass(frozen=True, slots=True)
class DailyBackups:
    """A backup each day. A database has one daily schedule at most, so none is created twice."""

    clients: GoogleClients
    installation: Installation
    kind = "backups"
    name = "daily"

    @property
    def needs(self) -> Sequence[Resource]:
        """The database."""
        return (Database(self.clients, self.installation),)

    def look(self) -> Look:
        """Return whether there is one a day, and how long it is kept."""
        of_database = {"parent": self.installation.database_name}
        try:
            found = self.clients.firestore_admin.list_backup_schedules(of_database, **ONE_TRY)
        except NotFound:
            return MISSING
        daily = [one for one in found.backup_schedules if "daily_recurrence" in one]
        if not daily:
            return MISSING
        kept: timedelta = daily[0].retention
        if kept == self._kept:
            return PRESENT
        difference = Difference("kept", f"{kept.days} days", wanted=f"{self._kept.days} days")
        schedule = daily[0].name.rpartition("/")[2]
        return Look(State.DIFFERENT, (difference,), repair=self._repair(schedule))

    def create(self) -> None:
        """Create it; the first backup is made within a day."""
        schedule = BackupSchedule(retention=self._kept, daily_recurrence=DailyRecurrence())
        asked = {"parent": self.installation.database_name, "backup_schedule": schedule}
        self.clients.firestore_admin.create_backup_schedule(asked, **ONE_TRY)

    @property
    def _kept(self) -> timedelta:
        return timedelta(days=self.installation.backup_days)

    def _repair(self, schedule: str) -> str:
        of = f"--database='{self.installation.database}' --project={self.installation.project}"
        update = f"gcloud firestore backups schedules update --backup-schedule={schedule}"
        return f"{update} --retention={self.installation.backup_days}d {of}"
