"""The database, its indexes and the expiry of the ledger."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from google.cloud.firestore_admin_v1.types import Database as Kept
from google.cloud.firestore_admin_v1.types import Field, Index

from leasehold.adapters.firestore.values import encoded
from leasehold.cli.deploy.provision import details_of
from leasehold.deploy.resources.database import Database, backups
from leasehold.deploy.resources.indexes import DECLARED, CompositeIndex, Expiry, expiries, indexes
from leasehold.deploy.resources.resource import Difference, State
from leasehold.deploy.steps import Action, Patience, apply
from leasehold.domain.ledger import LedgerEntry
from tests.deploy.gcloud_commands import need_gcloud, problems_of
from tests.deploy.google_services.firestore import BEGUN, FirestoreAdmin
from tests.deploy.google_services.refusals import (
    aborted,
    already_exists,
    exhausted,
    permission_denied,
    unavailable,
)
from tests.deploy.google_world import INSTALLATION, GoogleWorld, applied, looked_at

DATABASE = INSTALLATION.database_name


@pytest.fixture
def firestore(world: GoogleWorld) -> Any:
    """Firestore, with our database in it."""
    applied(Database(world.clients, INSTALLATION))
    world.forget()
    return world.service(FirestoreAdmin)


def all_indexes(world: GoogleWorld) -> list[Any]:
    return list(indexes(world.clients, INSTALLATION))


def some_indexes(world: GoogleWorld) -> list[Any]:
    """Return one of each kind: an index, and the fields of the runs, of which some sort."""
    first, *others = all_indexes(world)
    return [first, next(one for one in others if one.name == "runs")]


def test_the_database_is_native_regional_and_protected(world: GoogleWorld) -> None:
    (step,) = applied(Database(world.clients, INSTALLATION))

    kept = world.service(FirestoreAdmin).databases[DATABASE]
    assert step.action is Action.CREATED
    assert kept.type_ == Kept.DatabaseType.FIRESTORE_NATIVE
    assert kept.location_id == "europe-west1"
    assert kept.delete_protection_state == Kept.DeleteProtectionState.DELETE_PROTECTION_ENABLED
    assert kept.point_in_time_recovery_enablement.name == "POINT_IN_TIME_RECOVERY_ENABLED"
    assert looked_at(Database(world.clients, INSTALLATION)).look.state is State.PRESENT


def test_a_database_elsewhere_is_left_alone(world: GoogleWorld, firestore: Any) -> None:
    found = Kept(name=DATABASE, type_=Kept.DatabaseType.FIRESTORE_NATIVE, location_id="eur3")
    firestore.databases[DATABASE] = found

    (step,) = applied(Database(world.clients, INSTALLATION))

    assert step.look.state is State.DIFFERENT
    assert [each.field for each in step.look.differences] == [
        "location",
        "delete protection",
        "point-in-time recovery",
    ]
    assert step.repair == (
        "gcloud firestore databases update --database='(default)' --project=shop-prod "
        "--delete-protection --enable-pitr"
    )
    assert world.writes() == []


def test_the_location_of_a_database_is_a_setting_that_one_which_exists_is_held_against(
    world: GoogleWorld,
) -> None:
    in_europe = replace(INSTALLATION, database_location="eur3")

    applied(Database(world.clients, in_europe))
    same, other = (looked_at(Database(world.clients, it)) for it in (in_europe, INSTALLATION))

    assert world.service(FirestoreAdmin).databases[DATABASE].location_id == "eur3"
    assert same.look.state is State.PRESENT
    assert other.look.differences == (Difference("location", "eur3", wanted="europe-west1"),)


def test_the_database_is_backed_up_each_day_once(world: GoogleWorld, firestore: Any) -> None:
    (created,) = applied(*backups(world.clients, INSTALLATION))
    world.forget()
    (again,) = applied(*backups(world.clients, INSTALLATION))

    (schedule,) = firestore.schedules.values()
    assert (created.action, again.look.state) == (Action.CREATED, State.PRESENT)
    assert "daily_recurrence" in schedule
    assert schedule.retention == timedelta(days=14)
    assert world.writes() == []


def test_backups_that_a_person_keeps_longer_are_left_alone(
    world: GoogleWorld, firestore: Any
) -> None:
    applied(*backups(world.clients, replace(INSTALLATION, backup_days=98)))
    world.forget()

    (step,) = applied(*backups(world.clients, INSTALLATION))

    assert step.look.differences == (Difference("kept", "98 days", wanted="14 days"),)
    need_gcloud()
    assert step.repair.startswith("gcloud firestore backups schedules update ")
    assert [*problems_of(shlex.split(step.repair)[1:])] == []
    assert world.writes() == []


def test_who_wants_no_backups_has_none_and_no_earlier_versions(world: GoogleWorld) -> None:
    without = replace(INSTALLATION, backup_days=0)

    (step,) = applied(Database(world.clients, without))
    kept = world.service(FirestoreAdmin).databases[DATABASE]

    assert [*backups(world.clients, without)] == []
    assert kept.point_in_time_recovery_enablement.name == "POINT_IN_TIME_RECOVERY_DISABLED"
    assert looked_at(step.resource).look.state is State.PRESENT


def test_what_needs_a_database_does_not_take_one_in_datastore_mode(
    world: GoogleWorld, firestore: Any
) -> None:
    """As `(default)` is where App Engine was used."""
    found = Kept(name=DATABASE, type_=Kept.DatabaseType.DATASTORE_MODE, location_id="europe-west1")
    firestore.databases[DATABASE] = found

    step, *others = applied(Database(world.clients, INSTALLATION), *all_indexes(world))

    assert step.look.state is State.UNKNOWN
    assert step.look.why == (
        "it is of the type DATASTORE_MODE, which the engine cannot use "
        "(--database=NAME makes another one)"
    )
    assert {other.look.state for other in others} == {State.WAITING}
    assert world.writes() == []


def test_indexes_wait_for_a_database_that_could_not_be_created(world: GoogleWorld) -> None:
    world.server.refuse("FirestoreAdmin/CreateDatabase", already_exists("something else"))

    steps = applied(Database(world.clients, INSTALLATION), *all_indexes(world))

    assert {step.look.state for step in steps[1:]} == {State.WAITING}
    assert steps[1].look.why == "database (default), which is not in order"


def test_all_that_is_declared_is_created_and_not_twice(world: GoogleWorld, firestore: Any) -> None:
    declared = json.loads(DECLARED.read_text())

    first = applied(*all_indexes(world))
    while_building = [looked_at(one).look.state for one in all_indexes(world)]
    firestore.build()
    world.forget()
    again = applied(*all_indexes(world))

    composites = len(declared["indexes"])
    assert {step.action for step in first} == {Action.CREATED}
    assert len(firestore.indexes) == composites
    assert len(firestore.fields) == len(declared["fieldOverrides"])
    assert while_building == [State.WAITING] * composites + [State.PRESENT] * 6
    assert {step.look.state for step in again} == {State.PRESENT}
    assert world.writes() == []


def test_an_exempt_field_has_no_index_and_one_that_sorts_has_one(
    world: GoogleWorld, firestore: Any
) -> None:
    applied(some_indexes(world)[1])

    runs = f"{DATABASE}/collectionGroups/runs/fields"
    assert list(firestore.fields[f"{runs}/alarmAt"].index_config.indexes) == []
    (index,) = firestore.fields[f"{runs}/createdAt"].index_config.indexes
    assert index.fields[0].order == Index.IndexField.Order.DESCENDING
    assert index.query_scope == Index.QueryScope.COLLECTION


def test_a_field_that_a_person_set_otherwise_is_left_alone(
    world: GoogleWorld, firestore: Any
) -> None:
    name = f"{DATABASE}/collectionGroups/runs/fields/paused"
    index = Index(query_scope="COLLECTION", fields=[{"field_path": "paused", "order": "ASCENDING"}])
    firestore.fields[name] = Field(name=name, index_config={"indexes": [index]})
    fields = next(one for one in all_indexes(world) if one.name == "runs")

    (created,) = applied(fields)
    later = looked_at(fields)

    assert created.action is Action.CREATED
    assert list(firestore.fields[name].index_config.indexes) == [index]
    assert later.look.state is State.DIFFERENT
    assert later.look.differences == (
        Difference("paused", found="COLLECTION ASCENDING", wanted="none"),
    )
    assert later.repair == (
        "gcloud firestore indexes fields update paused --collection-group=runs "
        "--project=shop-prod --database='(default)' --disable-indexes"
    )


def test_an_index_that_could_not_be_built_is_told(world: GoogleWorld, firestore: Any) -> None:
    applied(all_indexes(world)[0])
    broken = next(iter(firestore.indexes.values()))
    broken.state = Index.State.NEEDS_REPAIR

    step = looked_at(all_indexes(world)[0])

    assert step.look.state is State.DIFFERENT
    assert step.repair == (
        "gcloud firestore indexes composite delete CICA0 --project=shop-prod --database='(default)'"
    )


def test_what_is_built_says_since_when(world: GoogleWorld, firestore: Any) -> None:
    applied(*some_indexes(world), *expiries(world.clients, INSTALLATION))
    name = f"{DATABASE}/collectionGroups/runs/fields/createdAt"
    firestore.fields[name].index_config.indexes[0].state = Index.State.CREATING

    index = looked_at(all_indexes(world)[0])
    fields = looked_at(next(one for one in all_indexes(world) if one.name == "runs"))
    (expiry,) = map(looked_at, expiries(world.clients, INSTALLATION))

    assert {step.look.state for step in (index, fields, expiry)} == {State.WAITING}
    assert {step.look.since for step in (index, fields, expiry)} == {BEGUN}
    assert [*details_of(index)] == [
        "for Firestore, which is building it: some minutes, since 2026-03-01T12:00:00Z"
    ]


def test_who_may_not_see_operations_is_told_what_waits_all_the_same(
    world: GoogleWorld, firestore: Any
) -> None:
    applied(all_indexes(world)[0])
    world.server.refuse("ListOperations", permission_denied("datastore.operations.list"))

    step = looked_at(all_indexes(world)[0])

    assert (step.look.state, step.look.since) == (State.WAITING, None)


def test_a_field_whose_index_could_not_be_built_is_told(world: GoogleWorld, firestore: Any) -> None:
    applied(some_indexes(world)[1])
    name = f"{DATABASE}/collectionGroups/runs/fields/createdAt"
    firestore.fields[name].index_config.indexes[0].state = Index.State.NEEDS_REPAIR

    step = looked_at(next(one for one in all_indexes(world) if one.name == "runs"))

    assert step.look.differences == (
        Difference("createdAt", "COLLECTION DESCENDING NEEDS_REPAIR", "COLLECTION DESCENDING"),
    )
    assert step.repair.startswith("gcloud firestore indexes fields update createdAt ")


def test_an_expiry_that_could_not_be_set_is_told(world: GoogleWorld, firestore: Any) -> None:
    applied(*expiries(world.clients, INSTALLATION))
    (field,) = firestore.fields.values()
    field.ttl_config.state = Field.TtlConfig.State.NEEDS_REPAIR

    (step,) = map(looked_at, expiries(world.clients, INSTALLATION))

    assert step.look.differences == (Difference("state", "NEEDS_REPAIR", wanted="ACTIVE"),)
    assert step.repair.endswith("--disable-ttl")


def test_an_index_of_another_scope_serves_no_query_of_ours(
    world: GoogleWorld, firestore: Any
) -> None:
    applied(all_indexes(world)[0])
    (index,) = firestore.indexes.values()
    index.query_scope = Index.QueryScope.COLLECTION_GROUP

    assert looked_at(all_indexes(world)[0]).look.state is State.MISSING


def test_an_answer_that_is_lost_creates_no_index_twice(world: GoogleWorld, firestore: Any) -> None:
    index = next(one for one in all_indexes(world) if isinstance(one, CompositeIndex))
    world.server.lose_answer("FirestoreAdmin/CreateIndex")

    (step,) = applied(index)

    assert step.action is Action.CREATED
    assert len(firestore.indexes) == 1


def test_fields_go_on_where_an_outage_cut_them_off(world: GoogleWorld, firestore: Any) -> None:
    fields = next(one for one in all_indexes(world) if one.name == "trace")
    firestore_fields = len(fields.declared)
    world.server.refuse("FirestoreAdmin/UpdateField", unavailable(), times=1)

    (step,) = applied(fields)

    assert step.action is Action.CREATED
    assert len(firestore.fields) == firestore_fields


def test_all_get_through_where_firestore_changes_two_at_once(
    world: GoogleWorld, firestore: Any
) -> None:
    """It refuses the others with ABORTED; a field is listed only once it is changed."""
    firestore.at_once = 2
    told: list[str] = []
    patience = Patience(sleep=lambda _: None, tell=told.append)
    everything = [*some_indexes(world), *expiries(world.clients, INSTALLATION)]

    steps = list(apply(everything, "shop-prod", patience=patience))
    asked = [request.field.name for request in world.server.called("UpdateField")]
    world.forget()
    again = applied(*some_indexes(world))

    assert {step.action for step in steps} == {Action.CREATED}
    assert len(firestore.indexes) == 1
    assert len(firestore.fields) == len(everything[1].declared) + 1
    assert len(asked) > len(firestore.fields)  # some were refused, and asked for again
    assert {step.action for step in again} == {Action.NONE}
    assert world.writes() == []
    (line,) = told
    assert line.startswith("waiting for Firestore, which changes few indexes at once; what is ")


def test_who_waits_for_a_quarter_of_an_hour_in_vain_leaves_the_rest_for_the_next_apply(
    world: GoogleWorld, firestore: Any
) -> None:
    world.server.refuse("FirestoreAdmin/CreateIndex", aborted("too much contention"))
    waits: list[float] = []
    patience = Patience(sleep=waits.append)
    composites = [one for one in all_indexes(world) if isinstance(one, CompositeIndex)]

    steps = list(apply(composites, "shop-prod", patience=patience))

    assert {step.look.state for step in steps} == {State.WAITING}
    assert {step.look.why for step in steps} == {
        "Firestore, which changes few indexes at once: apply again in some minutes"
    }
    assert max(waits) == 30
    assert 900 <= sum(waits) < 960  # of all of them together


@pytest.mark.parametrize("method", ["CreateIndex", "UpdateField"])
def test_what_firestore_does_not_take_in_one_minute_is_left_for_the_next_apply(
    world: GoogleWorld, firestore: Any, method: str
) -> None:
    """A new database gets a hundred indexes and exemptions, and has a quota of such calls."""
    world.server.refuse(f"FirestoreAdmin/{method}", exhausted("Create or Delete Index Requests"))

    first = {step.action: step.look for step in applied(*all_indexes(world))}
    tried = len(world.server.calls)
    world.forget()
    applied(*all_indexes(world))

    assert set(first) == {Action.NONE, Action.CREATED}
    assert first[Action.NONE].state is State.WAITING
    assert first[Action.NONE].why == (
        "Firestore, which takes so many changes of indexes a minute: apply again in a minute"
    )
    assert tried < 200  # what waits for a minute is not tried again within it
    assert len(firestore.indexes) + len(firestore.fields) == 158


def test_the_ledger_expires_only_where_that_is_asked_for(
    world: GoogleWorld, firestore: Any
) -> None:
    for_ever = world.with_(ledger_days=None)
    (expiry,) = expiries(world.clients, INSTALLATION)

    before = looked_at(expiry)
    (step,) = applied(expiry)
    meanwhile = looked_at(expiry)
    firestore.build()

    assert list(expiries(world.clients, for_ever.installation)) == []
    assert (before.look.state, step.action) == (State.MISSING, Action.CREATED)
    assert meanwhile.look.state is State.WAITING
    assert looked_at(expiry).look.state is State.PRESENT
    (field,) = firestore.fields.values()
    assert field.name.endswith("/collectionGroups/ledger/fields/endedAt")
    assert field.ttl_config.expiration_offset == timedelta(days=400)
    assert field.index_config.uses_ancestor_config  # its index is the one of all fields


def test_an_expiry_of_another_time_is_left_alone(world: GoogleWorld, firestore: Any) -> None:
    applied(Expiry(world.clients, INSTALLATION, timedelta(days=30)))
    firestore.build()
    world.forget()

    (step,) = applied(*expiries(world.clients, INSTALLATION))

    assert step.look.differences == (Difference("kept", found="30 days", wanted="400 days"),)
    assert world.writes() == []


def test_firestore_can_tell_when_an_entry_of_the_ledger_ended() -> None:
    """An expiry looks at a Timestamp alone: a text would keep every entry forever."""
    ended_at = LedgerEntry.model_fields["ended_at"]
    entry = LedgerEntry.model_validate(
        {
            **dict.fromkeys(("runId", "pipeline", "outcome", "lastStep"), "x"),
            **dict.fromkeys(("createdAt", "endedAt"), "2026-11-22T10:00:00Z"),
            **dict.fromkeys(("totalS", "waitingS", "executingS", "retries", "continuations"), 0),
            **dict.fromkeys(("trials", "callsMade", "callsSpared", "rejectedCheckpoints"), 0),
            "attempts": {},
            "steps": {},
        }
    )

    stored = encoded(entry.model_dump(exclude_none=True)[ended_at.alias])

    assert ended_at.alias == "endedAt"
    assert stored.WhichOneof("value_type") == "timestamp_value"
