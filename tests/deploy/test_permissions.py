"""Who may do what: the whole table, as it follows from the functions and the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leasehold.deploy.permissions import Permission, permissions_of
from leasehold.deploy.tables import Tables
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionTable, Secret, Use
from tests.deploy.google_world import CATALOG, INSTALLATION

OURS = "@shop-prod.iam.gserviceaccount.com"
WORKERS = ("execute-step", "serve-api", "manage-lease", "sweep-dead-letters")
ALL = (*WORKERS, "deliver-notification", "derive-budgets")


def line(permission: Permission) -> tuple[str, str, str]:
    """Return who, what and where; our accounts by their ids."""
    member = permission.member.removeprefix("serviceAccount:").replace(OURS, "")
    place = f"{permission.place.kind} {permission.place.short_name.replace(OURS, '')}"
    return member, permission.role.removeprefix("roles/"), place


def expected() -> Iterator[tuple[str, str, str]]:
    for function in ALL:
        yield f"leasehold-{function}", "datastore.user", "project shop-prod"
    for function in WORKERS:
        account = f"leasehold-{function}"
        yield account, "pubsub.publisher", "topic leasehold-announcements"
        yield account, "iam.serviceAccountUser", "service account leasehold-tasks"
        yield account, "cloudtasks.enqueuer", "queue draft"  # a remote step has no queue
        yield account, "cloudtasks.viewer", "queue draft"
        yield account, "storage.objectUser", "bucket shop-prod-leasehold"
    notifier = "leasehold-deliver-notification"
    yield notifier, "pubsub.publisher", "topic leasehold-announcements"
    yield notifier, "secretmanager.secretAccessor", "secret TEAM_SLACK_URL"
    for row in FUNCTIONS:  # what a project adds stands in its row
        for secret in row.secrets:
            yield row.account, "secretmanager.secretAccessor", f"secret {secret.variable}"
        for role in row.roles:
            yield row.account, role.removeprefix("roles/"), "project shop-prod"
    yield notifier, "pubsub.publisher", "topic letters"
    yield "leasehold-tasks", "run.invoker", "service execute-step"
    yield "leasehold-schedule", "run.invoker", "service sweep-dead-letters"
    yield "leasehold-schedule", "run.invoker", "service derive-budgets"
    yield "leasehold-events", "run.invoker", "service deliver-notification"
    yield "group:readers@example.com", "run.invoker", "service serve-api"
    yield "user:ada@example.com", "run.invoker", "service serve-api"
    yield "vm@far.iam.gserviceaccount.com", "run.invoker", "service manage-lease"


def test_the_whole_table() -> None:
    """Read it: all that is allowed is here."""
    assert sorted(map(line, permissions_of(INSTALLATION, CATALOG))) == sorted(expected())


#: The table without what a project adds to it.
PLAIN = FunctionTable(replace(row, secrets=(), roles=()) for row in FUNCTIONS)


def with_model() -> FunctionTable:
    """Return the table of a project whose handlers ask models, one with a key and one without."""
    return FunctionTable(
        replace(row, secrets=(Secret("OPENAI_API_KEY"),), roles=("roles/aiplatform.user",))
        if row is PLAIN.of_tasks
        else row
        for row in PLAIN
    )


def test_what_handlers_need_is_for_the_account_of_their_function_alone() -> None:
    before = set(permissions_of(replace(INSTALLATION, tables=Tables(PLAIN)), CATALOG))

    after = permissions_of(replace(INSTALLATION, tables=Tables(with_model())), CATALOG)
    added = [each for each in after if each not in before]

    assert [*map(line, added)] == [
        (
            "leasehold-execute-step",
            "secretmanager.secretAccessor",
            "secret OPENAI_API_KEY",
        ),
        ("leasehold-execute-step", "aiplatform.user", "project shop-prod"),
    ]
    assert [each.condition for each in added] == ["", ""]


def test_a_role_of_the_project_is_for_the_one_database() -> None:
    """It is the only place where Firestore has a policy; what a row adds is the project's."""
    added = {role for row in FUNCTIONS for role in row.roles}
    in_project = [
        each
        for each in permissions_of(INSTALLATION, CATALOG)
        if each.place.kind == "project" and each.role not in added
    ]

    assert {each.condition for each in in_project} == {
        'resource.name == "projects/shop-prod/databases/(default)"'
    }
    assert len(in_project) == len([one for one in FUNCTIONS if Use.DOCUMENTS in one.uses])


def test_no_role_is_a_basic_one_or_rules_over_a_service() -> None:
    """Owners, editors and administrators may do what no function needs."""
    roles = {
        each.role
        for each in permissions_of(replace(INSTALLATION, tables=Tables(with_model())), CATALOG)
    }

    assert not roles & {"roles/owner", "roles/editor", "roles/viewer"}
    assert not [role for role in roles if "admin" in role.lower() or "*" in role]
