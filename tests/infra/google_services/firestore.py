"""Firestore's databases, indexes and fields, as FirestoreAdmin has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from google.cloud import firestore_admin_v1 as firestore
from google.cloud.firestore_admin_v1.services.firestore_admin.transports import (
    FirestoreAdminGrpcTransport,
)

from tests.infra.google_services.operations import begun
from tests.infra.google_services.refusals import already_exists, invalid, not_found
from tests.infra.google_services.service import Service, copy_of
from tests.infra.google_services.world import World

#: Since when all that is built is being built.
BEGUN: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
_OVERRIDDEN: Final = "indexConfig.usesAncestorConfig:false"


class FirestoreAdmin(Service):
    """Databases, indexes and fields by their full names.

    An index is being built until `build` says that it is ready.
    """

    name = "google.firestore.admin.v1.FirestoreAdmin"
    transports = (FirestoreAdminGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.databases: dict[str, firestore.Database] = {}
        self.indexes: dict[str, firestore.Index] = {}
        self.fields: dict[str, firestore.Field] = {}

    def build(self) -> None:
        """Let all indexes and expiries be ready."""
        for index in self.indexes.values():
            index.state = firestore.Index.State.READY
        for field in self.fields.values():
            if "ttl_config" in field:
                field.ttl_config.state = firestore.Field.TtlConfig.State.ACTIVE

    def get_database(self, request: Any) -> firestore.Database:
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

    def list_indexes(self, request: Any) -> firestore.ListIndexesResponse:
        database, _, group = request.parent.partition("/collectionGroups/")
        self._check(database)
        parent = f"{database}/collectionGroups/{'' if group == '-' else f'{group}/'}"
        found = [index for name, index in self.indexes.items() if name.startswith(parent)]
        return firestore.ListIndexesResponse(indexes=found)

    def create_index(self, request: Any) -> Any:
        """Begin to build it; the name of the document is a field of each index."""
        self._check(request.parent.partition("/collectionGroups/")[0])
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
        return begun(self.world, request.parent, index, done=False, metadata=metadata)

    def get_field(self, request: Any) -> firestore.Field:
        """Return a field; one that nobody has changed is as all others are."""
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
        return firestore.ListFieldsResponse(fields=found)

    def update_field(self, request: Any) -> Any:
        self._check(request.field.name.partition("/collectionGroups/")[0])
        field = self.get_field(request.field)
        for path in request.update_mask.paths:
            setattr(field, path, getattr(request.field, path))
        if "ttl_config" in request.update_mask.paths:
            field.ttl_config.state = firestore.Field.TtlConfig.State.CREATING
        for index in field.index_config.indexes:
            index.state = firestore.Index.State.READY
        self.fields[field.name] = field
        metadata = firestore.FieldOperationMetadata(start_time=BEGUN, field=field.name)
        return begun(self.world, field.name, field, done=False, metadata=metadata)

    def _check(self, database: str) -> None:
        if database not in self.databases:
            raise not_found(f"Project or database {database}")
