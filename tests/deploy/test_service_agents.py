"""Google's own accounts that messages go through have their roles before the first deploy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.iam.v1.policy_pb2 import Binding, Policy

from leasehold.deploy.resources.resource import State
from leasehold.deploy.resources.service_agents import SERVICES, service_agents
from leasehold.deploy.steps import Action
from tests.deploy.google_services.refusals import invalid
from tests.deploy.google_world import GoogleWorld, applied

PROJECT = "projects/shop-prod"
PAGE = Path(__file__).parents[2] / "docs/deploy.md"


def test_each_is_given_its_role_once_and_what_is_there_stays(world: GoogleWorld) -> None:
    eve = Binding(role="roles/eventarc.serviceAgent", members=["user:eve@example.com"])
    world.server.world.policies[PROJECT] = Policy(bindings=[eve])

    first = applied(*service_agents(world.clients, world.installation))
    world.forget()
    again = applied(*service_agents(world.clients, world.installation))

    number = world.installation.project_number
    held = {one.role: list(one.members) for one in world.server.world.policies[PROJECT].bindings}
    assert {step.action for step in first} == {Action.CREATED}
    assert held == {
        "roles/eventarc.serviceAgent": [
            "user:eve@example.com",
            f"serviceAccount:service-{number}@gcp-sa-eventarc.iam.gserviceaccount.com",
        ],
        "roles/pubsub.serviceAgent": [
            f"serviceAccount:service-{number}@gcp-sa-pubsub.iam.gserviceaccount.com"
        ],
    }
    assert {step.look.state for step in again} == {State.PRESENT}
    assert world.writes() == []


@pytest.mark.parametrize(("times", "action"), [(2, Action.CREATED), (None, Action.FAILED)])
def test_an_account_that_google_has_not_made_is_waited_for_a_moment_and_told(
    world: GoogleWorld, times: int | None, action: Action
) -> None:
    email = "service-123456789012@gcp-sa-eventarc.iam.gserviceaccount.com"
    unknown = invalid(f"Service account {email} does not exist.")
    world.server.refuse("Projects/SetIamPolicy", unknown, times=times)

    *_, step = applied(*service_agents(world.clients, world.installation))

    assert step.action is action
    if action is Action.FAILED:
        assert step.problem.startswith("Google has no account of its own for eventarc")
        assert step.repair == (
            "gcloud beta services identity create --project=shop-prod "
            "--service=eventarc.googleapis.com"
        )


def test_the_page_has_google_make_each_before_it_is_given_its_role() -> None:
    """Google gives none to one that is made on request."""
    made = re.findall(r"services identity create --service=(\w+)\.googleapis", PAGE.read_text())

    assert sorted(made) == sorted(SERVICES)
