"""The parts of the docs that are about a deployed bundle: functions, permissions, alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from docs.markdown import table
from leasehold import PipelineEntry, Registry, SlackChannel, StepDispatchEntry
from leasehold.cli.deploy.cloudbuild import substitutions
from leasehold.deploy import permissions as may
from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import Kind, Permission, permissions_of
from leasehold.deploy.resources.alert_policies import ALERTS, Alert
from leasehold.deploy.resources.log_metrics import METRICS
from leasehold.deploy.tables import DEFAULTS
from leasehold.google_clients.clients import CALL
from leasehold.registry.channels import TopicChannel
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import ACCOUNT_PREFIX, FunctionEntry, Trigger
from leasehold.registry.pipelines import Catalog

_INSTALLATION: Final = Installation(
    "PROJECT",
    "NUMBER",
    "REGION",
    callers=("--caller",),
    workers=("--worker",),
)
_STEP: Final = StepDispatchEntry(
    step_type="step",
    handler="steps:step",
    agent_timeout=timedelta(minutes=1),
    dispatch_deadline=timedelta(minutes=2),
)
_CATALOG: Final = Catalog(
    Registry("dispatch", [_STEP]),
    Registry("pipelines", [PipelineEntry(name="steps", steps=("step",))]),
    channels=Registry(
        "channels",
        [
            SlackChannel(name="people", url_variable="VARIABLE"),
            TopicChannel(name="programs", topic="projects/another/topics/programs"),
        ],
    ),
)

_WHY: Final[Mapping[str, str]] = {
    may.READ_AND_WRITE: "read and write runs",
    CALL: "call it",
    may.PUBLISH: "publish",
    may.USE_OBJECTS: "read, write and delete files of runs",
    may.READ_SECRET: "read it",
    may.PUT_TASKS[0]: "create tasks",
    may.PUT_TASKS[1]: "look whether a task is still there",
    may.SIGN_IN_AS: "have tasks sign in as it",
}


#: Roles of the deployer in the project, and what it needs each for.
DEPLOYER_ROLES: Final[tuple[tuple[str, str], ...]] = (
    ("roles/logging.logWriter", "the log of the build"),
    (
        "roles/storage.objectViewer",
        "the source that `gcloud builds submit` uploads; what live runs are given",
    ),
    ("roles/cloudbuild.builds.editor", "starts the gate, as its own build"),
    ("roles/serviceusage.serviceUsageConsumer", "uploads the source of the gate"),
    ("roles/cloudfunctions.developer", "deploys functions"),
    ("roles/run.admin", "says who may call them, and calls the runs API in the smoke test"),
    ("roles/cloudtasks.queueAdmin", "the queue of a step type that is new"),
    ("roles/cloudscheduler.admin", "the job of the sweep"),
    ("roles/pubsub.admin", "topics; what Eventarc's subscription lacks, and who may publish"),
    ("roles/datastore.indexAdmin", "indexes, exemptions and retention of Firestore"),
    ("roles/logging.configWriter", "metrics that are counted from log lines"),
    ("roles/monitoring.alertPolicyEditor", "alert policies"),
    ("roles/monitoring.notificationChannelEditor", "whom alerts are sent to"),
    (
        "roles/datastore.viewer",
        "asks whether the database is there; reads the runs that have not ended",
    ),
    ("roles/datastore.backupSchedulesViewer", "asks whether the database is backed up"),
    ("roles/iam.serviceAccountViewer", "asks which accounts are there"),
    ("roles/iam.securityReviewer", "asks who may do what"),
    ("roles/secretmanager.viewer", "asks which secrets have a value; it reads none"),
    ("roles/storage.bucketViewer", "asks how the bucket is set up"),
)

#: Roles of the builder in the project, and what it needs each for.
BUILDER_ROLES: Final[tuple[tuple[str, str], ...]] = (
    ("roles/logging.logWriter", "the log of the build"),
    ("roles/artifactregistry.writer", "stores the image"),
    ("roles/storage.objectViewer", "reads the bundle; a condition keeps it from the artifacts"),
)

#: Roles of the gate in the project, and what it needs each for; it reads its source besides.
GATE_ROLES: Final[tuple[tuple[str, str], ...]] = (
    ("roles/logging.logWriter", "the log of the gate"),
)

#: Accounts that the deployer may let others run as, beside those of the functions.
ACTED_AS: Final[tuple[str, ...]] = (
    may.BUILDER,
    may.GATE,
    Trigger.EVENTS.account,  # the trigger of deliver-notification
    Trigger.SCHEDULE.account,  # the job of the sweep
)

#: What the project needs before anything is deployed.
APIS: Final[tuple[str, ...]] = (
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "cloudtasks.googleapis.com",
    "eventarc.googleapis.com",
    "firestore.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "storage.googleapis.com",
)

#: What calls a function.
TRIGGER_WORDS: Final[Mapping[Trigger, str]] = {
    Trigger.TASKS: "Cloud Tasks, a queue for each step type",
    Trigger.SCHEDULE: "Cloud Scheduler",
    Trigger.EVENTS: "Pub/Sub, the topic of announcements",
    Trigger.REQUESTS: "people and programs",
    Trigger.WORKERS: "remote workers",
}


def functions() -> str:
    """Return the functions of the bundle."""
    rows = [
        [
            f"`{entry.service}`",
            f"{entry.summary}; uses {', '.join(entry.uses)}",
            _caller(entry),
            f"{entry.timeout.total_seconds():g} s",
            f"{entry.memory_mib} MiB, {entry.cpu:g} CPU",
            f"{entry.min_instances} to {entry.max_instances}, {entry.concurrency} at once in each",
            f"`{entry.account}`",
        ]
        for entry in FUNCTIONS
    ]
    heads = ["function", "what it does", "called by", "timeout", "an instance", "instances"]
    return table([*heads, "runs as"], rows)


def build_options() -> str:
    """Return what may be chosen for a build that deploys."""
    rows = [
        [f"`{each.name}`", f"`{each.default}`" if each.default else "", each.meaning]
        for each in substitutions(DEFAULTS)
    ]
    return table(["substitution", "default", "meaning"], rows)


def roles(of_account: Sequence[tuple[str, str]]) -> str:
    """Return the roles of an account, and what each is for."""
    return table(["role", "what for"], [[f"`{role}`", why] for role, why in of_account])


def permissions() -> str:
    """Return who may do what, where."""
    members: dict[tuple[str, str], list[str]] = {}
    for each in permissions_of(_INSTALLATION, _CATALOG):
        members.setdefault((_place(each), each.role), []).append(_member(each))
    rows = [
        [place, f"`{role}`", _WHY.get(role, "what its handlers do"), ", ".join(whom)]
        for (place, role), whom in members.items()
    ]
    return table(["where", "role", "to", "who"], rows)


def metrics() -> str:
    """Return what is counted."""
    rows = [
        [
            f"`{metric.id}`",
            metric.summary,
            ", ".join(f"`{event}`" for event in metric.events),
            f"`{metric.value}`" if metric.value else "lines",
            ", ".join(f"`{label}`" for label in metric.labels),
        ]
        for metric in METRICS
    ]
    return table(["metric", "tells", "from the lines", "counts", "by"], rows)


def alerts() -> str:
    """Return the alerts."""
    rows = [
        [f"`{alert.name}`", alert.severity, _when(alert), " ".join(alert.advice.split())]
        for alert in ALERTS
    ]
    return table(["alert", "severity", "raised", "what it means, and what to do"], rows)


def _caller(entry: FunctionEntry) -> str:
    words = TRIGGER_WORDS[entry.trigger]
    return f"{words}: `{entry.schedule}` (UTC)" if entry.schedule else words


def _place(permission: Permission) -> str:
    place = permission.place
    if place.kind is Kind.TOPIC and place.name != _INSTALLATION.topic_name:
        return "the topic of each channel that has one"
    if place.kind is Kind.SECRET and place.short_name in _CATALOG.channel_variables:
        return "each secret of a channel"
    short_name = place.short_name.partition("@")[0]
    words = {
        Kind.PROJECT: "the project, for the one database"
        if permission.condition
        else "the project",
        Kind.QUEUE: "each queue",
        Kind.BUCKET: "the bucket",
    }
    return words.get(place.kind, f"{place.kind} `{short_name}`")


def _member(permission: Permission) -> str:
    member = permission.member
    account = member.removeprefix("serviceAccount:").partition("@")[0]
    if account.startswith(ACCOUNT_PREFIX):
        return f"`{account}`"
    return f"whom `{member}` names"


def _when(alert: Alert) -> str:
    minutes = f"{alert.within.total_seconds() / 60:g} min"
    if alert.above is None:
        return f"nothing for {minutes}"
    by = f", by {', '.join(alert.by)}" if alert.by else ""
    unit = " s" if alert.is_distribution else ""
    return f"above {alert.above:g}{unit} in {minutes}{by}"
