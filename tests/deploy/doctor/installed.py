"""An installation in order, on local servers, which a test spoils in one way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from google.cloud import run_v2, scheduler_v1, secretmanager_v1
from google.cloud.firestore_admin_v1 import types as firestore
from google.iam.v1 import policy_pb2

from leasehold.deploy.resources.indexes import DECLARED
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, Secret, Trigger
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.firestore import FirestoreAdmin
from tests.deploy.google_services.run import CloudRun
from tests.deploy.google_services.scheduler import Scheduler
from tests.deploy.google_services.secrets import Secrets

PROJECT, REGION = "shop-prod", "europe-west1"
LOCATION = f"projects/{PROJECT}/locations/{REGION}"
QUEUES = ("write-letter", "send")
STEP_URL = f"https://execute-step-123456789012.{REGION}.run.app"
CALLERS = {Trigger.TASKS: "tasks", Trigger.SCHEDULE: "schedule", Trigger.EVENTS: "events"}


def email(account: str) -> str:
    return f"leasehold-{account}@{PROJECT}.iam.gserviceaccount.com"


def environment_of(entry: FunctionEntry) -> run_v2.ExecutionEnvironment:
    """Return the execution environment that a build chooses for a function."""
    chosen = run_v2.ExecutionEnvironment
    if entry.environment:
        return chosen.EXECUTION_ENVIRONMENT_GEN2
    return chosen.EXECUTION_ENVIRONMENT_UNSPECIFIED


def secret_variables(secrets: Iterable[Secret]) -> list[run_v2.EnvVar]:
    """Return secrets as a deploy gives them to a function."""
    found = []
    for secret in secrets:
        key = run_v2.SecretKeySelector(secret=secret.variable, version=secret.version)
        source = run_v2.EnvVarSource(secret_key_ref=key)
        found.append(run_v2.EnvVar(name=secret.variable, value_source=source))
    return found


@dataclass
class Installed:
    """What is deployed.

    Args:
        server: in place of Google's gRPC APIs.
        clients: with which a test changes what is there.
        topic: of the announcements; the emulator is shared, and each test has its own.
    """

    server: GoogleServer
    clients: GoogleClients
    topic: str
    variables: dict[str, dict[str, str]] = field(default_factory=dict)

    def everything(self) -> None:
        """Deploy all of it, as the table says."""
        for entry in FUNCTIONS:
            self.function(entry)
            for secret in entry.secrets:  # what a project adds
                self.secret(secret.variable)
            self.invokers(entry, self.caller(entry))
        for entry in FUNCTIONS.called_by(Trigger.SCHEDULE):
            self.job(entry)
        for queue in QUEUES:
            self.queue(queue)
        self.pubsub()
        self.firestore()

    def caller(self, entry: FunctionEntry) -> str:
        account = CALLERS.get(entry.trigger)
        return f"serviceAccount:{email(account)}" if account else "group:team@shop.example"

    def settings(self, entry: FunctionEntry) -> dict[str, str]:
        return {
            "LEASEHOLD_STORE": f"firestore://{PROJECT}/(default)",
            "LEASEHOLD_TASKS": f"cloud-tasks://{PROJECT}/{REGION}",
            "LEASEHOLD_EVENTS": f"pubsub://{PROJECT}/{self.topic}",
            "LEASEHOLD_ARTIFACTS": f"gs://{PROJECT}-leasehold/artifacts",
            "LEASEHOLD_CATALOG": "letters",
            "LEASEHOLD_FUNCTION_URL": STEP_URL,
            "LEASEHOLD_CALLERS": "iam",
            "THREADS": str(entry.concurrency),
        }

    def function(
        self,
        entry: FunctionEntry,
        variables: Mapping[str, str] = {},
        *,
        secrets: Iterable[Secret] | None = None,
        state: str = "CONDITION_SUCCEEDED",
        **fields: Any,
    ) -> None:
        """Deploy a function; `fields` are of its template."""
        env = [
            run_v2.EnvVar(name=name, value=value)
            for name, value in {**self.settings(entry), **variables}.items()
        ] + secret_variables(entry.secrets if secrets is None else secrets)
        template: dict[str, Any] = {
            "timeout": entry.timeout,
            "max_instance_request_concurrency": entry.concurrency,
            "service_account": email(entry.service),
            "containers": [run_v2.Container(env=env)],
            "scaling": {"max_instance_count": entry.max_instances},
            "execution_environment": environment_of(entry),
        }
        self.server.service(CloudRun).deploy(
            REGION,
            entry.service,
            template=run_v2.RevisionTemplate(**template | fields),
            terminal_condition=run_v2.Condition(state=state, message="no memory left."),
        )

    def secret(self, name: str) -> None:
        """Let there be a secret with a value."""
        kept = self.server.service(Secrets)
        full = f"projects/{PROJECT}/secrets/{name}"
        kept.secrets[full] = secretmanager_v1.Secret(name=full)
        kept.give(name)

    def invokers(self, entry: FunctionEntry, *members: str) -> None:
        binding = policy_pb2.Binding(role="roles/run.invoker", members=members)
        policy = policy_pb2.Policy(bindings=[binding])
        self.server.world.policies[f"{LOCATION}/services/{entry.service}"] = policy

    def job(self, entry: FunctionEntry, **fields: Any) -> None:
        name = f"{LOCATION}/jobs/{entry.service}"
        job: dict[str, Any] = {
            "name": name,
            "schedule": entry.schedule,
            "attempt_deadline": entry.timeout,
            "state": scheduler_v1.Job.State.ENABLED,
            "http_target": {
                "uri": f"https://{entry.service}-123456789012.{REGION}.run.app/",
                "oidc_token": {"service_account_email": email("schedule")},
            },
        }
        self.server.service(Scheduler).jobs[name] = scheduler_v1.Job(**job | fields)

    def queue(self, queue: str, **fields: Any) -> None:
        settings: dict[str, Any] = {
            "name": f"{LOCATION}/queues/{queue}",
            "retry_config": {
                "max_attempts": -1,
                "min_backoff": timedelta(seconds=10),
                "max_backoff": timedelta(seconds=300),
            },
            "rate_limits": {"max_concurrent_dispatches": FUNCTIONS.of_tasks.requests_at_once // 2},
        }
        self.clients.tasks.create_queue({"parent": LOCATION, "queue": settings | fields}, **ONE_TRY)

    def firestore(self) -> None:
        admin = self.server.service(FirestoreAdmin)
        database = f"projects/{PROJECT}/databases/(default)"
        kept = firestore.Database.PointInTimeRecoveryEnablement.POINT_IN_TIME_RECOVERY_ENABLED
        admin.databases[database] = firestore.Database(
            name=database,
            type_=firestore.Database.DatabaseType.FIRESTORE_NATIVE,
            point_in_time_recovery_enablement=kept,
        )
        daily = firestore.BackupSchedule(
            name=f"{database}/backupSchedules/daily", daily_recurrence=firestore.DailyRecurrence()
        )
        admin.schedules[daily.name] = daily
        declared = json.loads(DECLARED.read_text())
        for number, index in enumerate(declared["indexes"]):
            name = f"{database}/collectionGroups/{index['collectionGroup']}/indexes/{number:03}"
            fields = [
                firestore.Index.IndexField(
                    field_path=each["fieldPath"],
                    order=each.get("order"),
                    array_config=each.get("arrayConfig"),
                )
                for each in [*index["fields"], {"fieldPath": "__name__", "order": "ASCENDING"}]
            ]
            ready = firestore.Index.State.READY
            scope = index["queryScope"]
            made = firestore.Index(name=name, query_scope=scope, fields=fields, state=ready)
            admin.indexes[name] = made
        for one in declared["fieldOverrides"]:
            group, path = one["collectionGroup"], one["fieldPath"]
            name = f"{database}/collectionGroups/{group}/fields/{path}"
            config = firestore.Field.IndexConfig()
            admin.fields[name] = firestore.Field(name=name, index_config=config)

    def pubsub(self, **fields: Any) -> None:
        """Make topic, dead letters and subscription; `fields` are of the subscription."""
        topic = f"projects/{PROJECT}/topics/{self.topic}"
        for name in (topic, f"{topic}-dead"):
            self.clients.publisher.create_topic({"name": name}, **ONE_TRY)
        self.subscription("kept", f"{topic}-dead")
        policy = {"dead_letter_topic": f"{topic}-dead", "max_delivery_attempts": 10}
        settings: dict[str, Any] = {
            "ack_deadline_seconds": 600,
            "dead_letter_policy": policy,
            "retry_policy": {
                "minimum_backoff": timedelta(seconds=10),
                "maximum_backoff": timedelta(seconds=600),
            },
            "message_retention_duration": timedelta(days=1),
            "expiration_policy": {},
            "push_config": {
                "push_endpoint": "http://127.0.0.1:9/",
                "oidc_token": {"service_account_email": email("events")},
            },
        }
        self.subscription("eventarc-deliver-notification", topic, **settings | fields)

    def subscription(self, name: str, topic: str, **fields: Any) -> None:
        full = f"projects/{PROJECT}/subscriptions/{name}-{self.topic}"
        message = {"name": full, "topic": topic, **fields}
        self.clients.subscriber.create_subscription(message, **ONE_TRY)
