"""The indexes of Firestore, as `firestore.indexes.json` declares them.

Firestore builds an index in the background. Nothing here waits for it: until it is ready, the
queries that need it fail, and a look says that it is being built. While it builds some it refuses
others (ABORTED, too much contention); that is waited for.
https://github.com/firebase/firebase-tools/issues/1119
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from google.api_core.exceptions import Aborted, AlreadyExists, NotFound, ResourceExhausted
from google.cloud.firestore_admin_v1.types import Field, Index

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.database import Database
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    BusyError,
    Difference,
    Look,
    NotYetError,
    Resource,
    State,
)
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients

DECLARED: Final = Path(__file__).parents[1] / "firestore.indexes.json"

_BUILDING: Final = "Firestore, which is building it: some minutes"
#: Why a change of an index or a field is refused.
BUSY: Final = "Firestore, which changes few indexes at once"
_BROKEN: Final = Difference("state", found="NEEDS_REPAIR", wanted="READY")

#: A field of an index as text: `createdAt DESCENDING`.
Part = str
#: An index of one field as text: `COLLECTION DESCENDING`.
Single = str


def indexes(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the indexes of several fields, then those of single fields, by collection."""
    declared = json.loads(DECLARED.read_text())
    existing = Existing(clients, installation)
    for index in declared["indexes"]:
        yield CompositeIndex(existing, index)
    groups = dict.fromkeys(override["collectionGroup"] for override in declared["fieldOverrides"])
    for group in groups:
        fields = [each for each in declared["fieldOverrides"] if each["collectionGroup"] == group]
        yield FieldIndexes(existing, group, fields)


class Existing:
    """The indexes of Firestore, each list asked for once.

    Args:
        clients: of the project.
        installation: whose database it is.
    """

    def __init__(self, clients: GoogleClients, installation: Installation) -> None:
        self._clients = clients
        self.database = Database(clients, installation)
        self._database_name = installation.database_name

    @property
    def client(self) -> Any:
        """The client that looks and creates."""
        return self._clients.firestore_admin

    @cached_property
    def composites(self) -> Mapping[tuple[str, str, tuple[Part, ...]], Index]:
        """The indexes of several fields, by collection, scope and fields."""
        try:  # `-` stands for every collection
            found = list(self.client.list_indexes(parent=self.group("-"), **ONE_TRY))
        except NotFound:
            return {}  # there is no database yet
        return {
            (_group_of(index.name), index.query_scope.name, _parts_of(index)): index
            for index in found
        }

    @cached_property
    def begun(self) -> Mapping[str, datetime]:
        """Since when Firestore builds an index or changes a field, by their full names."""
        return begun_at(self.client, self._database_name)

    def forget_begun(self) -> None:
        """Have it asked for anew what is being built: more may have begun."""
        self.__dict__.pop("begun", None)

    def overrides(self, group: str) -> Mapping[str, Field]:
        """Return the fields of a collection that have not the indexes of all others."""
        asked = {"parent": self.group(group), "filter": "indexConfig.usesAncestorConfig:false"}
        try:
            found = list(self.client.list_fields(request=asked, **ONE_TRY))
        except NotFound:
            return {}  # there is no database yet
        return {_field_of(field.name): field for field in found}

    def change(self, method: str, asked: Mapping[str, Any]) -> None:
        """Have Firestore change what it has; do not wait until it is done.

        Raises:
            BusyError: it takes none before others are done.
            NotYetError: the quota of such calls is used up for this minute.
        """
        try:
            getattr(self.client, method)(request=asked, **ONE_TRY)
        except Aborted as error:
            raise BusyError(BUSY) from error
        except ResourceExhausted as error:
            why = "Firestore, which takes so many changes of indexes a minute"
            raise NotYetError(f"{why}: apply again in a minute") from error

    def group(self, name: str) -> str:
        """Return the full name of a collection."""
        return f"{self._database_name}/collectionGroups/{name}"


