"""Alert policies, as `deploy/alerts.py` has them, and the address that they are sent to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.alerts import ALERTS, Alert
from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Difference,
    Look,
    NotYetError,
    Resource,
    State,
)
from leasehold.live.clients import ONE_TRY, GoogleClients

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
    """What Cloud Monitoring has, each list asked for once.

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
        """Those that send to the address, whoever made them, the oldest first."""
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
        """The address: a policy that is created without it would tell no one for good."""
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
