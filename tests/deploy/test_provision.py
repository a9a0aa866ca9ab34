"""plan, apply and drift, as they are typed: what they print, what they change, how they end."""

from __future__ import annotations

import errno
import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.bootstrap import load_catalog
from leasehold.cli import main
from leasehold.cli.deploy import COMMANDS, provision
from leasehold.deploy.resources.all import all_resources
from leasehold.deploy.steps import Action, apply
from leasehold.devserver.cloud_tasks.request import ApiError
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import Trigger
from tests.deploy.cloud import Cloud, Done, deploy
from tests.deploy.google_services.refusals import api_disabled, permission_denied, unavailable
from tests.worlds.emulators import pubsub_host

OURS = ("queue", "topic", "subscription", "scheduler job", "event subscription")
FIRST = {
    "queue pick-up": "created",
    "queue pack": "created",
    "topic leasehold-announcements": "created",
    "topic leasehold-announcements-dead": "created",
    "subscription leasehold-announcements-dead": "created",
    "topic projects/other-prod/topics/orders": "waiting",
    "scheduler job sweep-dead-letters": "created",
    "scheduler job derive-budgets": "created",
    "event subscription deliver-notification": "waiting",
}


def test_a_plan_says_what_would_be_created_and_what_waits_and_changes_nothing(cloud: Cloud) -> None:
    done = cloud.provision("plan")

    lines = done.stdout.splitlines()
    assert done.code == 0, done.stderr
    assert lines[0] == "resource\tname\tstate\tdetail"
    assert "queue\tpick-up\twould be created\t" in lines
    waits = (
        "event subscription\tdeliver-notification\twaits\tfor deliver-notification to be deployed"
    )
    assert waits in lines
    assert "would be created" in lines[-1]
    assert "waits" in lines[-1]
    assert cloud.writes() == []


def test_after_a_failure_it_goes_on_and_the_next_apply_does_the_rest(cloud: Cloud) -> None:
    """And a missing permission is named with the role that has it."""
    cloud.server.refuse("Publisher/CreateTopic", permission_denied("pubsub.topics.create"))

    first = cloud.provision("apply", "--json")
    told = cloud.provision("apply")
    cloud.forget()
    third = cloud.provision("apply", "--json")

    states = first.states(*OURS)
    assert (first.code, told.code) == (1, 1)
    assert states["topic leasehold-announcements"] == "failed"
    assert states["subscription leasehold-announcements-dead"] == "waiting"
    assert states["scheduler job sweep-dead-letters"] == "created"
    assert "apply again" in first.stderr
    check_permission(cloud, told)
    assert third.code == 0
    assert third.states("topic")["topic leasehold-announcements"] == "created"


def check_permission(cloud: Cloud, done: Done) -> None:
    """Look at whether the output has the role that may create a topic, once."""
    failed = next(line for line in done.stdout.splitlines() if line.startswith("failed: topic"))
    assert failed.endswith(
        f"the permission pubsub.topics.create is missing in project {cloud.project}; "
        "roles/pubsub.editor has it"
    )
    binding = "--member=MEMBER --role=roles/pubsub.editor"
    repair = f"to repair it: gcloud projects add-iam-policy-binding {cloud.project} {binding}"
    assert done.stdout.splitlines().count(repair) == 1


def test_an_api_that_is_not_enabled_is_reported_with_the_command_that_enables_it(
    cloud: Cloud,
) -> None:
    cloud.server.refuse("CloudScheduler/*", api_disabled("cloudscheduler.googleapis.com"))

    done = cloud.provision("plan")

    assert done.code == 1
    enable = f"gcloud services enable cloudscheduler.googleapis.com --project={cloud.project}"
    assert f"to repair it: {enable}" in done.stdout.splitlines()


