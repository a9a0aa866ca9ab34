"""Service accounts and the secrets of channels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.functions import FUNCTIONS
from infra.resources.accounts import accounts
from infra.resources.resource import State
from infra.resources.secrets import secrets
from infra.steps import Action
from tests.infra.google_services.accounts import Accounts
from tests.infra.google_services.secrets import Secrets
from tests.infra.google_world import CATALOG, INSTALLATION, GoogleWorld, applied, google_world

OURS = "@shop-prod.iam.gserviceaccount.com"


@pytest.fixture
def world() -> Iterator[GoogleWorld]:
    with google_world() as world:
        yield world


def test_each_function_has_an_account_and_so_has_each_that_calls(world: GoogleWorld) -> None:
    steps = applied(*accounts(world.clients, INSTALLATION))

    kept = world.service(Accounts).accounts.values()
    assert {step.action for step in steps} == {Action.CREATED}
    callers = ["leasehold-events", "leasehold-schedule", "leasehold-tasks"]
    assert sorted(account.email.removesuffix(OURS) for account in kept) == sorted(
        [*callers, *(f"leasehold-{function.service}" for function in FUNCTIONS)]
    )


def test_an_account_that_is_disabled_is_told(world: GoogleWorld) -> None:
    applied(*accounts(world.clients, INSTALLATION))
    name = f"projects/shop-prod/serviceAccounts/leasehold-tasks{OURS}"
    world.service(Accounts).accounts[name].disabled = True
    world.forget()

    steps = applied(*accounts(world.clients, INSTALLATION))

    (told,) = [step for step in steps if step.look.state is not State.PRESENT]
    assert told.look.state is State.DIFFERENT
    assert told.repair == (
        f"gcloud iam service-accounts enable leasehold-tasks{OURS} --project=shop-prod"
    )
    assert world.writes() == []


def test_a_secret_is_created_empty_and_waits_for_a_person(world: GoogleWorld) -> None:
    (created,) = applied(*secrets(world.clients, INSTALLATION, CATALOG))
    (waiting,) = applied(*secrets(world.clients, INSTALLATION, CATALOG))
    world.service(Secrets).give("TEAM_SLACK_URL")
    (done,) = applied(*secrets(world.clients, INSTALLATION, CATALOG))

    assert created.action is Action.CREATED
    assert (waiting.look.state, waiting.look.why) == (
        State.WAITING,
        "a person who gives it a value",
    )
    assert waiting.repair == (
        'read -rs VALUE && printf %s "$VALUE" | gcloud secrets versions add TEAM_SLACK_URL '
        "--project=shop-prod --data-file=-"
    )
    assert done.look.state is State.PRESENT
    (secret,) = world.service(Secrets).secrets.values()
    (replica,) = secret.replication.user_managed.replicas
    assert replica.location == "europe-west1"


def test_no_value_of_a_secret_is_ever_read(world: GoogleWorld) -> None:
    applied(*secrets(world.clients, INSTALLATION, CATALOG))

    assert world.server.called("AccessSecretVersion") == []
