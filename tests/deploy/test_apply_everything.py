"""A whole installation, from an empty project on: `apply` again goes on, and repeats nothing."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import Trigger
from tests.deploy.cloud import REGION, Cloud
from tests.deploy.google_services.firestore import FirestoreAdmin
from tests.deploy.google_services.monitoring import Alerts
from tests.deploy.google_services.refusals import permission_denied
from tests.deploy.google_services.run import CloudRun
from tests.deploy.test_event_subscription import deploy as deploy_subscription
from tests.deploy.test_provision import FIRST as CREATED
from tests.deploy.test_provision import OURS

ROOT = Path(__file__).parents[2]
OPTIONS = ("--ledger-days=400", "--alert-email=ops@example.com", "--caller=group:all@example.com")
FIRST = ("service account", "database", "bucket", "queue", "field indexes", "log-based metric")


def deploy(cloud: Cloud) -> None:
    """Do what gcloud does for each function."""
    for function in FUNCTIONS:
        cloud.server.service(CloudRun).deploy(REGION, function.service)
        if function.trigger is Trigger.EVENTS:
            deploy_subscription(cloud)


@pytest.mark.parametrize(("command", "code"), [("plan", 0), ("drift", 1)])
def test_looking_at_an_empty_project_changes_nothing(cloud: Cloud, command: str, code: int) -> None:
    """And what is missing is drift."""
    done = cloud.provision(command, *OPTIONS, "--json")

    assert done.code == code
    assert set(done.states(*FIRST).values()) == {"missing"}, done.stderr
    assert cloud.writes() == []


def test_an_installation_is_complete_after_the_second_apply(cloud: Cloud) -> None:
    """What needs a deployed function waits for it; new metrics are known a while later."""
    alerts = cloud.server.service(Alerts)
    alerts.is_late = True
    first = cloud.provision("apply", *OPTIONS, "--json")
    alerts.is_late = False
    deploy(cloud)
    cloud.server.service(FirestoreAdmin).build()
    second = cloud.provision("apply", *OPTIONS, "--json")
    cloud.forget()
    third = cloud.provision("apply", *OPTIONS, "--json")
    drift = cloud.provision("drift", *OPTIONS)
    cloud.server.refuse("CloudScheduler/GetJob", permission_denied("cloudscheduler.jobs.get"))
    unseen = cloud.provision("drift", *OPTIONS)

    waited = {row["kind"] for row in first.json["resources"] if row["state"] == "waiting"}
    assert (first.code, second.code, third.code) == (0, 0, 0), first.stderr + first.stdout
    assert set(first.states(*FIRST).values()) == {"created"}
    assert first.states(*OURS) == CREATED
    assert {"permissions", "alert"} <= waited
    assert second.states("event subscription") == {
        "event subscription deliver-notification": "created"
    }
    rows = [row for row in third.json["resources"] if row["kind"] != "secret"]  # people's to give
    assert {row["state"] for row in rows} == {"present", "waiting"}
    left = [row["name"] for row in rows if row["state"] == "waiting"]
    assert left == ["projects/other-prod/topics/orders"]  # other people's
    assert cloud.writes() == []
    assert drift.code == 0, drift.stdout
    assert unseen.code == 1, "what could not be looked at is not known to be in order"
    assert "cloudscheduler.jobs.get is missing" in unseen.stdout


def test_an_apply_that_was_killed_among_the_fields_is_gone_on_with(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    firestore = cloud.server.service(FirestoreAdmin)
    monkeypatch.setattr(firestore, "at_once", 1000)  # a field is listed only once it is changed
    begun: list[subprocess.Popen[str]] = []

    def kill(_: object) -> None:
        if len(cloud.server.called("UpdateField")) == 21:
            begun[0].kill()

    with monkeypatch.context() as patch:
        patch.setattr(cloud.server, "on_call", kill)
        begun.append(cloud.begin("apply", *OPTIONS))
        begun[0].communicate()
    cut_off_after = sum(cloud.project in name for name in firestore.fields)

    second = cloud.provision("apply", *OPTIONS)

    assert 0 < cut_off_after < 30
    assert second.code == 0, second.stdout
    names = [*firestore.indexes, *firestore.fields]
    assert sum(cloud.project in name for name in names) == 159


def _calls_of(folder: str, verbs: tuple[str, ...]) -> list[str]:
    """Return where in a folder a method is called that begins with one of these verbs."""
    files = sorted((ROOT / folder).rglob("*.py"))
    nodes = [(file, node) for file in files for node in ast.walk(ast.parse(file.read_text()))]
    assert nodes
    return [
        f"{file.name}: {node.func.attr}"
        for file, node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr.startswith(verbs)
    ]


def test_no_program_of_a_deploy_can_delete_purge_or_pause() -> None:
    verbs = ("delete_", "purge_", "pause_", "resume_", "disable_", "undelete_", "patch_")

    assert _calls_of("shared/leasehold/deploy", verbs) == []
    assert _calls_of("shared/leasehold/cli/deploy", verbs) == []


def test_what_looks_for_what_is_wrong_changes_nothing_in_google_cloud() -> None:
    verbs = ("create_", "update_", "set_iam", "delete_", "purge_", "pause_", "resume_", "patch_")

    of_sockets = ["machine.py: create_connection"]
    assert _calls_of("shared/leasehold/doctor", verbs) == of_sockets
