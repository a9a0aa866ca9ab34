"""The indexes of Firestore: a query that none serves is an error in production alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import leasehold.deploy
from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.domain.moment import stamp
from leasehold.live.clients import ONE_TRY
from leasehold.live.firestore_builds import begun_at

if TYPE_CHECKING:
    from google.cloud.firestore_admin_v1 import Field, Index

DECLARED: Final = Path(leasehold.deploy.__file__).with_name("firestore.indexes.json")

#: A collection, and its fields with their order: `createdAt DESCENDING`.
_Index = tuple[str, tuple[str, ...]]
_SHOWN: Final = 3


def indexes(deployment: Deployment) -> Iterator[Finding]:
    """Yield which indexes are missing, being built or broken, and which fields cost too much."""
    address = deployment.setting("LEASEHOLD_STORE")
    if not address.startswith("firestore://"):
        return
    project, database = address.removeprefix("firestore://").split("/")
    name = f"projects/{project}/databases/{database}"
    declared = json.loads(DECLARED.read_text(encoding="utf-8"))
    found = _found(deployment, name)
    if found is None:
        message = f"Database {database} does not exist in project {project}: no run can be kept."
        yield Finding("database_missing", message, deployment.apply)
        return
    wanted = [_declared(index) for index in declared["indexes"]]
    missing = [index for index in wanted if index not in found]
    if missing:
        message = f"{_counted(missing, 'missing')}: queries that need one fail."
        yield Finding("index_missing", message, deployment.apply)
    of = f"--project={shlex.quote(project)} --database={shlex.quote(database)}"
    building = [index for index in wanted if _is(found.get(index), "CREATING")]
    if building:
        begun = begun_at(deployment.clients.firestore_admin, name)
        since = [begun[found[index].name] for index in building if found[index].name in begun]
        for_how_long = f", since {stamp(min(since))}" if since else ""
        message = (
            f"{_counted(building, 'being built')}{for_how_long}: queries that need one fail until "
            "then."
        )
        yield Finding("index_building", message, f"gcloud firestore operations list {of}")
    broken = [index for index in wanted if _is(found.get(index), "NEEDS_REPAIR")]
    if broken:
        message = f"{_counted(broken, 'broken')}: delete each, and apply."
        ids = (shlex.quote(found[index].name.rpartition("/")[2]) for index in broken)
        deletions = (f"gcloud firestore indexes composite delete {one} {of}" for one in ids)
        yield Finding("index_broken", message, " && ".join([*deletions, deployment.apply]))
    yield from _fields(deployment, name, declared["fieldOverrides"])
    yield from _expiry(deployment, name, of)


def _is(index: Index | None, state: str) -> bool:
    return index is not None and index.state.name == state


def _found(deployment: Deployment, database: str) -> Mapping[_Index, Index] | None:
    """Return each index of several fields; None: there is no such database."""
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - with the client

    client = deployment.clients.firestore_admin
    parent = f"{database}/collectionGroups/-"
    try:
        client.get_database({"name": database}, **ONE_TRY)
        return {
            (one.name.split("/")[5], _parts(one)): one
            for one in client.list_indexes({"parent": parent}, **ONE_TRY)
        }
    except NotFound:
        return None


def _fields(
    deployment: Deployment, database: str, overrides: list[dict[str, Any]]
) -> Iterator[Finding]:
    """Yield a finding for each collection whose fields are not indexed as they should be."""
    client = deployment.clients.firestore_admin
    groups = dict.fromkeys(override["collectionGroup"] for override in overrides)
    for group in groups:
        asked = {
            "parent": f"{database}/collectionGroups/{group}",
            "filter": "indexConfig.usesAncestorConfig:false",
        }
        found = {
            one.name.rpartition("/")[2].strip("`"): one
            for one in client.list_fields(asked, **ONE_TRY)
        }
        wanted = [one["fieldPath"] for one in overrides if one["collectionGroup"] == group]
        missing = [path for path in wanted if path not in found]
        if missing:
            message = (
                f"{len(missing)} fields of {group} are indexed as Firestore does it unasked "
                f"({_some(missing)}): each write costs more, and a time that grows caps the writes."
            )
            yield Finding("exemption_missing", message, deployment.apply)
        broken = [path for path in wanted if path in found and _has_broken(found[path])]
        if broken:
            message = f"Fields of {group} could not be indexed ({_some(broken)})."
            yield Finding("index_broken", message, deployment.drift)


def _has_broken(field: Field) -> bool:
    return any(_is(index, "NEEDS_REPAIR") for index in field.index_config.indexes)


def _expiry(deployment: Deployment, database: str, of: str) -> Iterator[Finding]:
    """Yield a finding where entries of the ledger should expire, and do not."""
    name = f"{database}/collectionGroups/ledger/fields/endedAt"
    field = deployment.clients.firestore_admin.get_field({"name": name}, **ONE_TRY)
    if field.ttl_config.state.name == "NEEDS_REPAIR":
        message = "Entries of the ledger do not expire: Firestore could not set that for all."
        disable = "gcloud firestore fields ttls update endedAt --collection-group=ledger"
        repair = f"{disable} {of} --disable-ttl && {deployment.apply}"
        yield Finding("expiry_broken", message, repair)


def _declared(index: Mapping[str, Any]) -> _Index:
    fields = index["fields"]
    parts = (f"{one['fieldPath']} {one.get('order') or one['arrayConfig']}" for one in fields)
    return index["collectionGroup"], tuple(parts)


def _parts(index: Index) -> tuple[str, ...]:
    """Return the fields of an index; Firestore adds the name of the document to what was asked."""
    return tuple(
        f"{one.field_path} {one.array_config.name if one.array_config else one.order.name}"
        for one in index.fields
        if one.field_path != "__name__"
    )


def _counted(indexes: list[_Index], what: str) -> str:
    names = [f"{group} ({', '.join(parts)})" for group, parts in indexes]
    verb = "is" if len(names) == 1 else "are"
    return f"Of the indexes of Firestore {len(names)} {verb} {what} ({_some(names)})"


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