@dataclass(frozen=True, slots=True)
class CompositeIndex:
    """One index of several fields, as the file declares it."""

    existing: Existing
    declared: Mapping[str, Any]
    kind = "index"

    @property
    def name(self) -> str:
        """Its collection and fields."""
        return f"{self._group} ({', '.join(self._parts)})"

    @property
    def needs(self) -> Sequence[Resource]:
        """The database."""
        return (self.existing.database,)

    def look(self) -> Look:
        """Return whether it is there, is being built, or could not be built."""
        key = (self._group, self.declared["queryScope"], self._parts)
        found = self.existing.composites.get(key)
        if found is None:
            return MISSING
        match found.state:
            case Index.State.CREATING:
                since = self.existing.begun.get(found.name)
                return Look(State.WAITING, why=_BUILDING, since=since)
            case Index.State.NEEDS_REPAIR:
                return Look(State.DIFFERENT, (_BROKEN,), repair=self._removal(found.name))
            case _:
                return PRESENT

    def create(self) -> None:
        """Have it built; do not wait for that."""
        index = _index(self.declared["queryScope"], self.declared["fields"])
        asked = {"parent": self.existing.group(self._group), "index": index}
        with suppress(AlreadyExists):
            self.existing.change("create_index", asked)

    @property
    def _group(self) -> str:
        return str(self.declared["collectionGroup"])

    @property
    def _parts(self) -> tuple[Part, ...]:
        fields = self.declared["fields"]
        return tuple(
            f"{field['fieldPath']} {field.get('order') or field['arrayConfig']}" for field in fields
        )

    def _removal(self, name: str) -> str:
        """Return how it is taken away, so that the next `apply` builds it anew."""
        _, project, _, database, *_, index = name.split("/")
        of = f"--project={shlex.quote(project)} --database={shlex.quote(database)}"
        return f"gcloud firestore indexes composite delete {shlex.quote(index)} {of}"


@dataclass(frozen=True, slots=True)
class FieldIndexes:
    """The indexes of single fields: mostly none, as each write pays for each index."""

    existing: Existing
    group: str
    declared: Sequence[Mapping[str, Any]]
    kind = "field indexes"

    @property
    def name(self) -> str:
        """Their collection."""
        return self.group

    @property
    def needs(self) -> Sequence[Resource]:
        """The database."""
        return (self.existing.database,)

    def look(self) -> Look:
        """Return whether all have what is declared; what a person has set is left alone."""
        found = self.existing.overrides(self.group)
        missing = [field for field in self.declared if field["fieldPath"] not in found]
        begun = self.existing.begun if missing else {}
        changing = [name for name in begun if self._has(name)]
        of_changing = {_field_of(name) for name in changing}
        missing = [field for field in missing if field["fieldPath"] not in of_changing]
        changed = [
            (field, kept)
            for field in self.declared
            if (kept := found.get(field["fieldPath"])) and _indexes_of(kept) != _wanted(field)
        ]
        differences = tuple(
            Difference(field["fieldPath"], _listed(_indexes_of(kept)), _listed(_wanted(field)))
            for field, kept in changed
        )
        repair = "; ".join(self._repair(field) for field, _ in changed)
        if missing:
            why = f"{len(missing)} of {len(self.declared)} fields"
            return Look(State.MISSING, differences, why=why, repair=repair)
        if differences:
            return Look(State.DIFFERENT, differences, repair=repair)
        return self._look_at_builds([*changing, *map(_name_if_building, found.values())])

    def _look_at_builds(self, names: Iterable[str]) -> Look:
        """Return whether Firestore still changes a field, of these or none."""
        building = [*filter(None, names)]
        if not building:
            return PRESENT
        since = min(filter(None, map(self.existing.begun.get, building)), default=None)
        return Look(State.WAITING, why=_BUILDING, since=since)

    def create(self) -> None:
        """Set those that are not set; do not wait until Firestore has changed them.

        A field that is being changed may not be listed yet, and is not asked for again.
        """
        found = self.existing.overrides(self.group)
        self.existing.forget_begun()
        changing = {_field_of(name) for name in self.existing.begun if self._has(name)}
        progressed = False
        for field in self.declared:
            if field["fieldPath"] in found or field["fieldPath"] in changing:
                continue
            try:
                self._set(field)
            except BusyError as busy:
                raise BusyError(str(busy), progressed=progressed) from busy
            progressed = True

    def _has(self, name: str) -> bool:
        return name.startswith(f"{self.existing.group(self.group)}/fields/")

    def _set(self, declared: Mapping[str, Any]) -> None:
        path = declared["fieldPath"]
        of_field = [
            _index(index["queryScope"], [{**index, "fieldPath": path}])
            for index in declared["indexes"]
        ]
        name = f"{self.existing.group(self.group)}/fields/{_quoted(path)}"
        field = {"name": name, "index_config": {"indexes": of_field}}
        asked = {"field": field, "update_mask": {"paths": ["index_config"]}}
        self.existing.change("update_field", asked)

    def _repair(self, declared: Mapping[str, Any]) -> str:
        installation = self.existing.database.installation
        of = f"--project={installation.project} --database='{installation.database}'"
        wanted = [f"--index=order={each.partition(' ')[2].lower()}" for each in _wanted(declared)]
        indexes = " ".join(wanted) or "--disable-indexes"
        update = f"gcloud firestore indexes fields update {declared['fieldPath']}"
        return f"{update} --collection-group={self.group} {of} {indexes}"


