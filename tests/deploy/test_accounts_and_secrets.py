"""Service accounts and the secrets of functions."""

from __future__ import annotations

from dataclasses import replace

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.accounts import accounts
from leasehold.deploy.resources.resource import State
from leasehold.deploy.resources.secrets import secrets
from leasehold.deploy.steps import Action
from leasehold.deploy.tables import Tables
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionTable, Secret
from leasehold.registry.pipelines import NO_CATALOG
from tests.deploy.google_services.accounts import Accounts
from tests.deploy.google_services.secrets import Secrets
from tests.deploy.google_world import CATALOG, INSTALLATION, GoogleWorld, applied

OURS = "@shop-prod.iam.gserviceaccount.com"

#: The table without what a project adds to it.
PLAIN = FunctionTable(replace(row, secrets=()) for row in FUNCTIONS)


def with_table(table: FunctionTable) -> Installation:
    return replace(INSTALLATION, tables=Tables(table))


def with_secrets(*secrets: Secret) -> FunctionTable:
    """Return the table with secrets of handlers."""
    return FunctionTable(
        replace(row, secrets=secrets if row.name == "execute_step" else ()) for row in FUNCTIONS
    )


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
    (created,) = applied(*secrets(world.clients, with_table(PLAIN), CATALOG))
    (waiting,) = applied(*secrets(world.clients, with_table(PLAIN), CATALOG))
    world.service(Secrets).give("TEAM_SLACK_URL")
    (done,) = applied(*secrets(world.clients, with_table(PLAIN), CATALOG))

    assert created.action is Action.CREATED
    assert waiting.action is Action.NONE
    for step in (created, waiting):
        why = "a person who gives it a value"
        assert (step.look.state, step.look.why) == (State.WAITING, why)
    assert (
        waiting.repair
        == created.repair
        == (
            'read -rs VALUE && printf %s "$VALUE" | gcloud secrets versions add TEAM_SLACK_URL '
            "--project=shop-prod --data-file=-"
        )
    )
    assert done.look.state is State.PRESENT
    (secret,) = world.service(Secrets).secrets.values()
    (replica,) = secret.replication.user_managed.replicas
    assert replica.location == "europe-west1"


def test_a_secret_waits_for_each_version_that_a_function_is_given(world: GoogleWorld) -> None:
    table = with_secrets(Secret("A_KEY", version="2"), Secret("B_KEY"), Secret("C_KEY"))
    kept = world.service(Secrets)
    wanted = [*secrets(world.clients, with_table(table), NO_CATALOG)]
    applied(*wanted)
    for name in ("A_KEY", "B_KEY", "C_KEY"):
        kept.give(name)
    kept.give("C_KEY")
    kept.set_state("B_KEY", 1, "DESTROYED")
    kept.set_state("C_KEY", 2, "DISABLED")

    first, second, third = applied(*wanted)

    assert {one.look.state for one in (first, second, third)} == {State.WAITING}
    assert first.look.why == "its version 2"
    assert second.look.why == "its version 1, which is destroyed"
    assert "gcloud secrets versions add B_KEY" in second.repair
    assert third.look.why == "its version 2, which is disabled"  # no older one is read instead
    assert third.repair == ("gcloud secrets versions enable 2 --secret=C_KEY --project=shop-prod")
    kept.set_state("C_KEY", 2, "ENABLED")
    kept.give("A_KEY")
    kept.give("B_KEY")
    assert {step.look.state for step in applied(*wanted)} == {State.PRESENT}


def test_no_value_of_a_secret_is_ever_read(world: GoogleWorld) -> None:
    applied(*secrets(world.clients, INSTALLATION, CATALOG))

    assert world.server.called("AccessSecretVersion") == []
