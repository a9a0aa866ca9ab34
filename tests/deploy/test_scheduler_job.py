"""Scheduler jobs follow the table; one that exists is changed only where that is asked for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.cloud.scheduler_v1 import Job

from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, State
from leasehold.deploy.resources.scheduler_job import SchedulerJob, scheduler_jobs
from leasehold.deploy.steps import Action, apply
from leasehold.google_clients.clients import ONE_TRY
from tests.deploy.cloud import REGION, Cloud
from tests.deploy.google_services.scheduler import Scheduler


def sweep(cloud: Cloud) -> SchedulerJob:
    jobs = scheduler_jobs(cloud.clients, cloud.installation)
    return next(job for job in jobs if job.name == "sweep-dead-letters")


def stored(cloud: Cloud) -> Job:
    name = f"projects/{cloud.project}/locations/{REGION}/jobs/sweep-dead-letters"
    return cloud.server.service(Scheduler).jobs[name]  # type: ignore[no-any-return]


def test_a_job_calls_its_function_every_minute_as_the_account_of_schedules(cloud: Cloud) -> None:
    job = sweep(cloud)
    assert job.look() == MISSING

    job.create()

    assert job.look() == PRESENT
    made = stored(cloud)
    address = f"https://sweep-dead-letters-123456789012.{REGION}.run.app"
    assert made.schedule == "* * * * *"
    assert made.time_zone == "Etc/UTC"
    assert made.http_target.uri == address
    assert made.http_target.oidc_token.audience == address
    assert made.http_target.oidc_token.service_account_email == (
        f"leasehold-schedule@{cloud.project}.iam.gserviceaccount.com"
    )
    assert made.attempt_deadline == timedelta(seconds=180)


def test_a_job_that_differs_is_left_alone_unless_an_update_is_asked_for(cloud: Cloud) -> None:
    sweep(cloud).create()
    stored(cloud).schedule = "0 * * * *"
    cloud.forget()

    (left,) = apply([sweep(cloud)], cloud.project)
    writes = cloud.writes()
    (changed,) = apply([sweep(cloud)], cloud.project, update=True)

    assert left.look.differences == (Difference("schedule", "0 * * * *", "* * * * *"),)
    assert (
        left.repair
        == f"leasehold deploy apply --update --project={cloud.project} --region={REGION}"
    )
    assert writes == []
    assert changed.action is Action.UPDATED
    assert sweep(cloud).look() == PRESENT


def test_an_update_that_failed_is_told_and_repaired_by_another(cloud: Cloud) -> None:
    """Such a job may not run at all, and its other values are what they should be."""
    sweep(cloud).create()
    stored(cloud).state = Job.State.UPDATE_FAILED

    (left,) = apply([sweep(cloud)], cloud.project)
    (changed,) = apply([sweep(cloud)], cloud.project, update=True)

    assert left.look.differences == (Difference("state", "UPDATE_FAILED", "ENABLED"),)
    assert changed.action is Action.UPDATED
    assert sweep(cloud).look() == PRESENT


@pytest.mark.parametrize("schedule", ["* * * * *", "0 * * * *"])
def test_a_job_that_a_person_paused_stays_paused(cloud: Cloud, schedule: str) -> None:
    """Also where something else differs: an update has the service enable a job."""
    sweep(cloud).create()
    stored(cloud).schedule = schedule
    name = {"name": stored(cloud).name}
    cloud.clients.scheduler.pause_job(name, **ONE_TRY)
    cloud.forget()

    (step,) = apply([sweep(cloud)], cloud.project, update=True)

    assert cloud.writes() == []
    assert step.look.state is State.DIFFERENT
    assert step.repair == (
        f"gcloud scheduler jobs resume sweep-dead-letters --location={REGION} "
        f"--project={cloud.project}"
    )
