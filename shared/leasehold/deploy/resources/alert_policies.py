"""Alerts: their conditions, their policies in Cloud Monitoring, and the address that gets them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.log_metrics import METRICS, LogMetric
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Difference,
    Look,
    NotYetError,
    Resource,
    State,
)
from leasehold.domain.status import Termination
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.dead_letters import DEAD_LETTERS
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.registry import Registry

# The alerts: one row each, with what to do about it; see docs/alerts.md.


Severity = Literal["CRITICAL", "ERROR", "WARNING"]

_OF_FUNCTIONS: Final = 'resource.type = "cloud_run_revision"'
#: Ends of attempts that a deploy or a person brings about.
_PLANNED: Final = (Termination.INSTANCE_SHUTDOWN, Termination.CANCELLED)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Args:
        name: its id; policies carry it as the label `leasehold`.
        title: what has happened, in a few words.
        severity: how grave it is.
        advice: what it means and what to do, as Markdown.
        filter: what is looked at, in the words of Cloud Monitoring.
        within: the time that is looked at.
        above: it is raised above this number; None: when nothing comes at all.
        by: labels of the metric by which incidents are told apart.
        is_distribution: of the metric; its highest values are looked at.
        replaces: names of earlier alerts that tell the same; each is one too many.
    """

    name: str
    title: str
    severity: Severity
    advice: str
    filter: str
    within: timedelta
    above: float | None = 0
    by: tuple[str, ...] = ()
    is_distribution: bool = False
    replaces: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name


def _of(metric: LogMetric, *conditions: str) -> str:
    """Return a filter for what was counted, where these conditions hold too."""
    return " AND ".join([_OF_FUNCTIONS, f'metric.type = "{metric.type}"', *conditions])


def _dead_letters() -> Alert:
    """Return one alert for all reasons why a run is given up: each condition is billed."""
    reasons = (f"- `{entry.key}`: {entry.meaning} {entry.remediation}" for entry in DEAD_LETTERS)
    advice = (
        "An incident has one reason, and one pipeline. `leasehold runs --dead-lettered` lists the "
        "runs. What each reason means, and what to do:\n\n"
    )
    return Alert(
        "dead-letters",
        "Runs were given up",
        "CRITICAL" if any(entry.severity == "CRITICAL" for entry in DEAD_LETTERS) else "ERROR",
        advice + "\n".join(reasons),
        _of(METRICS["dead-letters"]),
        within=timedelta(minutes=5),
        by=("reason", "pipeline"),
        replaces=tuple(
            f"dead-letter-{entry.key.lower().replace('_', '-')}" for entry in DEAD_LETTERS
        ),
    )


def _answered(service: str) -> str:
    """Return a filter for the requests that a function answered well."""
    conditions = (
        _OF_FUNCTIONS,
        'metric.type = "run.googleapis.com/request_count"',
        f'resource.label.service_name = "{service}"',
        'metric.label.response_code_class = "2xx"',
    )
    return " AND ".join(conditions)


def _no_derivation() -> Alert:
    service = FUNCTIONS["derive_budgets"].service
    return Alert(
        "no-derivation",
        "Limits are not derived",
        "WARNING",
        "Limits that learn stay as they were last derived, however long attempts take by now.\n\n"
        f"Look at the job `{service}` of Cloud Scheduler (is it paused? what was it answered?), "
        f"then at the log of the function `{service}`. If no step has a strategy but `fixed`, the "
        "job may be paused, and this alert turned off.",
        _answered(service),
        within=timedelta(hours=3),
        above=None,
    )


def _no_sweep() -> Alert:
    service = FUNCTIONS["sweep_dead_letters"].service
    return Alert(
        "no-sweep",
        "No sweep has ended well",
        "CRITICAL",
        "Dead workers and lost tasks are not noticed, and announcements are not repeated.\n\n"
        f"Look at the job `{service}` of Cloud Scheduler (is it paused? what was it answered?), "
        f"then at the log of the function `{service}`: a line with `SWEEP_FINISHED` says in "
        "`detail` what could not be reached.",
        _answered(service),
        within=timedelta(minutes=10),
        above=None,
    )


