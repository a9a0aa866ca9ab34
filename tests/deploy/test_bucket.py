"""The bucket of the artifacts: private, regional, and no rule of it deletes what a run needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leasehold.deploy.resources.bucket import Bucket
from leasehold.deploy.resources.policies import policies
from leasehold.deploy.resources.resource import Look, State
from leasehold.deploy.steps import Action, Step
from tests.deploy.google_world import CATALOG, GoogleWorld, applied, google_world, looked_at

NAME = "shop-prod-leasehold"


@pytest.fixture(scope="module")
def _world() -> Iterator[GoogleWorld]:
    with google_world() as world:
        yield world


@pytest.fixture
def world(_world: GoogleWorld) -> GoogleWorld:
    _world.storage.buckets.clear()
    _world.storage.taken.clear()
    _world.forget()
    return _world


def look(world: GoogleWorld) -> Step:
    return looked_at(Bucket(world.clients, world.installation))


def test_it_is_created_private_and_in_the_region(world: GoogleWorld) -> None:
    (step,) = applied(Bucket(world.clients, world.installation))

    kept = world.storage.buckets[NAME]
    assert step.action is Action.CREATED
    assert kept["location"] == "EUROPE-WEST1"
    assert kept["iamConfiguration"]["uniformBucketLevelAccess"] == {"enabled": True}
    assert kept["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    assert kept["lifecycle"]["rule"] == [
        {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}},
        {
            "action": {"type": "Delete"},
            "condition": {"isLive": False, "daysSinceNoncurrentTime": 7},
        },
    ]
    assert look(world).look.state is State.PRESENT


def test_a_bucket_name_in_use_is_reported(world: GoogleWorld) -> None:
    world.storage.taken.add(NAME)

    (step,) = applied(Bucket(world.clients, world.installation))

    assert step.look.state is State.UNKNOWN
    assert "its name is taken by another project (--bucket=NAME gives another one)" in step.look.why
    assert world.writes() == []


def test_a_bucket_name_that_was_taken_meanwhile_is_reported(world: GoogleWorld) -> None:
    bucket = Bucket(world.clients, world.installation)
    missing = bucket.look()
    world.storage.taken.add(NAME)

    class Late:
        kind, name = bucket.kind, bucket.name
        looks = iter((lambda: missing, bucket.look))
        create = bucket.create

        def look(self) -> Any:
            return next(self.looks)()

    (step,) = applied(Late())

    assert step.look.state is State.UNKNOWN
    assert "--bucket=NAME" in step.look.why


def test_a_bucket_that_others_made_of_our_name_gets_no_file_and_no_permission(
    world: GoogleWorld,
) -> None:
    """Its name can be guessed, and its owner could open it to us, and read the files."""
    world.storage.buckets[NAME] = {"name": NAME, "location": "US", "projectNumber": "42"}

    bucket, permissions = applied(
        Bucket(world.clients, world.installation),
        *(
            each
            for each in policies(world.clients, world.installation, CATALOG)
            if each.name == f"bucket {NAME}"
        ),
    )

    assert bucket.look.state is State.UNKNOWN
    assert bucket.look.why.startswith("project 42 has it: no file is to go there; --bucket=NAME")
    assert permissions.look == Look(State.WAITING, why=f"bucket {NAME}, which is not in order")
    assert world.writes() == []


def test_what_differs_is_told_and_left_alone(world: GoogleWorld) -> None:
    """Also of a bucket of another project, where its name was given."""
    world.storage.buckets[NAME] = {"name": NAME, "location": "US", "projectNumber": "42"}

    (step,) = applied(Bucket(world.clients, world.with_(bucket=NAME).installation))

    found = {each.field: (each.found, each.wanted) for each in step.look.differences}
    assert found == {
        "project": ("42", "123456789012"),
        "location": ("us", "europe-west1"),
        "uniform access": ("off", "on"),
        "public access prevention": ("inherited", "enforced"),
    }
    assert step.repair == (
        f"gcloud storage buckets update gs://{NAME} --uniform-bucket-level-access "
        "--public-access-prevention"
    )
    assert world.writes() == []


@pytest.mark.parametrize(
    ("condition", "is_dangerous"),
    [
        ({"age": 30}, True),
        ({"age": 30, "matchesPrefix": ["runs/"]}, True),
        ({"isLive": True, "age": 1}, True),
        ({"createdBefore": "2026-01-01"}, True),
        ({"isLive": False}, False),
        ({"numNewerVersions": 3}, False),
        ({"daysSinceNoncurrentTime": 1}, False),
    ],
)
def test_a_rule_that_deletes_live_files_is_told(
    world: GoogleWorld, condition: dict[str, Any], is_dangerous: bool
) -> None:
    applied(Bucket(world.clients, world.installation))
    rule = {"action": {"type": "Delete"}, "condition": condition}
    world.storage.buckets[NAME]["lifecycle"]["rule"].append(rule)

    fields = [each.field for each in look(world).look.differences]

    assert fields == (["lifecycle"] if is_dangerous else [])
