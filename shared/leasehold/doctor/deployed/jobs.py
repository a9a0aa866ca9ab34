"""The jobs of Cloud Scheduler: does each function with a schedule get called, and by whom?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.domain.printable import one_line
from leasehold.live.clients import ONE_TRY
from leasehold.registry.functions import FunctionEntry, Trigger

if TYPE_CHECKING:
    from google.cloud.scheduler_v1 import Job


def jobs(deployment: Deployment) -> Iterator[Finding]:
    """Yield what is wrong with the jobs."""
    listed = list(
        deployment.clients.scheduler.list_jobs({"parent": deployment.location}, **ONE_TRY)
    )
    for entry in deployment.setup.functions.called_by(Trigger.SCHEDULE):
        found = [job for job in listed if _calls(deployment, entry, job)]
        if not found:
            message = f"No job of Cloud Scheduler calls {entry.service}: it never runs."
            yield Finding("job_missing", message, deployment.apply)
        for job in found:
            yield from _job(deployment, entry, job)


def _calls(deployment: Deployment, entry: FunctionEntry, job: Job) -> bool:
    host = urlsplit(job.http_target.uri).hostname or ""
    service = deployment.services_if_known.get(entry.service)
    if service is not None:
        known = {urlsplit(one).hostname for one in (service.uri, *service.urls)}
        if host in known:
            return True
    return host.startswith(f"{entry.service}-")


def _job(deployment: Deployment, entry: FunctionEntry, job: Job) -> Iterator[Finding]:
    name = job.name.rpartition("/")[2]
    typed = shlex.quote(name)
    if job.state.name != "ENABLED":
        message = f"Job {name} is {job.state.name}: {entry.service} is not called."
        yield Finding("job_paused", message, deployment.at(f"scheduler jobs resume {typed}"))
    if job.status.code:
        why = one_line(job.status.message, 120) or f"status {job.status.code}"
        at = f" at {job.last_attempt_time:%Y-%m-%dT%H:%M:%SZ}" if job.last_attempt_time else ""
        message = f"The last call of job {name}{at} failed ({why})."
        of_job = shlex.quote(f'resource.labels.job_id="{name}"')
        repair = f"gcloud logging read {of_job} --project={deployment.project}"
        yield Finding("job_failed", message, f"{repair} --limit=5")
    update = f"scheduler jobs update http {typed}"
    if job.schedule != entry.schedule:
        message = (
            f"Job {name} has the schedule {one_line(job.schedule, 60)!r}, and the table "
            f"{entry.schedule!r}."
        )
        repair = deployment.at(update, f"--schedule='{entry.schedule}'")
        yield Finding("job_schedule", message, repair)
    if job.attempt_deadline and job.attempt_deadline < entry.timeout:
        seconds = f"{entry.timeout.total_seconds():g}s"
        message = (
            f"Job {name} waits {job.attempt_deadline.total_seconds():g}s for {entry.service}, "
            f"which has {seconds}: a long call counts as failed."
        )
        yield Finding(
            "job_deadline", message, deployment.at(update, f"--attempt-deadline={seconds}")
        )
    yield from _sign_in(deployment, entry, job, update)


def _sign_in(
    deployment: Deployment, entry: FunctionEntry, job: Job, update: str
) -> Iterator[Finding]:
    wanted = deployment.caller_of(entry)
    has = job.http_target.oidc_token.service_account_email
    if has != wanted:
        name = job.name.rpartition("/")[2]
        signs = f"signs in as {one_line(has, 120)}" if has else "does not sign in"
        message = f"Job {name} {signs}, and {entry.service} believes {wanted}: it is refused."
        repair = deployment.at(update, f"--oidc-service-account-email={wanted}")
        yield Finding("job_account", message, repair)
