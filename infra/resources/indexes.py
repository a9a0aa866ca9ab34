"""The indexes of Firestore, as `infra/firestore.indexes.json` declares them.

Firestore builds an index in the background. Nobody waits for it here: until it is ready, the
queries that need it fail, and a look says that it is being built.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from google.api_core.exceptions import Aborted, AlreadyExists, NotFound, ResourceExhausted
from google.api_core.retry import Retry, if_exception_type
from google.cloud.firestore_admin_v1.types import Field, Index

from infra.installation import Installation
from infra.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.live.clients import GoogleClients

DECLARED: Final = Path(__file__).parents[1] / "firestore.indexes.json"
#: What Firestore answers to many changes of indexes at once.
_again: Final = Retry(
    predicate=if_exception_type(Aborted, ResourceExhausted),
    initial=0.5,
    maximum=15.0,
    timeout=120.0,
)

#: A field of an index as text: `createdAt DESCENDING`.
Part = str
#: An index of one field as text: `COLLECTION DESCENDING`.
Single = str


def indexes(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the indexes of several fields, then the fields whose own indexes are declared."""
    declared = json.loads(DECLARED.read_text())
    existing = Existing(clients, installation.database_name)
    for index in declared["indexes"]:
        yield CompositeIndex(existing, index)
    for override in declared["fieldOverrides"]:
        yield FieldIndexes(existing, override)


class Existing:
    """What Firestore has, each list asked for once.

    Args:
        clients: of the project.
        database: its full name.
    """

    def __init__(self, clients: GoogleClients, database: str) -> None:
        self._clients = clients
        self.database = database
        self._overrides: dict[str, Mapping[str, Field]] = {}

    @property
    def client(self) -> Any:
        """The client that looks and creates."""
        return self._clients.firestore_admin

    @cached_property
    def composites(self) -> Mapping[tuple[str, tuple[Part, ...]], Index]:
        """The indexes of several fields, by collection and fields."""
        try:  # `-` stands for every collection
            found = list(self.client.list_indexes(parent=self.group("-")))
        except NotFound:
            return {}  # there is no database yet
        return {(_group_of(index.name), _parts_of(index)): index for index in found}

    def overrides(self, group: str) -> Mapping[str, Field]:
        """Return the fields of a collection that have not the indexes of all others."""
        if group not in self._overrides:
            asked = {"parent": self.group(group), "filter": "indexConfig.usesAncestorConfig:false"}
            try:
                found = list(self.client.list_fields(request=asked))
            except NotFound:
                found = []
            self._overrides[group] = {_field_of(field.name): field for field in found}
        return self._overrides[group]

    def group(self, name: str) -> str:
        """Return the full name of a collection."""
        return f"{self.database}/collectionGroups/{name}"


@dataclass(frozen=True, slots=True)
class CompositeIndex:
    """One index of several fields, as the file declares it."""

    existing: Existing
    declared: Mapping[str, Any]
    kind: str = "index"

    @property
    def name(self) -> str:
        """Its collection and fields."""
        return f"{self._group} ({', '.join(self._parts)})"

    def look(self) -> Look:
        """Return whether it is there, is being built, or could not be built."""
        found = self.existing.composites.get((self._group, self._parts))
        if found is None:
            return MISSING
        match found.state:
            case Index.State.CREATING:
                return Look(State.WAITING, why="it is being built, which may take some minutes")
            case Index.State.NEEDS_REPAIR:
                difference = Difference("state", found="NEEDS_REPAIR", wanted="READY")
                return Look(State.DIFFERENT, (difference,), repair=self._removal(found.name))
            case _:
                return PRESENT

    def create(self) -> None:
        """Have it built; do not wait for that."""
        index = _index(self.declared["queryScope"], self.declared["fields"])
        asked = {"parent": self.existing.group(self._group), "index": index}
        with suppress(AlreadyExists):
            _again(self.existing.client.create_index)(request=asked)

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
        of = f"--project={project} --database='{database}'"
        return f"gcloud firestore indexes composite delete {index} {of}"


@dataclass(frozen=True, slots=True)
class FieldIndexes:
    """The indexes of one field alone: none, where each write would pay for what nobody asks."""

    existing: Existing
    declared: Mapping[str, Any]
    kind: str = "field"

    @property
    def name(self) -> str:
        """Its collection and path."""
        return f"{self.declared['collectionGroup']}.{self.declared['fieldPath']}"

    def look(self) -> Look:
        """Return whether it has the indexes that are declared; one of a person's is left alone."""
        group, path = self.declared["collectionGroup"], self.declared["fieldPath"]
        found = self.existing.overrides(group).get(path)
        if found is None:
            return MISSING
        indexes = found.index_config.indexes
        kept = sorted(_single(index) for index in indexes)
        if kept == self._wanted():
            is_built = all(index.state != Index.State.CREATING for index in indexes)
            return PRESENT if is_built else Look(State.WAITING, why="it is being built")
        difference = Difference("indexes", _listed(kept), wanted=_listed(self._wanted()))
        return Look(State.DIFFERENT, (difference,), repair=self._repair(found.name))

    def create(self) -> None:
        """Set its indexes; do not wait until Firestore has changed them."""
        group, path = self.declared["collectionGroup"], self.declared["fieldPath"]
        of_field = [
            _index(index["queryScope"], [{**index, "fieldPath": path}])
            for index in self.declared["indexes"]
        ]
        field = {
            "name": f"{self.existing.group(group)}/fields/{_quoted(path)}",
            "index_config": {"indexes": of_field},
        }
        asked = {"field": field, "update_mask": {"paths": ["index_config"]}}
        _again(self.existing.client.update_field)(request=asked)

    def _wanted(self) -> Sequence[Single]:
        return sorted(
            f"{index['queryScope']} {index.get('order') or index['arrayConfig']}"
            for index in self.declared["indexes"]
        )

    def _repair(self, name: str) -> str:
        _, project, _, database, _, group, _, _ = name.split("/")
        of = f"--collection-group={group} --project={project} --database='{database}'"
        update = f"gcloud firestore indexes fields update {self.declared['fieldPath']} {of}"
        wanted = [f"--index=order={each.partition(' ')[2].lower()}" for each in self._wanted()]
        return f"{update} {' '.join(wanted) or '--disable-indexes'}"


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


def _single(index: Index) -> Single:
    return f"{index.query_scope.name} {_how(index.fields[0])}"


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
