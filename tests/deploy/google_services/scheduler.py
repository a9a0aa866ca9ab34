"""Cloud Scheduler."""

from __future__ import annotations

from typing import Any

from google.cloud import scheduler_v1
from google.cloud.scheduler_v1.services.cloud_scheduler.transports import (
    CloudSchedulerGrpcTransport,
)

from tests.deploy.google_services.refusals import already_exists, invalid, not_found
from tests.deploy.google_services.service import Service, copy_of, masked
from tests.deploy.google_services.world import World

_DEADLINE_S = (15, 1800)


class Scheduler(Service):
    """Jobs by their full names."""

    name = "google.cloud.scheduler.v1.CloudScheduler"
    transports = (CloudSchedulerGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.jobs: dict[str, scheduler_v1.Job] = {}

    def get_job(self, request: Any) -> scheduler_v1.Job:
        self.check_location(request.name)
        return copy_of(self._job(request.name))

    def list_jobs(self, request: Any) -> scheduler_v1.ListJobsResponse:
        self.check_location(request.parent)
        jobs = [job for name, job in self.jobs.items() if name.startswith(f"{request.parent}/")]
        return scheduler_v1.ListJobsResponse(jobs=jobs)

    def create_job(self, request: Any) -> scheduler_v1.Job:
        self.check_location(request.parent)
        job = copy_of(request.job)
        if not job.name.startswith(f"{request.parent}/jobs/"):
            raise invalid("Job name must be formatted: projects/P/locations/L/jobs/JOB_ID")
        if job.name in self.jobs:
            raise already_exists(f"Job {job.name}")
        self.jobs[job.name] = self._checked(job)
        return copy_of(job)

    def update_job(self, request: Any) -> scheduler_v1.Job:
        stored = self._job(request.job.name)
        job = masked(stored, request.job, request.update_mask.paths)
        job.state = scheduler_v1.Job.State.ENABLED
        self.jobs[job.name] = self._checked(job)
        return copy_of(job)

    def pause_job(self, request: Any) -> scheduler_v1.Job:
        self._job(request.name).state = scheduler_v1.Job.State.PAUSED
        return copy_of(self._job(request.name))

    def resume_job(self, request: Any) -> scheduler_v1.Job:
        self._job(request.name).state = scheduler_v1.Job.State.ENABLED
        return copy_of(self._job(request.name))

    def _job(self, name: str) -> scheduler_v1.Job:
        if name not in self.jobs:
            raise not_found(f"Job {name}")
        return self.jobs[name]

    def _checked(self, job: scheduler_v1.Job) -> scheduler_v1.Job:
        """Refuse what the service refuses, and fill in what it fills in."""
        least, most = _DEADLINE_S
        if len(job.schedule.split()) != 5:
            raise invalid(f"Schedule or time zone is invalid: {job.schedule!r}")
        job.time_zone = job.time_zone or "Etc/UTC"
        if not job.attempt_deadline:
            job.attempt_deadline = "180s"
        if not least <= job.attempt_deadline.total_seconds() <= most:
            raise invalid("AttemptDeadline must be between 15 seconds and 30 minutes")
        if job.http_target.oidc_token.service_account_email and not (
            job.http_target.oidc_token.audience
        ):
            job.http_target.oidc_token.audience = job.http_target.uri
        job.http_target.headers.setdefault("User-Agent", "Google-Cloud-Scheduler")
        job.state = job.state or scheduler_v1.Job.State.ENABLED
        return job