def _index(scope: str, fields: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
    """Return an index, as the file has it, as Firestore's API has it."""
    names = {"fieldPath": "field_path", "order": "order", "arrayConfig": "array_config"}
    of_api = [
        {names[key]: value for key, value in field.items() if key in names} for field in fields
    ]
    return {"query_scope": scope, "fields": of_api}


def _parts_of(index: Index) -> tuple[Part, ...]:
    """Return the fields of an index; Firestore adds the name of the document to what was asked."""
    fields = [field for field in index.fields if field.field_path != "__name__"]
    return tuple(f"{field.field_path} {_how(field)}" for field in fields)


def _indexes_of(field: Field) -> Sequence[Single]:
    """Return the indexes that a field has, and which of them could not be built."""
    return sorted(
        f"{index.query_scope.name} {_how(index.fields[0])}"
        f"{' NEEDS_REPAIR' if index.state is Index.State.NEEDS_REPAIR else ''}"
        for index in field.index_config.indexes
    )


def _name_if_building(field: Field) -> str:
    building = [one for one in field.index_config.indexes if one.state is Index.State.CREATING]
    return field.name if building else ""


def _wanted(declared: Mapping[str, Any]) -> Sequence[Single]:
    """Return the indexes that the file wants a field to have."""
    return sorted(
        f"{index['queryScope']} {index.get('order') or index['arrayConfig']}"
        for index in declared["indexes"]
    )


def _how(field: Index.IndexField) -> str:
    is_array = field.array_config == Index.IndexField.ArrayConfig.CONTAINS
    return "CONTAINS" if is_array else str(field.order.name)


def _listed(indexes: Sequence[Single]) -> str:
    return ", ".join(indexes) or "none"


def _group_of(name: str) -> str:
    return name.split("/")[5]


def _field_of(name: str) -> str:
    return name.rpartition("/")[2].strip("`")


def _quoted(path: str) -> str:
    """Return a path as the API has it: what is not a plain name stands between backticks."""
    return path if path.isidentifier() and not path.startswith("__") else f"`{path}`"


# How long the ledger is kept: Firestore deletes an entry some time after its run has ended.
#
# Runs themselves are never left to Firestore, which would delete the one document and leave the
# trace, the deliveries and the files of the run: the sweep purges those
# (LEASEHOLD_RETENTION_DAYS).


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
        """Set it; Firestore then goes through all entries in the background."""
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


# The background operations of Firestore, and their start times where known.


def begun_at(client: Any, database: str) -> Mapping[str, datetime]:
    """Return since when each index is built and each field is changed, by their full names.

    It only adds to what is known otherwise: what cannot be asked is not there.

    Args:
        client: `GoogleClients.firestore_admin`.
        database: the full name of the database.
    """
    from google.cloud.firestore_admin_v1 import (  # noqa: PLC0415 - with the client
        FieldOperationMetadata,
        IndexOperationMetadata,
    )

    subjects = {"IndexOperationMetadata": "index", "FieldOperationMetadata": "field"}
    kinds = {kind.__name__: kind for kind in (IndexOperationMetadata, FieldOperationMetadata)}
    found: dict[str, datetime] = {}
    try:
        for operation in client.list_operations({"name": database}, **ONE_TRY).operations:
            kind = kinds.get(operation.metadata.type_url.rpartition(".")[2])
            if operation.done or kind is None:
                continue
            metadata = kind.deserialize(operation.metadata.value)
            if metadata.start_time is not None:
                found[getattr(metadata, subjects[kind.__name__])] = metadata.start_time
    except Exception:  # noqa: BLE001 - it may be refused to who may see the indexes
        return found
    return found