def test_an_api_of_cloud_tasks_that_is_not_enabled_is_told_likewise(cloud: Cloud) -> None:
    """It answers over REST here, with the same details in JSON."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
        "metadata": {"service": "cloudtasks.googleapis.com"},
    }
    cloud.tasks.refusal = lambda *_: ApiError("PERMISSION_DENIED", "it is disabled", info)

    done = cloud.provision("plan")

    enable = f"gcloud services enable cloudtasks.googleapis.com --project={cloud.project}"
    assert f"to repair it: {enable}" in done.stdout.splitlines()


def test_an_answer_that_is_lost_is_of_something_that_was_created(cloud: Cloud) -> None:
    cloud.server.lose_answer("CreateJob")
    cloud.server.lose_answer("CreateSubscription")

    done = cloud.provision("apply", "--json")

    assert done.code == 0
    assert done.states(*OURS) == FIRST


def test_applies_at_once_create_once_what_has_a_name_of_ours_and_none_fails(cloud: Cloud) -> None:
    """Alerts have none: the next look reports a copy, with the command that deletes it."""
    catalog = load_catalog("tests.deploy.catalog")

    def run() -> list[Action]:
        resources = all_resources(cloud.installation, catalog, cloud.clients)
        return [step.action for step in apply(resources, cloud.project)]

    with ThreadPoolExecutor(2) as pool:
        runs = [future.result() for future in [pool.submit(run) for _ in range(2)]]

    drift = cloud.provision("drift", "--json")
    drifted = [row for row in drift.json["resources"] if row["state"] not in {"present", "waiting"}]
    assert not any(Action.FAILED in actions for actions in runs)
    assert [row for row in drifted if row["kind"] != "alert"] == []
    assert {one["field"] for row in drifted for one in row["differences"]} <= {"how many"}


#: What SIGTERM ends with is one rule for all commands: see tests/cli/test_interruptions.py.
SIGTERM = pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), SIGTERM])
def test_an_interrupt_says_what_was_done_and_what_was_not(
    cloud: Cloud, number: signal.Signals, code: int
) -> None:
    """Its own process: a call that is cut off leaves locks of gRPC behind in its process."""
    arrived = threading.Event()
    cloud.server.on_call = lambda call: arrived.set() if "CreateJob" in call.method else None
    cloud.server.hang("CreateJob")

    process = cloud.begin("apply")
    try:
        assert arrived.wait(60)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        cloud.server.on_call = lambda _: None

    assert process.returncode == code
    assert "created: topic leasehold-announcements-dead" in stdout
    assert "error: interrupted at scheduler job sweep-dead-letters" in stderr
    assert "apply again" in stderr


def test_an_apply_goes_on_when_its_reader_is_gone(cloud: Cloud) -> None:
    """As of `apply | head -1`: a half created resource would be worse than an unread line."""
    with cloud.begin("apply") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("created: ")
        process.stdout.close()
        said = process.stderr.read()
        code = process.wait()

    assert code == 141
    assert said == "what is done is not read any more; it goes on.\n"
    assert cloud.provision("drift").code == 0


def test_what_failed_is_not_told_as_done_where_the_answer_cannot_be_written(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.server.refuse("Publisher/CreateTopic", permission_denied("pubsub.topics.create"))
    cloud.server.refuse("CreateDatabase", permission_denied("datastore.databases.create"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(provision, "print_json", refuse)
    monkeypatch.setattr(provision, "forget_stdout", lambda: None)  # of pytest, here

    failed = cloud.provision("apply", "--json")

    assert failed.code == 1
    assert "it is done" not in failed.stderr
    assert "apply again" in failed.stderr


def test_without_a_stdout_nothing_is_done(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["leasehold", "deploy", "apply"])
    monkeypatch.setattr(sys, "stdout", None)

    with pytest.raises(SystemExit) as ended:
        main()

    code = ended.value.code

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: stdout is closed")
    assert cloud.writes() == []


def test_a_region_that_does_not_exist_is_refused_with_those_that_do(cloud: Cloud) -> None:
    done = cloud.provision("apply", "--region", "europe-west77")

    assert done.code == 2
    assert done.stderr.startswith(
        "error: --region is 'europe-west77', which Cloud Scheduler and Cloud Tasks do not have; "
        "allowed: europe-west1, us-central1."
    )
    assert cloud.writes() == []


def test_a_project_that_does_not_exist_is_one_line(cloud: Cloud) -> None:
    done = cloud.provision("plan", "--project", "no-such-shop")

    assert done.code == 2
    assert done.stderr == (
        "error: there is no project no-such-shop that you may see: look for it with `gcloud "
        "projects list`, get roles/browser in it, or give --project-number.\n"
    )


def test_a_project_number_that_is_given_is_not_looked_up(cloud: Cloud) -> None:
    cloud.server.refuse("GetProject", api_disabled("cloudresourcemanager.googleapis.com"))

    refused = cloud.provision("plan")
    given = cloud.provision("plan", "--project-number", "123456789012")

    assert refused.code == 2
    enable = f"gcloud services enable cloudresourcemanager.googleapis.com --project={cloud.project}"
    assert f"Type: {enable} (or give --project-number)." in refused.stderr
    assert given.code == 0


def test_without_credentials_one_line_says_how_to_get_some(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nowhere = str(tmp_path_factory.mktemp("home"))
    settings = {"HOME": nowhere, "CLOUDSDK_CONFIG": nowhere, "NO_GCE_CHECK": "true"}

    done = cloud.provision("plan", LEASEHOLD_GOOGLE_EMULATOR="", **settings)

    assert done.code == 2
    assert "there are no credentials of Google Cloud here" in done.stderr
    assert "Type: gcloud auth application-default login" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_played_on_this_machine_is_made_there_without_credentials(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nowhere = str(tmp_path_factory.mktemp("home"))
    settings = {"HOME": nowhere, "CLOUDSDK_CONFIG": nowhere, "NO_GCE_CHECK": "true"}
    settings |= {"LEASEHOLD_GOOGLE_EMULATOR": "", "PUBSUB_EMULATOR_HOST": pubsub_host()}
    words = ("--project-number", "123456789012", "--json")

    done = [cloud.provision("apply", *words, **settings).states(*OURS) for _ in range(2)]

    made = ("queue pick-up", "topic leasehold-announcements", "topic leasehold-announcements-dead")
    assert [done[0][name] for name in made] == ["created"] * 3
    assert [done[1][name] for name in made] == ["present"] * 3
    assert done[1]["scheduler job sweep-dead-letters"] == "unknown"
    assert cloud.server.calls == []


def test_without_a_command_all_of_them_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code = deploy([])

    said = capsys.readouterr().out
    assert code == 0
    assert "Commands:" in said
    assert "apply" in said


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "init"])
def test_in_a_folder_without_its_tables_it_says_what_to_type(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ["--project=shop-prod", "--project-number=123456789012", "--region=europe-west1"]

    code = deploy([command, *([] if command in {"bundle", "hashes"} else place)])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: there is no deployment.py in ")
    assert said.endswith("type: leasehold deploy init\n")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_given_is_one_line_with_the_variable_that_gives_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)

    code = deploy(["apply"])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert "'--project' (env var: 'GOOGLE_CLOUD_PROJECT')" in said


def test_an_outage_is_waited_for_and_then_told(cloud: Cloud) -> None:
    cloud.server.refuse("CloudScheduler/GetJob", unavailable(), times=1)

    done = cloud.provision("plan", "--json")

    assert done.code == 0
    jobs = FUNCTIONS.called_by(Trigger.SCHEDULE)
    assert len(cloud.server.called("CloudScheduler/GetJob")) == len(jobs) + 1


def test_errors_are_json_too_where_json_is_asked_for(cloud: Cloud) -> None:
    done = cloud.provision("plan", "--json", "--region", "Europe West")

    assert done.code == 2
    assert "allowed: the name of a region" in json.loads(done.stdout)["error"]["message"]


def test_a_catalog_that_cannot_be_imported_is_one_line(cloud: Cloud) -> None:
    done = cloud.provision("plan", "--catalog", "no.such.catalog")

    assert done.code == 2
    assert "no.such.catalog" in done.stderr
    assert len(done.stderr.splitlines()) == 1
