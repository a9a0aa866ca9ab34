"""The local server in place of Google's APIs: real clients get what the services answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.api_core import exceptions as google
from google.iam.v1 import policy_pb2

from leasehold.google_clients.clients import EMULATOR, ONE_TRY, GoogleClients
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.refusals import api_disabled, permission_denied
from tests.deploy.google_services.run import CloudRun

LOCATION = "projects/shop-prod/locations/europe-west1"
JOB = f"{LOCATION}/jobs/sweep"


@pytest.fixture(scope="module")
def server() -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        yield server


@pytest.fixture(scope="module")
def clients(server: GoogleServer) -> GoogleClients:
    return GoogleClients("shop-prod", {EMULATOR: server.address})


@pytest.fixture(autouse=True)
def _fresh(server: GoogleServer) -> None:
    server.forget()


def test_state_is_kept_and_each_call_recorded(server: GoogleServer, clients: GoogleClients) -> None:
    job = {"name": JOB, "schedule": "* * * * *", "http_target": {"uri": "https://x.run.app"}}

    with pytest.raises(google.NotFound):
        clients.scheduler.get_job({"name": JOB}, **ONE_TRY)
    clients.scheduler.create_job({"parent": LOCATION, "job": job}, **ONE_TRY)
    with pytest.raises(google.AlreadyExists):
        clients.scheduler.create_job({"parent": LOCATION, "job": job}, **ONE_TRY)

    assert clients.scheduler.get_job({"name": JOB}, **ONE_TRY).schedule == "* * * * *"
    assert server.writes() == [f"CloudScheduler/CreateJob {LOCATION}"] * 2


def test_a_policy_is_changed_only_by_who_read_it_last(
    server: GoogleServer, clients: GoogleClients
) -> None:
    server.service(CloudRun).deploy("europe-west1", "serve-api")
    of = {"resource": f"{LOCATION}/services/serve-api"}
    read = clients.services.get_iam_policy(of, **ONE_TRY)
    read.bindings.append(policy_pb2.Binding(role="roles/run.invoker", members=["user:a@b.example"]))

    clients.services.set_iam_policy({**of, "policy": read}, **ONE_TRY)

    with pytest.raises(google.Aborted):
        clients.services.set_iam_policy({**of, "policy": read}, **ONE_TRY)


def test_what_is_ordered_comes_with_the_details_of_the_service(
    server: GoogleServer, clients: GoogleClients
) -> None:
    server.refuse("CloudScheduler/*", api_disabled("cloudscheduler.googleapis.com"), times=1)
    with pytest.raises(google.PermissionDenied) as disabled:
        clients.scheduler.get_job({"name": JOB}, **ONE_TRY)
    server.refuse("GetProject", permission_denied("resourcemanager.projects.get"))
    with pytest.raises(google.PermissionDenied) as denied:
        clients.projects.get_project({"name": "projects/shop-prod"}, **ONE_TRY)

    assert disabled.value.reason == "SERVICE_DISABLED"
    assert disabled.value.metadata["service"] == "cloudscheduler.googleapis.com"
    assert denied.value.metadata["permission"] == "resourcemanager.projects.get"


def test_a_lost_answer_is_of_something_that_was_done(
    server: GoogleServer, clients: GoogleClients
) -> None:
    server.lose_answer("CreateJob")
    job = {"name": f"{JOB}-2", "schedule": "* * * * *", "http_target": {"uri": "https://x.app"}}

    with pytest.raises(google.ServiceUnavailable):
        clients.scheduler.create_job({"parent": LOCATION, "job": job}, **ONE_TRY)

    assert clients.scheduler.get_job({"name": f"{JOB}-2"}, **ONE_TRY).state


def test_a_call_that_hangs_ends_at_its_time_limit(
    server: GoogleServer, clients: GoogleClients
) -> None:
    server.hang("GetJob", times=1)

    with pytest.raises(google.DeadlineExceeded):
        clients.scheduler.get_job({"name": JOB}, retry=None, timeout=2)

    assert [call.method for call in server.calls] == [
        "google.cloud.scheduler.v1.CloudScheduler/GetJob"
    ]


def test_an_unlisted_method_is_unimplemented(clients: GoogleClients) -> None:
    with pytest.raises(google.MethodNotImplemented):
        clients.scheduler.run_job({"name": JOB}, **ONE_TRY)
