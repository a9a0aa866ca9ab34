"""The daily backups of the database; what a restore does to runs: docs/restore.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from google.api_core.exceptions import NotFound
from google.cloud.firestore_admin_v1.types import BackupSchedule, DailyRecurrence

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.database import Database
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.live.clients import ONE_TRY, GoogleClients


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
