"""The doctor's look at what is deployed in Google Cloud; no call writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from leasehold.bootstrap import system_clock
from leasehold.doctor.deployment import Deployment
from leasehold.doctor.drift import (
    announcements,
    database,
    given_secrets,
    jobs,
    queues,
    secrets,
)
from leasehold.doctor.finding import Finding
from leasehold.doctor.functions import callers, function_settings, functions, quota
from leasehold.doctor.probes import Look, examine, not_looked_at
from leasehold.doctor.setup import Setup
from leasehold.errors import SettingError
from leasehold.google_clients.call_errors import explain
from leasehold.google_clients.clients import EMULATOR, GoogleClients

#: So long all looks at what is deployed may take: they are made at once.
LIVE_TIMEOUT_S: Final = 60.0

_OF_QUEUES: Final = "CLOUD_TASKS_EMULATOR_URL"

_LOOKS: Final = {
    "the functions": functions,
    "the settings of the functions": function_settings,
    "the quota of Cloud Run": quota,
    "who may call the functions": callers,
    "the queues": queues,
    "the jobs of Cloud Scheduler": jobs,
    "the topic of announcements": announcements,
    "the database": database,
    "the secrets": secrets,
    "the secrets of the functions": given_secrets,
}


def examine_installation(
    setup: Setup, project: str, region: str, within_s: float = LIVE_TIMEOUT_S
) -> list[Finding]:
    """Look for all hidden problems of an installation.

    Args:
        setup: this machine; its catalog is taken for the one that is deployed.
        project: the id of the project.
        region: where it is deployed.
        within_s: seconds that all looks may take.

    Raises:
        MissingExtraError: the extra `deploy` or `google` is not installed.
    """
    try:
        clients = GoogleClients(project, setup.environ)
    except SettingError as error:  # nothing can be looked at, and the error is reported
        return [Finding("emulator_address", error.message, f"unset {error.details['name']}")]
    deployment = Deployment(project, region, clients, setup)
    looks = [
        Look(what, partial(find, deployment), partial(_explained, project))
        for what, find in _LOOKS.items()
    ]
    return [*half_emulated(setup.environ), *examine(looks, system_clock(), within_s)]


def half_emulated(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding where the queues are looked at elsewhere than all the rest."""
    of_queues, of_others = environ.get(_OF_QUEUES), environ.get(EMULATOR)
    if bool(of_queues) == bool(of_others):
        return
    name, what = (_OF_QUEUES, "queues") if of_queues else (EMULATOR, "all but the queues")
    message = f"{name} is set: {what} were looked for at a local server, and the rest at Google."
    yield Finding("half_emulated", message, f"unset {name}")


def _explained(project: str, what: str, error: Exception) -> Finding:
    explained = explain(error, project)
    return not_looked_at(what, explained.problem, explained.repair)
