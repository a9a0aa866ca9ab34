"""The parts of the docs that come from `infra/`: who may do what, what is counted, what alerts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from docs.markdown import table
from infra import permissions as roles
from infra.alerts import ALERTS, Alert
from infra.installation import Installation
from infra.metrics import METRICS
from infra.permissions import Kind, Permission, permissions_of
from leasehold import PipelineEntry, Registry, SlackChannel, StepDispatchEntry
from leasehold.registry.channels import TopicChannel
from leasehold.registry.functions import ACCOUNT_PREFIX
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
    roles.READ_AND_WRITE: "read and write runs",
    roles.CALL: "call it",
    roles.PUBLISH: "publish",
    roles.USE_OBJECTS: "read, write and delete files of runs",
    roles.READ_SECRET: "read the secret of a channel",
    roles.PUT_TASKS[0]: "create tasks",
    roles.PUT_TASKS[1]: "look whether a task is still there",
    roles.SIGN_IN_AS: "have tasks sign in as it",
}


def permissions() -> str:
    """Return who may do what, where."""
    members: dict[tuple[str, str], list[str]] = {}
    for each in permissions_of(_INSTALLATION, _CATALOG):
        members.setdefault((_place(each), each.role), []).append(_member(each))
    rows = [
        [place, f"`{role}`", _WHY[role], ", ".join(whom)] for (place, role), whom in members.items()
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
    """Return what people are told of."""
    rows = [
        [f"`{alert.name}`", alert.severity, _when(alert), " ".join(alert.advice.split())]
        for alert in ALERTS
    ]
    return table(["alert", "severity", "raised", "what it means, and what to do"], rows)


def _place(permission: Permission) -> str:
    place = permission.place
    if place.kind is Kind.TOPIC and place.name != _INSTALLATION.topic_name:
        return "the topic of each channel that has one"
    short_name = place.short_name.partition("@")[0]
    words = {
        Kind.PROJECT: "the project, for the one database",
        Kind.QUEUE: "each queue",
        Kind.SECRET: "each secret",
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