ALERTS: Final = Registry(
    "alerts",
    [
        _dead_letters(),
        Alert(
            "wrong-deploy",
            "Code cannot run its steps",
            "ERROR",
            "A run is blocked because of what is deployed; no retry is used up.\n\n"
            "`handler_unavailable`: a handler, gate or entry action cannot be imported. "
            "`handler_mistake`: a handler asks for what cannot be, or returns what cannot be kept. "
            "`input_mismatch`: it does not take what it is given any more. `input_missing`: the "
            "artifacts are not where they were. `step_unknown`: no catalog has the step. "
            "`leasehold why RUN` has the line. Deploy what is right: the run goes on by itself "
            "within 10 minutes, and with `leasehold retry RUN` at once.",
            _of(METRICS["wrong-deploys"]),
            within=timedelta(minutes=5),
            by=("code", "pipeline"),
        ),
        Alert(
            "announcement-given-up",
            "Announcement given up",
            "ERROR",
            "A channel did not receive an announcement, which is not sent again.\n\n"
            "`leasehold deliveries --state given_up` lists the channels and the reasons. Repair "
            "the channel, then `leasehold deliver RUN --channel NAME`.",
            _of(METRICS["announcements"], 'metric.label.event = "ANNOUNCEMENT_GIVEN_UP"'),
            within=timedelta(minutes=5),
            by=("channel",),
        ),
        Alert(
            "terminated-attempts",
            "Many attempts are cut short",
            "WARNING",
            "One is no reason to worry: the step is tried again. This many of one reason are.\n\n"
            "`lease_expired`: workers die, or a handler blocks the interpreter. "
            "`memory_limit_exceeded`, `agent_timeout_exceeded`, `dispatch_deadline_exceeded`: a "
            "step needs more of that, or checkpoints. `silence_limit_exceeded`: a step hangs in "
            "the line that the trace shows. `…_unavailable`: an outage; runs wait and are not "
            "given up. `leasehold trace RUN` has each with its holder.",
            _of(
                METRICS["terminated-attempts"],
                *(f'metric.label.reason != "{reason}"' for reason in _PLANNED),
            ),
            within=timedelta(minutes=15),
            above=10,
            by=("reason",),
        ),
        Alert(
            "oldest-pending",
            "Runs wait long in a queue",
            "WARNING",
            "A task waits to be delivered for more than 15 minutes.\n\n"
            "`gcloud tasks queues describe QUEUE` says whether it is paused; the log of "
            "`execute-step` whether it answers. If all of its instances are busy, runs wait for "
            "each other: more instances (`deployment.py`), or fewer runs at once.",
            _of(METRICS["oldest-pending"]),
            within=timedelta(minutes=5),
            above=900,
            is_distribution=True,
        ),
        Alert(
            "unfinished-sweeps",
            "Sweeps leave something again and again",
            "WARNING",
            "A single one may meet a run that is locked. Several mean that something cannot be "
            "written or reached: the lines before `SWEEP_FINISHED` say what.",
            _of(METRICS["unfinished-sweeps"]),
            within=timedelta(minutes=15),
            above=5,
        ),
        _no_sweep(),
        Alert(
            "clipping-limits",
            "A limit ends all attempts of a step",
            "WARNING",
            "The limit of the step, which is derived, ended each of its last three attempts; it "
            "doubles each hour, up to the longest.\n\n"
            "`leasehold trace RUN` has the line at which each was ended. If they hang, as while a "
            "provider is down, no limit helps: repair the cause, and set a shorter one with "
            "`leasehold override STEP`. If they only take longer, leave it to the limit. "
            "`leasehold explain-limit STEP` shows which.",
            _of(METRICS["clipping-limits"]),
            within=timedelta(hours=1),
            by=("step",),
        ),
        _no_derivation(),
    ],
)


if TYPE_CHECKING:
    from google.cloud.monitoring_v3 import AlertPolicy as Found
    from google.cloud.monitoring_v3 import NotificationChannel

#: Google names policies and channels by numbers, and takes the same one twice; this label says
#: which of ours one is.
_LABEL: Final = "leasehold"
#: After such a time without further lines an incident is over.
_OVER_AFTER: Final = timedelta(hours=1)
_A_MINUTE: Final = timedelta(minutes=1)


