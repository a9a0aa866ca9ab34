"""Firestore's databases, indexes and fields, as FirestoreAdmin has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.cloud import firestore_admin_v1 as firestore
from google.cloud.firestore_admin_v1.services.firestore_admin.transports import (
    FirestoreAdminGrpcTransport,
)
from google.cloud.firestore_admin_v1.types import BackupSchedule, ListBackupSchedulesResponse

from tests.deploy.google_services.operations import begun
from tests.deploy.google_services.refusals import aborted, already_exists, invalid, not_found
from tests.deploy.google_services.service import Service, copy_of
from tests.deploy.google_services.world import World

#: Since when all that is built is being built.
BEGUN: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
_CALLS_OF_A_CHANGE: Final = 4
_OVERRIDDEN: Final = "indexConfig.usesAncestorConfig:false"


class FirestoreAdmin(Service):
    """Databases, indexes and fields by their full names.

    An index is being built until `build` says that it is ready.

    Attributes:
        at_once: how many changes of indexes and fields are under way at most; further ones are
            refused, and each call takes those under way a step further. A field is listed as
            changed only when its change is done. None: all are taken, and stay under way.
    """

    name = "google.firestore.admin.v1.FirestoreAdmin"
    transports = (FirestoreAdminGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.databases: dict[str, Any] = {}
        self.indexes: dict[str, firestore.Index] = {}
        self.fields: dict[str, firestore.Field] = {}
        self.schedules: dict[str, BackupSchedule] = {}
        self.at_once: int | None = None
        self._under_way: dict[str, int] = {}  # operation → how many calls it still takes

    def build(self) -> None:
        """Let all indexes and expiries be ready."""
        for index in self.indexes.values():
            index.state = firestore.Index.State.READY
        for field in self.fields.values():
            if "ttl_config" in field:
                field.ttl_config.state = firestore.Field.TtlConfig.State.ACTIVE

    def get_database(self, request: Any) -> Any:
        self._check(request.name)
        return copy_of(self.databases[request.name])

    def create_database(self, request: Any) -> Any:
        name = f"{request.parent}/databases/{request.database_id}"
        if name in self.databases:
            raise already_exists("Database")
        if not request.database.type_ or not request.database.location_id:
            raise invalid("A database needs a type and a location.")
        database = copy_of(request.database)
        database.name = name
        self.databases[name] = database
        return begun(self.world, name, database)

    def list_backup_schedules(self, request: Any) -> ListBackupSchedulesResponse:
        self._check(request.parent)
        return ListBackupSchedulesResponse(backup_schedules=self._schedules_of(request.parent))

    def _schedules_of(self, database: str) -> list[BackupSchedule]:
        of = f"{database}/backupSchedules/"
        return [one for name, one in self.schedules.items() if name.startswith(of)]

    def create_backup_schedule(self, request: Any) -> BackupSchedule:
        """Create it; a database has one daily and one weekly schedule at most."""
        self._check(request.parent)
        schedule = copy_of(request.backup_schedule)
        kind = "daily_recurrence" if "daily_recurrence" in schedule else "weekly_recurrence"
        if not schedule.retention or schedule.retention > timedelta(weeks=14):
            raise invalid("A retention of up to 14 weeks is needed.")
        if any(kind in one for one in self._schedules_of(request.parent)):
            raise already_exists("backup schedule")
        schedule.name = f"{request.parent}/backupSchedules/schedule-{len(self.schedules)}"
        self.schedules[schedule.name] = schedule
        return copy_of(schedule)

    def list_indexes(self, request: Any) -> firestore.ListIndexesResponse:
        database, _, group = request.parent.partition("/collectionGroups/")
        self._check(database)
        parent = f"{database}/collectionGroups/{'' if group == '-' else f'{group}/'}"
        found = [index for name, index in self.indexes.items() if name.startswith(parent)]
        return firestore.ListIndexesResponse(indexes=found)

    def create_index(self, request: Any) -> Any:
        """Begin to build it; the name of the document is a field of each index."""
        self._check(request.parent.partition("/collectionGroups/")[0])
        self._make_way()
        index = copy_of(request.index)
        last = index.fields[-1].order or firestore.Index.IndexField.Order.ASCENDING
        index.fields.append({"field_path": "__name__", "order": last})
        for other in self.indexes.values():
            is_of_group = other.name.startswith(f"{request.parent}/")
            if is_of_group and list(other.fields) == list(index.fields):
                raise already_exists("index")
        index.name = f"{request.parent}/indexes/CICA{len(self.indexes)}"
        index.state = firestore.Index.State.CREATING
        self.indexes[index.name] = index
        metadata = firestore.IndexOperationMetadata(start_time=BEGUN, index=index.name)
        return self._begun(request.parent, index, metadata)

    def get_field(self, request: Any) -> firestore.Field:
        """Return a field; an unchanged one is as all others are."""
        self._check(request.name.partition("/collectionGroups/")[0])
        inherited = firestore.Field(name=request.name)
        inherited.index_config.uses_ancestor_config = True
        return copy_of(self.fields.get(request.name, inherited))

    def list_fields(self, request: Any) -> firestore.ListFieldsResponse:
        self._check(request.parent.partition("/collectionGroups/")[0])
        if request.filter != _OVERRIDDEN:
            raise invalid("Only fields that are overridden can be listed.")
        parent = f"{request.parent}/fields/"
        of_group = [field for name, field in self.fields.items() if name.startswith(parent)]
        found = [field for field in of_group if not field.index_config.uses_ancestor_config]
        if self.at_once is not None:
            changing = {name.partition("/operations/")[0] for name in self._under_way}
            found = [field for field in found if field.name not in changing]
        return firestore.ListFieldsResponse(fields=found)

    def update_field(self, request: Any) -> Any:
        self._check(request.field.name.partition("/collectionGroups/")[0])
        self._make_way()
        field = self.get_field(request.field)
        for path in request.update_mask.paths:
            setattr(field, path, getattr(request.field, path))
        if "ttl_config" in request.update_mask.paths:
            field.ttl_config.state = firestore.Field.TtlConfig.State.CREATING
        for index in field.index_config.indexes:
            index.state = firestore.Index.State.READY
        self.fields[field.name] = field
        metadata = firestore.FieldOperationMetadata(start_time=BEGUN, field=field.name)
        return self._begun(field.name, field, metadata)

    def _make_way(self) -> None:
        """Refuse a change where enough are under way, in Firestore's words."""
        if self.at_once is None:
            return
        for name, left in list(self._under_way.items()):
            self._under_way[name] = left - 1
            if left <= 1:
                del self._under_way[name]
                self.world.operations[name].done = True
        if len(self._under_way) >= self.at_once:
            raise aborted("too much contention on these datastore entities. please try again.")

    def _begun(self, parent: str, result: Any, metadata: Any) -> Any:
        operation = begun(self.world, parent, result, done=False, metadata=metadata)
        self._under_way[operation.name] = _CALLS_OF_A_CHANGE
        return operation

    def _check(self, database: str) -> None:
        if database not in self.databases:
            raise not_found(f"Project or database {database}")
