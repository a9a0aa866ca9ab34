"""Permissions are added to policies; what others write there meanwhile stays."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
from google.iam.v1.policy_pb2 import Binding, Policy

from leasehold import Registry
from leasehold.deploy.permissions import READ_AND_WRITE, Kind, Permission, Place
from leasehold.deploy.resources.policies import Permissions, missing_from, policies
from leasehold.deploy.resources.resource import State
from leasehold.deploy.steps import Action
from leasehold.registry.channels import TopicChannel
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import Use
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.projects import Projects
from tests.deploy.google_services.refusals import Refusal, invalid, not_found, permission_denied
from tests.deploy.google_services.run import CloudRun
from tests.deploy.google_world import (
    CATALOG,
    INSTALLATION,
    LOCATION,
    GoogleWorld,
    applied,
    looked_at,
)

SERVE_API = f"{LOCATION}/services/serve-api"
#: How many accounts have a role in the project.
IN_PROJECT = len([function for function in FUNCTIONS if Use.DOCUMENTS in function.uses])
READERS = ("group:readers@example.com", "user:ada@example.com")
PROJECT = "projects/shop-prod"


def permissions(world: GoogleWorld, kind: Kind, name: str = "") -> Permissions:
    """Return those at one place, freshly looked at."""
    found: list[Any] = list(policies(world.clients, world.installation, CATALOG))
    return next(one for one in found if one.place.kind is kind and name in one.place.name)


def lines(policy: Policy) -> set[tuple[str, str, str]]:
    return {
        (binding.role, member, binding.condition.expression)
        for binding in policy.bindings
        for member in binding.members
    }


def test_a_service_that_is_not_deployed_is_waited_for(world: GoogleWorld) -> None:
    (step,) = applied(permissions(world, Kind.SERVICE, "serve-api"))

    assert (step.look.state, step.look.why) == (State.WAITING, "serve-api to be deployed")
    assert step.action is Action.NONE
    assert world.writes() == []


def test_what_is_missing_is_added_and_what_is_there_stays(world: GoogleWorld) -> None:
    world.service(CloudRun).deploy("europe-west1", "serve-api")
    of_others = Binding(role="roles/run.viewer", members=["user:eve@example.com"])
    half = Binding(role="roles/run.invoker", members=[READERS[0]])
    world.server.world.policies[SERVE_API] = Policy(bindings=[of_others, half])

    first = looked_at(permissions(world, Kind.SERVICE, "serve-api"))
    (step,) = applied(permissions(world, Kind.SERVICE, "serve-api"))

    assert first.look.why == "roles/run.invoker for user:ada@example.com"
    assert step.action is Action.CREATED
    assert lines(world.server.world.policies[SERVE_API]) == {
        ("roles/run.viewer", "user:eve@example.com", ""),
        *(("roles/run.invoker", reader, "") for reader in READERS),
    }
    assert looked_at(permissions(world, Kind.SERVICE, "serve-api")).look.state is State.PRESENT


def test_conditions_of_others_survive(world: GoogleWorld) -> None:
    """A policy that is read in a lower version has lost its conditions when it is written."""
    until = Binding(role="roles/datastore.user", members=["user:eve@example.com"])
    until.condition.title, until.condition.expression = "until", 'request.time < timestamp("…")'
    world.server.world.policies[PROJECT] = Policy(bindings=[until], version=3)

    (step,) = applied(permissions(world, Kind.PROJECT))

    written = world.server.world.policies[PROJECT]
    ours = 'resource.name == "projects/shop-prod/databases/(default)"'
    assert step.action is Action.CREATED
    assert written.version == 3
    assert (until.role, "user:eve@example.com", until.condition.expression) in lines(written)
    assert len([line for line in lines(written) if line[2] == ours]) == IN_PROJECT
    asked = world.server.called("Projects/GetIamPolicy")
    assert {request.options.requested_policy_version for request in asked} == {3}


def test_the_role_for_the_whole_project_is_enough(world: GoogleWorld) -> None:
    """An earlier setup has more than is needed, which its owner may remove."""
    wanted = permissions(world, Kind.PROJECT).wanted
    broad = [Binding(role=each.role, members=[each.member]) for each in wanted]
    world.server.world.policies[PROJECT] = Policy(bindings=broad)

    assert looked_at(permissions(world, Kind.PROJECT)).look.state is State.PRESENT


def test_a_role_for_another_database_is_not_enough() -> None:
    wanted = Permission(
        Place(Kind.PROJECT, PROJECT), READ_AND_WRITE, "user:ada@example.com", "name == 'runs'"
    )
    held = Policy(bindings=[Binding(role=wanted.role, members=[wanted.member])])
    held.bindings[0].condition.expression = "name == 'other'"

    assert missing_from(held, [wanted]) == [wanted]


def test_a_change_made_meanwhile_is_not_overwritten(world: GoogleWorld) -> None:
    """The etag is refused, and everything is read again."""
    change_while_writing(world.server, lambda: _add_eve(world))

    (step,) = applied(permissions(world, Kind.PROJECT))

    assert step.action is Action.CREATED
    members = {member for _, member, _ in lines(world.server.world.policies[PROJECT])}
    assert "user:eve@example.com" in members
    assert len(members) == IN_PROJECT + 1


def test_an_account_that_is_too_new_is_tried_again(world: GoogleWorld) -> None:
    """IAM knows a new account everywhere only after some seconds."""
    unknown = invalid("Service account leasehold-tasks@… does not exist.")
    world.server.refuse("Projects/SetIamPolicy", unknown, times=2)

    (step,) = applied(permissions(world, Kind.PROJECT))

    assert step.action is Action.CREATED


def test_a_policy_that_is_wrong_is_not_tried_again(world: GoogleWorld) -> None:
    refusal = invalid("Role roles/datastore.user is not supported for this resource.")
    world.server.refuse("Projects/SetIamPolicy", refusal)

    (step,) = applied(permissions(world, Kind.PROJECT))

    assert step.action is Action.FAILED
    assert "is not supported" in step.problem
    assert len(world.server.called("Projects/SetIamPolicy")) == 1


def test_a_public_permission_is_reported_loudly_and_left_alone(world: GoogleWorld) -> None:
    world.service(CloudRun).deploy("europe-west1", "serve-api")
    public = Binding(role="roles/run.invoker", members=["allUsers", *READERS])
    world.server.world.policies[SERVE_API] = Policy(bindings=[public])

    (step,) = applied(permissions(world, Kind.SERVICE, "serve-api"))

    assert step.look.state is State.DIFFERENT
    (difference,) = step.look.differences
    assert difference.field == "OPEN TO THE WHOLE WORLD"
    assert difference.found == "roles/run.invoker for allUsers"
    assert step.repair == (
        "gcloud run services remove-iam-policy-binding serve-api --member=allUsers "
        "--role=roles/run.invoker --region=europe-west1 --project=shop-prod"
    )
    assert world.writes() == []


def test_a_public_permission_is_reported_where_something_is_missing_too(world: GoogleWorld) -> None:
    world.service(CloudRun).deploy("europe-west1", "serve-api")
    public = Binding(role="roles/run.invoker", members=["allAuthenticatedUsers"])
    world.server.world.policies[SERVE_API] = Policy(bindings=[public])

    (step,) = applied(permissions(world, Kind.SERVICE, "serve-api"))

    assert step.action is Action.CREATED
    assert step.look.differences[0].found == "roles/run.invoker for allAuthenticatedUsers"
    assert "--member=allAuthenticatedUsers" in step.repair


def test_a_service_without_callers_is_looked_at_too(world: GoogleWorld) -> None:
    world = world.with_(callers=())
    before = looked_at(permissions(world, Kind.SERVICE, "serve-api"))
    world.service(CloudRun).deploy("europe-west1", "serve-api")
    public = Binding(role="roles/run.invoker", members=["allUsers"])
    world.server.world.policies[SERVE_API] = Policy(bindings=[public])

    assert before.look.state is State.PRESENT
    assert looked_at(permissions(world, Kind.SERVICE, "serve-api")).look.state is State.DIFFERENT


def test_a_topic_of_another_project_waits_for_its_people(world: GoogleWorld) -> None:
    """The name says whose it is, as two projects may have topics of one name."""
    foreign = TopicChannel(name="programs", topic="projects/other-prod/topics/letters")
    catalog = replace(CATALOG, channels=Registry("channels", [foreign]))
    (topic,) = (
        one for one in policies(world.clients, INSTALLATION, catalog) if "other-prod" in one.name
    )
    world.server.refuse("IAMPolicy/*", permission_denied("pubsub.topics.getIamPolicy"))

    (step,) = applied(topic)

    assert topic.name == "topic projects/other-prod/topics/letters"
    assert step.look.state is State.WAITING
    assert step.look.why == (
        "a person of project other-prod to allow roles/pubsub.publisher for "
        "leasehold-deliver-notification"
    )
    assert step.repair == (
        "gcloud pubsub topics add-iam-policy-binding letters --member=serviceAccount:"
        "leasehold-deliver-notification@shop-prod.iam.gserviceaccount.com "
        "--role=roles/pubsub.publisher --project=other-prod"
    )


def test_a_queue_and_a_bucket_have_their_policies_over_rest(world: GoogleWorld) -> None:
    world.create_queues()
    world.storage.buckets["shop-prod-leasehold"] = {"name": "shop-prod-leasehold"}
    of_others = {"role": "roles/storage.legacyBucketReader", "members": ["projectViewer:shop-prod"]}
    world.storage.policies["shop-prod-leasehold"] = {
        "etag": "CAE=",
        "version": 1,
        "bindings": [of_others],
    }

    queue, bucket = applied(
        permissions(world, Kind.QUEUE, "draft"), permissions(world, Kind.BUCKET)
    )

    assert (queue.action, bucket.action) == (Action.CREATED, Action.CREATED)
    kept = world.storage.policies["shop-prod-leasehold"]["bindings"]
    assert of_others in kept
    assert {binding["role"]: len(binding["members"]) for binding in kept} == {
        "roles/storage.legacyBucketReader": 1,
        "roles/storage.objectUser": 4,
    }
    again = [permissions(world, Kind.QUEUE, "draft"), permissions(world, Kind.BUCKET)]
    assert {looked_at(one).look.state for one in again} == {State.PRESENT}


def test_a_bucket_whose_policy_changes_meanwhile_is_read_again(world: GoogleWorld) -> None:
    """Over HTTP it is a precondition that fails."""
    world.storage.buckets["shop-prod-leasehold"] = {"name": "shop-prod-leasehold"}
    world.storage.refuse_next_policy()

    (step,) = applied(permissions(world, Kind.BUCKET))

    assert step.action is Action.CREATED
    assert world.storage.writes == ["buckets.setIamPolicy shop-prod-leasehold"] * 2


def test_a_place_that_is_not_there_is_waited_for_and_delays_no_other(world: GoogleWorld) -> None:
    """Its own line says why it could not be created; or it is not known everywhere yet."""
    account, project = applied(permissions(world, Kind.ACCOUNT), permissions(world, Kind.PROJECT))

    assert (account.look.state, project.action) == (State.WAITING, Action.CREATED)
    assert account.look.why == "service account leasehold-tasks, which is not there"


def test_a_service_that_only_a_write_knows_to_be_missing_is_waited_for(world: GoogleWorld) -> None:
    """Some services have an empty policy for what is not there."""
    world.service(CloudRun).deploy("europe-west1", "serve-api")
    world.server.refuse("Services/SetIamPolicy", not_found("Service"))

    (step,) = applied(permissions(world, Kind.SERVICE, "serve-api"))

    assert (step.look.state, step.action) == (State.WAITING, Action.NONE)


def test_a_missing_permission_is_told_in_one_line(world: GoogleWorld) -> None:
    refusal = Refusal(grpc.StatusCode.PERMISSION_DENIED, "The caller does not have permission")
    world.server.refuse("Projects/GetIamPolicy", refusal)

    step = looked_at(permissions(world, Kind.PROJECT))

    assert step.look.state is State.UNKNOWN
    assert "shop-prod" in step.look.why


def test_another_catalog_asks_for_other_places(world: GoogleWorld) -> None:
    """So a step that is new gets its permissions by the next `apply`."""
    steps = replace(CATALOG, channels=type(CATALOG.channels)("channels", []))

    names = {one.name for one in policies(world.clients, INSTALLATION, steps)}

    assert "secret TEAM_SLACK_URL" not in names
    assert "queue draft" in names


def change_while_writing(server: GoogleServer, change: Callable[[], None]) -> None:
    """Have another process be faster, once."""
    service = server.service(Projects)
    write = service.set_iam_policy

    def beaten(request: Any) -> Policy:
        del service.set_iam_policy
        change()
        return write(request)  # type: ignore[no-any-return]

    service.set_iam_policy = beaten


def _add_eve(world: GoogleWorld) -> None:
    policy = world.server.world.policies.setdefault(PROJECT, Policy())
    policy.bindings.add(role="roles/browser", members=["user:eve@example.com"])


def test_a_role_of_strangers_is_safe_in_a_shell(world: GoogleWorld) -> None:
    world.service(CloudRun).deploy("europe-west1", "serve-api")
    public = Binding(role="roles/x'; reboot; $(x)", members=["allUsers", *READERS])
    world.server.world.policies[SERVE_API] = Policy(bindings=[public])

    (step,) = applied(permissions(world, Kind.SERVICE, "serve-api"))

    assert f"--role={public.role}" in shlex.split(step.repair)
