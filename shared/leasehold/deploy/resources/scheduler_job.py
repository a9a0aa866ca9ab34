"""The jobs of Cloud Scheduler: one for each function of the table that has a schedule.

They are the one kind that `apply --update` changes: a job has nothing that a person would set by
hand and keep, and its time follows the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Difference,
    Look,
    State,
    differences,
    seconds,
)
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.functions import FunctionEntry, Trigger

_UTC: Final = "Etc/UTC"
_SAME_TIME: Final = ("UTC", "Etc/UTC", "Etc/Universal", "Etc/Zulu")
_ENABLED: Final = "ENABLED"
#: A paused job is resumed by the person who paused it.
_STOPPED: Final = ("PAUSED", "DISABLED")
#: A call that failed is repeated soon; the next one comes by the schedule in any case.
_MAX_RETRIES: Final = 3
_FIRST_RETRY: Final = timedelta(seconds=5)
_MAX_RETRY_WAIT: Final = timedelta(seconds=60)
_MAX_ATTEMPT: Final = timedelta(minutes=30)
#: What an update changes.
_FIELDS: Final = ("schedule", "time_zone", "http_target", "attempt_deadline", "retry_config")


@dataclass(frozen=True)
class SchedulerJob:
    """The job that calls a function."""

    clients: GoogleClients
    installation: Installation
    function: FunctionEntry
    kind = "scheduler job"

    @property
    def name(self) -> str:
        """Its id: that of the service."""
        return self.function.service

    @property
    def full_name(self) -> str:
        """Its name, as the API has it."""
        return f"{self.installation.location}/jobs/{self.name}"

    @property
    def _account(self) -> str:
        return self.installation.email_of(self.installation.schedule_account)

    def look(self) -> Look:
        """Return how the job is; it may be paused, or a failed update may keep it from running."""
        try:
            found = self.clients.scheduler.get_job({"name": self.full_name}, **ONE_TRY)
        except NotFound:
            return MISSING
        differing = tuple(differences(_words_of(found), self._wanted()))
        if not differing:
            return PRESENT
        by_hand = found.state.name in _STOPPED  # an update might start it
        return Look(State.DIFFERENT, differing, repair=self.repair_of(differing), by_hand=by_hand)

    def create(self) -> None:
        """Create it."""
        request = {"parent": self.installation.location, "job": self._message()}
        self.clients.scheduler.create_job(request, **ONE_TRY)

    def update(self) -> None:
        """Make it what the table says."""
        request = {"job": self._message(), "update_mask": {"paths": list(_FIELDS)}}
        self.clients.scheduler.update_job(request, **ONE_TRY)

    def _message(self) -> dict[str, Any]:
        address = self.installation.url_of(self.function)
        return {
            "name": self.full_name,
            "description": f"{self.function.name}: {self.function.summary}",
            "schedule": self.function.schedule,
            "time_zone": _UTC,
            "http_target": {
                "uri": address,
                "http_method": "POST",
                "oidc_token": {"service_account_email": self._account, "audience": address},
            },
            "attempt_deadline": min(self.function.timeout, _MAX_ATTEMPT),
            "retry_config": {
                "retry_count": _MAX_RETRIES,
                "min_backoff_duration": _FIRST_RETRY,
                "max_backoff_duration": _MAX_RETRY_WAIT,
            },
        }

    def _wanted(self) -> dict[str, str]:
        address = self.installation.url_of(self.function)
        return {
            "state": _ENABLED,
            "schedule": self.function.schedule,
            "time-zone": _UTC,
            "uri": address,
            "http-method": "POST",
            "oidc-service-account-email": self._account,
            "oidc-token-audience": address,
            "attempt-deadline": seconds(min(self.function.timeout, _MAX_ATTEMPT)),
            "max-retry-attempts": str(_MAX_RETRIES),
            "min-backoff": seconds(_FIRST_RETRY),
            "max-backoff": seconds(_MAX_RETRY_WAIT),
        }

    def repair_of(self, differing: Sequence[Difference]) -> str:
        """Return the command that makes it what the table says."""
        state = next((it.found for it in differing if it.field == "state"), _ENABLED)
        place = self.installation
        if state in _STOPPED:
            where = f"--location={place.region} --project={place.project}"
            return f"gcloud scheduler jobs resume {self.name} {where}"
        where = f"--project={place.project} --region={place.region}"
        return f"leasehold deploy apply --update {where}"


def scheduler_jobs(clients: GoogleClients, installation: Installation) -> Iterator[SchedulerJob]:
    """Yield the job of each function that has a schedule."""
    for function in installation.functions.called_by(Trigger.SCHEDULE):
        yield SchedulerJob(clients, installation, function)


def _words_of(found: Any) -> dict[str, str]:
    """Return what a job has, by the flags of gcloud."""
    target, retry = found.http_target, found.retry_config
    return {
        "state": found.state.name,
        "schedule": found.schedule,
        "time-zone": _UTC if found.time_zone in _SAME_TIME else found.time_zone,
        "uri": target.uri.rstrip("/"),
        "http-method": target.http_method.name,
        "oidc-service-account-email": target.oidc_token.service_account_email,
        "oidc-token-audience": target.oidc_token.audience.rstrip("/"),
        "attempt-deadline": seconds(found.attempt_deadline),
        "max-retry-attempts": str(retry.retry_count),
        "min-backoff": seconds(retry.min_backoff_duration),
        "max-backoff": seconds(retry.max_backoff_duration),
    }
