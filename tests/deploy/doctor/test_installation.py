"""`leasehold doctor --live` finds hidden problems of an installation, and only looks."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.cloud import firestore_admin_v1, run_v2, scheduler_v1
from google.iam.v1 import policy_pb2

from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.doctor.installation import examine_installation, half_emulated
from leasehold.doctor.setup import Setup, lenient_settings
from leasehold.google_clients.clients import EMULATOR, ONE_TRY, GoogleClients
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import Secret
from tests.deploy.doctor.installed import (
    LOCATION,
    PROJECT,
    REGION,
    STEP_URL,
    Installed,
    email,
    secret_variables,
)
from tests.deploy.gcloud_commands import need_gcloud, problems_of
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.firestore import BEGUN, FirestoreAdmin
from tests.deploy.google_services.operations import begun
from tests.deploy.google_services.quotas import Quotas
from tests.deploy.google_services.refusals import api_disabled, permission_denied
from tests.deploy.google_services.run import CloudRun
from tests.deploy.google_services.secrets import Secrets
from tests.worlds.emulators import pubsub_host
from tests.worlds.shell import Shell, only_line

DATABASE = f"projects/{PROJECT}/databases/(default)"

STEP, API, LEASES, SWEEP, _, NOTIFIER = FUNCTIONS
AT = f"--region={REGION} --project={PROJECT}"
QUEUES_AT = f"--location={REGION} --project={PROJECT}"
LIVE = ("doctor", "--live", "--project", PROJECT, "--region", REGION)


@pytest.fixture
def installed() -> Iterator[Installed]:
    """An installation in order."""
    double = CloudTasksDouble()
    with GoogleServer(pubsub=pubsub_host()) as server:
        environ = {EMULATOR: server.address, "CLOUD_TASKS_EMULATOR_URL": double.start()}
        clients = GoogleClients(PROJECT, environ)
        installed = Installed(server, clients, f"told-{uuid.uuid4().hex[:8]}")  # noqa: TID251
        installed.everything()
        server.calls.clear()
        yield installed
    double.stop()


def look(shell: Shell, installed: Installed, **settings: str) -> list[dict[str, Any]]:
    """Return what is found."""
    done = shell.run(*LIVE, "--json", **installed.clients.environ, **settings)
    assert done.returncode in {0, 1}, done.stderr
    return list(json.loads(done.stdout)["findings"])


def test_an_installation_in_order_is_one_line_and_no_call_writes(
    shell: Shell, installed: Installed
) -> None:
    done = shell.run(*LIVE, **installed.clients.environ)

    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing found\n", "")
    assert installed.server.writes() == []
    assert len(installed.server.calls) > 5


def spoil(installed: Installed) -> None:
    """Spoil functions, callers, a queue and the job in every way that a look can find."""
    callers = {"LEASEHOLD_CALLERS": ""}
    short = timedelta(seconds=540)
    installed.function(STEP, callers, timeout=short, max_instance_request_concurrency=2)
    installed.function(API, {"THREADS": "4", "LEASEHOLD_FUNCTION_URL": "https://old.run.app"})
    installed.function(LEASES, state="CONDITION_FAILED")
    store = {"LEASEHOLD_STORE": "firestore://shop-prod/other"}
    installed.function(SWEEP, store, service_account="123-compute@developer.example")
    installed.invokers(API, "allUsers")
    installed.invokers(STEP, "user:ada@shop.example")
    installed.clients.tasks.pause_queue({"name": f"{LOCATION}/queues/send"})
    installed.job(
        SWEEP,
        status={"code": 7, "message": "PERMISSION_DENIED"},
        schedule="0 * * * *",
        attempt_deadline=timedelta(seconds=15),
        state=scheduler_v1.Job.State.PAUSED,
        http_target={"uri": "https://sweep-dead-letters-1.run.app"},
    )


def test_everything_that_is_spoilt_is_found_with_its_repair(
    shell: Shell, installed: Installed
) -> None:
    spoil(installed)
    installed.server.calls.clear()

    found = look(shell, installed)

    update = "gcloud run services update"
    job = f"leasehold deploy apply --update --project={PROJECT} --region={REGION}"
    of_step, of_api, of_sweep = f"execute-step {AT}", f"serve-api {AT}", f"sweep-dead-letters {AT}"
    assert {one["code"]: one["repair"].replace(f" {QUEUES_AT}", "") for one in found} == {
        "function_timeout": f"{update} {of_step} --timeout=1860s",
        "function_concurrency": f"{update} {of_step} --concurrency=1",
        "function_not_ready": f"gcloud run services describe manage-lease {AT}",
        "function_account": (
            f"{update} {of_sweep} --service-account={email('sweep-dead-letters')}"
        ),
        "settings_differ": (
            f"{update} {of_sweep} --update-env-vars='LEASEHOLD_STORE=firestore://shop-prod/(default)'"
        ),
        "no_callers": f"{update} {of_step} --update-env-vars=LEASEHOLD_CALLERS={email('tasks')}",
        "function_threads": f"{update} {of_api} --update-env-vars=THREADS=40",
        "function_target": f"{update} {of_api} --update-env-vars=LEASEHOLD_FUNCTION_URL={STEP_URL}",
        "public_function": (
            "gcloud run services remove-iam-policy-binding serve-api "
            f"--member=allUsers --role=roles/run.invoker {AT}"
        ),
        "invoker_missing": (
            "gcloud run services add-iam-policy-binding execute-step "
            f"--member=serviceAccount:{email('tasks')} --role=roles/run.invoker {AT}"
        ),
        "queue_paused": "gcloud tasks queues resume send",
        "job_paused": "gcloud scheduler jobs resume sweep-dead-letters",
        "job_failed": (
            "gcloud logging read 'resource.labels.job_id=\"sweep-dead-letters\"' "
            "--project=shop-prod --limit=5"
        ),
        "job_schedule": job,
        "job_deadline": job,
        "job_account": job,
    }
    assert len(found) == 16
    assert installed.server.writes() == []


def test_a_function_without_its_check_and_one_that_is_gone_are_found(
    shell: Shell, installed: Installed
) -> None:
    services = installed.server.service(CloudRun).services
    services[f"{LOCATION}/services/{API.service}"].invoker_iam_disabled = True
    del services[f"{LOCATION}/services/{SWEEP.service}"]

    found = {one["code"]: (one["message"], one["repair"]) for one in look(shell, installed)}

    assert found["public_function"] == (
        "EVERYONE may call function serve-api: its check by IAM is off.",
        f"gcloud run services update serve-api {AT} --invoker-iam-check",
    )
    assert found["function_missing"][0].startswith("Function sweep-dead-letters is not deployed: ")


def test_a_password_in_a_setting_of_a_function_is_not_shown(
    shell: Shell, installed: Installed
) -> None:
    installed.function(API, {"LEASEHOLD_FUNCTION_URL": "https://ada:s3cret@old.run.app"})

    done = shell.run(*LIVE, **installed.clients.environ)

    assert "old.run.app" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_steps_outside_of_the_second_generation_environment_are_warned_of(
    shell: Shell, installed: Installed
) -> None:
    """Cloud Run chooses one where none is chosen; the other functions run no handlers."""
    unspecified = run_v2.ExecutionEnvironment.EXECUTION_ENVIRONMENT_UNSPECIFIED
    installed.function(STEP, execution_environment=unspecified)

    done = shell.run(*LIVE, **installed.clients.environ)

    assert (done.returncode, done.stdout) == (0, "nothing found\n")
    assert only_line(done.stderr) == (
        "warning: Function execute-step is not in the second-generation execution environment: "
        "where its handlers start processes, their memory is counted too high. Type: gcloud run "
        f"services update execute-step {AT} --execution-environment=gen2"
    )


def test_queues_that_are_missing_drop_tasks_or_deliver_too_many_are_found(
    shell: Shell, installed: Installed
) -> None:
    retry = {"max_attempts": 5, "max_backoff": timedelta(hours=1)}
    installed.queue("send-2", retry_config=retry, rate_limits={"max_concurrent_dispatches": 100})
    letters = (shell.folder / "letters.py").read_text()
    renamed = letters.replace('"send"', '"send-2"').replace('"write_letter"', '"write"')
    (shell.folder / "letters.py").write_text(renamed)

    found = look(shell, installed)

    assert [one["code"] for one in found] == [
        "queue_missing",
        "queue_attempts",
        "queue_backoff",
        "queue_concurrency",
    ]
    apply = f"leasehold deploy apply --project={PROJECT} --region={REGION}"
    assert found[0]["repair"] == apply


def test_numbers_that_a_person_chose_are_drift_and_no_finding(
    shell: Shell, installed: Installed
) -> None:
    """An hour's wait does harm, and half a minute's does not; the same look has both."""
    letters = (shell.folder / "letters.py").read_text()
    (shell.folder / "letters.py").write_text(letters.replace('"send"', '"send-4"'))
    retry = {"max_attempts": -1, "max_doublings": 3, "max_backoff": timedelta(seconds=400)}
    installed.queue("send-4", retry_config=retry)

    assert look(shell, installed) == []


def test_a_job_that_calls_something_else_is_found(shell: Shell, installed: Installed) -> None:
    installed.job(SWEEP, http_target={"uri": "https://old-sweep-1.run.app"})

    codes = [(one["code"], one["message"]) for one in look(shell, installed)]

    assert [code for code, _ in codes] == ["job_missing", "job_account"]
    assert "uri is https://old-sweep-1.run.app" in codes[0][1]


def test_indexes_that_are_missing_being_built_or_broken_are_found(
    shell: Shell, installed: Installed
) -> None:
    admin = installed.server.service(FirestoreAdmin)
    names = sorted(admin.indexes)
    del admin.indexes[names[0]]
    admin.indexes[names[1]].state = firestore_admin_v1.Index.State.CREATING
    admin.indexes[names[2]].state = firestore_admin_v1.Index.State.NEEDS_REPAIR
    del admin.fields[next(name for name in sorted(admin.fields) if "/runs/" in name)]

    found = look(shell, installed)

    assert [one["code"] for one in found] == [
        "index_missing",
        "index_building",
        "index_broken",
        "exemption_missing",
    ]
    where = f"--project={PROJECT} --database='(default)'"
    apply = f"leasehold deploy apply --project={PROJECT} --region={REGION}"
    delete = f"gcloud firestore indexes composite delete {names[2].rpartition('/')[2]} {where}"
    assert found[2]["repair"] == f"{delete} && {apply}"
    admin.databases.clear()
    assert [one["code"] for one in look(shell, installed)] == ["database_missing"]


def test_a_database_without_backups_is_a_warning(shell: Shell, installed: Installed) -> None:
    admin = installed.server.service(FirestoreAdmin)
    admin.schedules.clear()
    admin.databases[DATABASE] = firestore_admin_v1.types.Database(
        name=DATABASE, type_=firestore_admin_v1.types.Database.DatabaseType.FIRESTORE_NATIVE
    )

    done = shell.run(*LIVE, "--json", **installed.clients.environ)

    versions, backups = json.loads(done.stdout)["warnings"]
    apply = f"leasehold deploy apply --project={PROJECT} --region={REGION}"
    assert done.returncode == 0  # a choice that somebody may have made
    assert (backups["code"], backups["repair"]) == ("no_backups", apply)
    assert versions["code"] == "no_earlier_versions"
    assert versions["repair"].endswith(" --enable-pitr")


def test_what_firestore_builds_says_since_when_and_what_it_could_not_is_found(
    shell: Shell, installed: Installed
) -> None:
    admin = installed.server.service(FirestoreAdmin)
    Index, Ttl = firestore_admin_v1.Index, firestore_admin_v1.Field.TtlConfig  # noqa: N806
    index = admin.indexes[min(admin.indexes)]
    index.state = Index.State.CREATING
    metadata = firestore_admin_v1.IndexOperationMetadata(start_time=BEGUN, index=index.name)
    begun(installed.server.world, DATABASE, index, done=False, metadata=metadata)
    runs = next(name for name in sorted(admin.fields) if "/runs/" in name)
    admin.fields[runs].index_config.indexes = [
        Index(state=Index.State.NEEDS_REPAIR, fields=[Index.IndexField(field_path="x")])
    ]
    ledger = f"{DATABASE}/collectionGroups/ledger/fields/endedAt"
    kept = firestore_admin_v1.Field(name=ledger, ttl_config={"state": Ttl.State.NEEDS_REPAIR})
    kept.index_config.uses_ancestor_config = True
    admin.fields[ledger] = kept

    found = look(shell, installed)

    assert [one["code"] for one in found] == ["index_building", "index_broken", "expiry_broken"]
    assert "since 2026-03-01T12:00:00Z; queries" in found[0]["message"]
    assert found[1]["repair"].startswith("gcloud firestore indexes fields update ")
    assert "--disable-ttl && leasehold deploy apply " in found[2]["repair"]


def test_functions_that_may_take_more_than_the_quota_are_found(
    shell: Shell, installed: Installed
) -> None:
    """As in a project that has less than a new one, which the table exactly takes the CPUs of."""
    quotas = installed.server.service(Quotas)
    quotas.of_regions["CpuAllocPerProjectRegion", REGION] = 10_000
    quotas.of_regions["MemAllocPerProjectRegion", REGION] = 24 * 1024**3

    cpus, memory = look(shell, installed)

    assert (cpus["code"], memory["code"]) == ("quota", "quota")
    assert cpus["message"] == (
        "The functions may take 20 CPUs together, and the project has 10 CPUs in europe-west1: "
        "under load instances are refused, of the sweep and the API too. Ask for more, or lower "
        "max_instances in deployment.py."
    )
    assert "28 GiB of memory together, and the project has 24 GiB of memory" in memory["message"]
    assert shlex.split(cpus["repair"])[-3:] == [
        "--quota-id=CpuAllocPerProjectRegion",
        "--dimensions=region=europe-west1",
        "--preferred-value=20000",
    ]
    need_gcloud()
    assert [*problems_of(shlex.split(cpus["repair"])[1:])] == []


def test_what_was_deployed_by_hand_counts_towards_the_quota(
    shell: Shell, installed: Installed
) -> None:
    """Not what the table has: a person may have given the steps more, and a raise of the quota."""
    env = [
        run_v2.EnvVar(name=name, value=value) for name, value in installed.settings(STEP).items()
    ] + secret_variables(STEP.secrets)
    limits = {"cpu": "2000m", "memory": "4Gi"}
    container = run_v2.Container(env=env, resources={"limits": limits})
    installed.function(STEP, containers=[container], scaling={"max_instance_count": 20})

    assert [
        (one["code"], one["message"].partition(" together")[0]) for one in look(shell, installed)
    ] == [
        ("quota", "The functions may take 48 CPUs"),
        ("quota", "The functions may take 84 GiB of memory"),
    ]
    quotas = installed.server.service(Quotas)
    quotas.of_regions["CpuAllocPerProjectRegion", REGION] = -1  # unlimited
    quotas.of_all["MemAllocPerProjectRegion"] = 84 * 1024**3
    assert look(shell, installed) == []


def test_a_quota_that_may_not_be_read_is_said_so(shell: Shell, installed: Installed) -> None:
    installed.server.refuse("GetQuotaInfo", api_disabled("cloudquotas.googleapis.com"))

    (found,) = look(shell, installed)

    assert found["code"] == "not_looked_at"
    assert found["repair"].startswith("gcloud services enable cloudquotas.googleapis.com")


def test_each_queue_that_delivers_more_than_its_share_has_a_command(
    shell: Shell, installed: Installed
) -> None:
    letters = (shell.folder / "letters.py").read_text()
    renamed = letters.replace('"send"', '"send-3"').replace('"write_letter"', '"write-3"')
    (shell.folder / "letters.py").write_text(renamed)
    answered = FUNCTIONS.of_tasks.requests_at_once
    for queue in ("write-3", "send-3"):
        installed.queue(queue, rate_limits={"max_concurrent_dispatches": answered})

    (found,) = look(shell, installed)

    share = f"--max-concurrent-dispatches={answered // 2}"
    where = f"--location={REGION} --project={PROJECT} {share}"
    assert found["repair"].split(" && ") == [
        f"gcloud tasks queues update {queue} {where}" for queue in ("write-3", "send-3")
    ]


def test_a_subscription_as_it_is_made_unasked_is_found(shell: Shell, installed: Installed) -> None:
    topic = f"projects/{PROJECT}/topics/{installed.topic}"
    name = f"projects/{PROJECT}/subscriptions/eventarc-deliver-notification-{installed.topic}"
    installed.clients.subscriber.delete_subscription({"subscription": name}, **ONE_TRY)
    hostile = "http://127.0.0.1:9/?'$(id)'"
    installed.subscription(
        "eventarc-bare-deliver-notification",
        topic,
        push_config={"push_endpoint": hostile},
        message_retention_duration=timedelta(minutes=10),
        expiration_policy={"ttl": timedelta(days=31)},
    )

    found = look(shell, installed)

    assert [one["code"] for one in found] == [
        "subscription_retry",
        "subscription_dead_letters",
        "subscription_account",
        "subscription_deadline",
        "subscription_retention",
        "subscription_expires",
    ]
    assert shlex.split(found[2]["repair"])[-1] == f"--push-endpoint={hostile}"


def test_a_topic_without_a_subscription_and_none_at_all_are_found(
    shell: Shell, installed: Installed
) -> None:
    name = f"projects/{PROJECT}/subscriptions/eventarc-deliver-notification-{installed.topic}"
    installed.clients.subscriber.delete_subscription({"subscription": name}, **ONE_TRY)
    assert [one["code"] for one in look(shell, installed)] == ["subscription_missing"]

    topic = f"projects/{PROJECT}/topics/{installed.topic}"
    installed.clients.publisher.delete_topic({"topic": topic}, **ONE_TRY)
    assert [one["code"] for one in look(shell, installed)] == ["topic_missing"]


def test_a_permission_that_is_missing_is_one_line_and_the_other_looks_go_on(
    shell: Shell, installed: Installed
) -> None:
    installed.server.refuse("CloudScheduler/GetJob", permission_denied("cloudscheduler.jobs.get"))
    installed.server.refuse("GetSubscription", api_disabled("pubsub.googleapis.com"))
    installed.invokers(API, "allAuthenticatedUsers")

    found = look(shell, installed)

    assert [one["code"] for one in found] == ["public_function", "not_looked_at", "not_looked_at"]
    assert "EVERYONE WITH A GOOGLE ACCOUNT may call" in found[0]["message"]
    assert "the permission cloudscheduler.jobs.get is missing" in found[1]["message"]
    assert found[1]["repair"].startswith("gcloud projects add-iam-policy-binding shop-prod")
    assert found[2]["repair"].startswith("gcloud services enable pubsub.googleapis.com")


def test_a_missing_permission_for_functions_does_not_hide_queues_and_topics(
    shell: Shell, installed: Installed
) -> None:
    installed.server.refuse("ListServices", permission_denied("run.services.list"))
    installed.clients.tasks.pause_queue({"name": f"{LOCATION}/queues/send"})

    found = look(shell, installed, LEASEHOLD_EVENTS=f"pubsub://{PROJECT}/nowhere")

    assert [one["code"] for one in found] == ["queue_paused", "topic_missing", "not_looked_at"]
    assert found[2]["message"].startswith(
        "The functions, the settings of the functions, the quota of Cloud Run, who may call the "
        "functions, the secrets of the functions could not be looked at: the permission "
        "run.services.list is missing in project shop-prod"
    )
    assert len(installed.server.called("ListServices")) == 1


def test_queues_that_are_looked_for_elsewhere_than_the_rest_are_said_so() -> None:
    tasks, others = {"CLOUD_TASKS_EMULATOR_URL": "http://localhost:1"}, {EMULATOR: "localhost:2"}

    (left_over,) = half_emulated(tasks)

    assert left_over.repair == "unset CLOUD_TASKS_EMULATOR_URL"
    assert [one.code for one in half_emulated(others)] == ["half_emulated"]
    assert [*half_emulated(tasks | others), *half_emulated({})] == []


def test_the_wrong_region_is_one_line(shell: Shell, installed: Installed) -> None:
    words = [word.replace(REGION, "us-central1") for word in LIVE]

    done = shell.run(*words, **installed.clients.environ)

    assert done.stdout.splitlines()[0].startswith(
        "No function of the table is deployed in project shop-prod, region us-central1"
    )


def test_what_is_set_here_and_is_not_what_is_deployed_is_warned_of(
    shell: Shell, installed: Installed
) -> None:
    done = shell.run(*LIVE, LEASEHOLD_STORE="sqlite:///x.db", **installed.clients.environ)

    assert (done.returncode, done.stdout) == (0, "nothing found\n")
    assert only_line(done.stderr).startswith("warning: LEASEHOLD_STORE is sqlite:///x.db here")


def test_a_secret_in_a_plain_variable_is_found(shell: Shell, installed: Installed) -> None:
    (shell.folder / "letters.py").write_text(
        (shell.folder / "letters.py").read_text()
        + "\nfrom leasehold import SlackChannel\n"
        + 'CHANNELS = Registry("channels", [SlackChannel(name="x", url_variable="SLACK_URL")])\n'
    )
    installed.function(NOTIFIER, {"SLACK_URL": "https://hooks.example/s3cret"})

    done = shell.run(*LIVE, LEASEHOLD_PUBLIC_URL="https://x.run.app", **installed.clients.environ)

    assert "SLACK_URL is a plain variable of function deliver-notification" in done.stdout
    assert "Secret SLACK_URL: missing; no function can be deployed with it. Type: " in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_a_secret_of_a_row_that_its_function_lacks_is_found(
    shell: Shell, installed: Installed
) -> None:
    """A key that no row names is gone with the next build; one that a row names is looked after."""
    names = ("A_KEY", "B_KEY", "C_KEY", "D_KEY", "E_KEY")
    wanted = (*map(Secret, names[:-1]), Secret("E_KEY", version="7"))
    table = (Path(__file__).parents[3] / "deployment.py").read_text()
    table = table.replace("import FunctionEntry,", "import Secret, FunctionEntry,")
    table = table.replace(
        "max_instances=12,", f"max_instances=12,\n            secrets={wanted!r},"
    )
    (shell.folder / "deployment.py").write_text(table)
    for name in names[1:]:
        installed.secret(name)
    installed.server.service(Secrets).set_state("B_KEY", 1, "DISABLED")
    given = (Secret("A_KEY"), Secret("B_KEY"), Secret("C_KEY", version="1"))
    installed.function(STEP, {"D_KEY": "s3cret"}, secrets=given)
    installed.server.calls.clear()

    done = shell.run(*LIVE, **installed.clients.environ)

    update = f"Type: gcloud run services update execute-step {AT}"
    never = "no function can be deployed with it. Type:"
    apply = f"leasehold deploy apply --project={PROJECT} --region={REGION}"
    said = done.stdout.splitlines()
    assert [line.partition(" %s ")[0] for line in said[:3]] == [
        f"Secret A_KEY: missing; {never} {apply}",
        (
            f"Secret B_KEY: waits for its version 1, which is disabled; {never} gcloud secrets "
            f"versions enable 1 --secret=B_KEY --project={PROJECT}"
        ),
        f"Secret E_KEY: waits for its version 7; {never} read -rs VALUE && printf",
    ]
    assert said[3:] == [
        (
            "Function execute-step has C_KEY:1 as C_KEY, and the table has version latest of the "
            f"secret of that name. {update} --update-secrets=C_KEY=C_KEY:latest"
        ),
        (
            "D_KEY is a plain variable of function execute-step: everyone who may look at the "
            f"function reads it. {update} --remove-env-vars=D_KEY "
            "--update-secrets=D_KEY=D_KEY:latest"
        ),
        (
            "Function execute-step has nothing as E_KEY, and the table has version 7 of the secret "
            f"of that name. {update} --update-secrets=E_KEY=E_KEY:7"
        ),
    ]
    assert "s3cret" not in done.stdout + done.stderr
    assert installed.server.writes() == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--live",), "--live needs --project and --region; or set LEASEHOLD_TASKS="),
        (("--live", "--project", "p"), "--live needs --region; or set LEASEHOLD_TASKS="),
        (("--live", "--project", "a/b"), "'a/b'; allowed: up to 63 of a-z 0-9 . : -."),
        (("--region", "r"), "--project and --region go with --live."),
    ],
)
def test_words_that_lead_nowhere_are_one_line(
    shell: Shell, words: tuple[str, ...], line: str
) -> None:
    done = shell.run("doctor", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert line in only_line(done.stderr)


def test_project_and_region_come_from_the_settings(shell: Shell, installed: Installed) -> None:
    settings = {
        "LEASEHOLD_TASKS": f"cloud-tasks://{PROJECT}/{REGION}",
        "LEASEHOLD_FUNCTION_URL": STEP_URL,
        "LEASEHOLD_ARTIFACTS": "gs://b/p",
    }

    shell.run("doctor", "--live", **installed.clients.environ, **settings)

    (listed,) = installed.server.called("Services/ListServices")
    assert listed == run_v2.ListServicesRequest(parent=LOCATION)


def test_a_server_that_hangs_keeps_nothing_else_from_being_looked_at(
    shell: Shell, installed: Installed
) -> None:
    installed.server.hang("CloudScheduler/GetJob")
    installed.invokers(API, "allUsers")
    setup = Setup(installed.clients.environ, lenient_settings({}))

    found = examine_installation(setup, PROJECT, REGION, within_s=6.0)

    assert "public_function" in [one.code for one in found]
    assert found[-1].message == (
        "The jobs of Cloud Scheduler could not be looked at: no answer within 6 s."
    )


def test_a_variable_without_an_address_is_one_finding_without_a_wait(
    shell: Shell,
) -> None:
    done = shell.run(*LIVE, **{EMULATOR: "a b;c"})

    assert done.returncode == 1
    assert f"{EMULATOR} is 'a b;c'; allowed: HOST:PORT. Type: unset {EMULATOR}" in done.stdout


def test_names_of_strangers_are_safe_in_a_shell(shell: Shell, installed: Installed) -> None:
    name = "x'; reboot; $(x)"
    service = f"{LOCATION}/services/{API.service}"
    public = policy_pb2.Binding(role=f"roles/{name}", members=["allUsers"])
    installed.server.world.policies[service].bindings.append(public)

    found = {one["code"]: shlex.split(one["repair"]) for one in look(shell, installed)}

    assert f"--role=roles/{name}" in found["public_function"]