def alert_policies(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the address, if there is one, then each policy."""
    existing = Alerting(clients, installation)
    if installation.alert_email:
        yield EmailAddress(existing)
    for alert in ALERTS:
        yield AlertPolicy(existing, alert)


class Alerting:
    """The content of Cloud Monitoring, each list asked for once.

    Args:
        clients: of the project.
        installation: whose alerts they are.
    """

    def __init__(self, clients: GoogleClients, installation: Installation) -> None:
        self.clients = clients
        self.installation = installation

    @property
    def project(self) -> str:
        """The full name of the project."""
        return f"projects/{self.installation.project}"

    @cached_property
    def policies(self) -> Mapping[str, Sequence[Found]]:
        """Our policies, by the name of the alert, the oldest first."""
        found: dict[str, list[Found]] = {}
        listed = self.clients.alerts.list_alert_policies(name=self.project, **ONE_TRY)
        for policy in sorted(listed, key=_age):
            found.setdefault(policy.user_labels.get(_LABEL, ""), []).append(policy)
        return found

    @cached_property
    def channels(self) -> Sequence[NotificationChannel]:
        """All channels that send to the address, the oldest first."""
        email = self.installation.alert_email
        if not email:
            return ()
        listed = self.clients.notification_channels.list_notification_channels(
            name=self.project, **ONE_TRY
        )
        of_email = (one for one in listed if one.type_ == "email")
        found = [one for one in of_email if one.labels.get("email_address") == email]
        return sorted(found, key=_age)

    @property
    def addressed(self) -> NotificationChannel | None:
        """The channel that policies are sent to; None: there is none.

        It is the oldest one, so that of two applies at once both take the same.
        """
        return next(iter(self.channels), None)

    def forget(self, what: str) -> None:
        """Have one of the lists asked for anew: another apply may have created something."""
        self.__dict__.pop(what, None)


@dataclass(frozen=True, slots=True)
class EmailAddress:
    """The address that alerts are sent to."""

    existing: Alerting
    kind = "alert address"

    @property
    def name(self) -> str:
        """The address."""
        return self.existing.installation.alert_email

    def look(self) -> Look:
        """Return whether alerts can be sent to it."""
        found = self.existing.addressed
        if found is None:
            return MISSING
        differences, repairs = _of_copies("channels", self._copies())
        if not found.enabled:
            differences = (Difference("enabled", found="no", wanted="yes"), *differences)
            repairs = (
                f"gcloud alpha monitoring channels update {shlex.quote(found.name)} --enabled",
                *repairs,
            )
        return _look_of(differences, repairs)

    def look_again(self) -> Look:
        """Look for what another apply has created as well."""
        self.existing.forget("channels")
        return self.look()

    def create(self) -> None:
        """Create a channel of Cloud Monitoring for it, if an earlier try has not."""
        self.existing.forget("channels")
        if self.existing.addressed is not None:
            return
        channel = {
            "type_": "email",
            "display_name": "Leasehold alerts",
            "labels": {"email_address": self.name},
            "user_labels": {_LABEL: "alerts"},
            "enabled": True,
        }
        asked = {"name": self.existing.project, "notification_channel": channel}
        client = self.existing.clients.notification_channels
        client.create_notification_channel(request=asked, **ONE_TRY)
        self.existing.forget("channels")

    def _copies(self) -> Sequence[NotificationChannel]:
        """Return those that applies made beside the oldest; a person's own are left alone."""
        _, *others = self.existing.channels
        return [one for one in others if _LABEL in one.user_labels]


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """One alert."""

    existing: Alerting
    alert: Alert
    kind = "alert"

    @property
    def name(self) -> str:
        """Its name."""
        return self.alert.name

    @property
    def needs(self) -> Sequence[Resource]:
        """The address: a policy that is created without it would never notify a person."""
        given = self.existing.installation.alert_email
        return (EmailAddress(self.existing),) if given else ()

    def look(self) -> Look:
        """Return whether it is there once, and is raised when it should be."""
        policies = self.existing.policies.get(self.name)
        if not policies:
            return MISSING
        found, *copies = policies
        differences, deletions = _of_copies("policies", copies)
        differing = tuple(self._differences(found))
        update = self._update(found, differing)
        replaced = self._replaced()
        if replaced:
            names = ", ".join(self.alert.replaces)
            differing += (Difference("tells what others tell", names, wanted="itself alone"),)
        return _look_of(
            (*differing, *differences), (*update, *deletions, *_deletions("policies", replaced))
        )

    def look_again(self) -> Look:
        """Look for what another apply has created as well."""
        self.existing.forget("policies")
        return self.look()

    def create(self) -> None:
        """Create it, if an earlier try has not.

        Raises:
            NotYetError: Cloud Monitoring does not know the metric yet.
        """
        self.existing.forget("policies")
        if self.name in self.existing.policies:
            return
        asked = {"name": self.existing.project, "alert_policy": self._policy()}
        try:
            self.existing.clients.alerts.create_alert_policy(request=asked, **ONE_TRY)
        except NotFound as error:
            # Cannot find metric(s) that match type = "…". If a metric was created recently, …
            if "metric" not in str(error):
                raise
            why = "Cloud Monitoring to know its new metric: apply again in 10 minutes"
            raise NotYetError(why) from error

    def _replaced(self) -> Sequence[Found]:
        """Return the policies of earlier alerts that this one tells the same as."""
        known = self.existing.policies
        return [policy for name in self.alert.replaces for policy in known.get(name, ())]

    def _policy(self) -> Mapping[str, Any]:
        channel = self.existing.addressed
        return {
            "display_name": f"Leasehold: {self.alert.title}",
            "documentation": {"content": self.alert.advice, "mime_type": "text/markdown"},
            "user_labels": {_LABEL: self.name},
            "conditions": [{"display_name": self.alert.title, **self._condition()}],
            "combiner": "OR",
            "enabled": True,
            "notification_channels": [channel.name] if channel else [],
            "alert_strategy": {"auto_close": _OVER_AFTER},
            "severity": self.alert.severity,
        }

    def _condition(self) -> Mapping[str, Any]:
        """Return what it is raised by, as Cloud Monitoring has it."""
        alert = self.alert
        highest = ("ALIGN_PERCENTILE_99", "REDUCE_MAX")
        aligner, reducer = highest if alert.is_distribution else ("ALIGN_DELTA", "REDUCE_SUM")
        aggregation = {
            "alignment_period": alert.within if alert.above is not None else _A_MINUTE,
            "per_series_aligner": aligner,
            "cross_series_reducer": reducer,
            "group_by_fields": [f"metric.label.{label}" for label in alert.by],
        }
        looked_at = {"filter": alert.filter, "aggregations": [aggregation]}
        if alert.above is None:
            return {"condition_absent": {**looked_at, "duration": alert.within}}
        above = {"comparison": "COMPARISON_GT", "threshold_value": alert.above}
        return {"condition_threshold": {**looked_at, **above, "duration": timedelta()}}

    def _differences(self, found: Found) -> Iterator[Difference]:
        if not found.enabled:
            yield Difference("enabled", found="no", wanted="yes")
        condition = found.conditions[0] if found.conditions else None
        if condition is not None and self.alert.above is not None:
            above = condition.condition_threshold.threshold_value
            if above != self.alert.above:
                yield Difference("raised above", f"{above:g}", wanted=f"{self.alert.above:g}")
        known = {channel.name for channel in self.existing.channels}
        if known and not known.intersection(found.notification_channels):
            email = self.existing.installation.alert_email
            yield Difference("told", ", ".join(found.notification_channels) or "no one", email)

    def _update(self, found: Found, differences: tuple[Difference, ...]) -> Sequence[str]:
        fields = [difference.field for difference in differences]
        options = ["--enabled"] if "enabled" in fields else []
        if "told" in fields and (channel := self.existing.addressed) is not None:
            options.append(f"--add-notification-channels={shlex.quote(channel.name)}")
        if not options:
            return ()
        policy = shlex.quote(found.name)
        return (f"gcloud alpha monitoring policies update {policy} {' '.join(options)}",)


def _age(one: Found | NotificationChannel) -> tuple[float, str]:
    """Return what puts the oldest first: the others are copies that two applies at once made."""
    created = one.creation_record.mutate_time
    return (created.timestamp() if created else 0.0, one.name)


def _of_copies(
    what: str, copies: Sequence[Found | NotificationChannel]
) -> tuple[tuple[Difference, ...], Sequence[str]]:
    """Return that there are copies, and what deletes each: Google takes the same one again."""
    if not copies:
        return (), ()
    difference = Difference("how many", str(len(copies) + 1), wanted="1")
    return (difference,), _deletions(what, copies)


def _deletions(what: str, unwanted: Sequence[Found | NotificationChannel]) -> Sequence[str]:
    names = [shlex.quote(one.name) for one in unwanted]
    return [f"gcloud alpha monitoring {what} delete {name}" for name in names]


def _look_of(differences: tuple[Difference, ...], repairs: Sequence[str]) -> Look:
    if not differences:
        return PRESENT
    return Look(State.DIFFERENT, differences, repair="; ".join(repairs))
