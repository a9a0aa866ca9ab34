"""A project of Google Cloud on this machine, for tests of its resources, and what runs in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from leasehold import PipelineEntry, Registry, SlackChannel, StepDispatchEntry
from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.queue import queues_of
from leasehold.deploy.resources.resource import Resource
from leasehold.deploy.steps import Patience, Step, apply, survey
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.google_clients.clients import EMULATOR, ONE_TRY, GoogleClients
from leasehold.registry.channels import TopicChannel
from leasehold.registry.pipelines import Catalog
from tests.deploy.google_server import GoogleServer
from tests.deploy.storage_api import StorageApi

TIMES: Any = {"agent_timeout": timedelta(minutes=1), "dispatch_deadline": timedelta(minutes=2)}
CATALOG = Catalog(
    Registry(
        "dispatch",
        [
            StepDispatchEntry(step_type="draft", handler="steps:draft", **TIMES),
            StepDispatchEntry(step_type="far_away", handler="remote", **TIMES),
        ],
    ),
    Registry("pipelines", [PipelineEntry(name="letters", steps=("draft", "far_away"))]),
    channels=Registry(
        "channels",
        [
            SlackChannel(name="team", url_variable="TEAM_SLACK_URL"),
            TopicChannel(name="programs", topic="projects/shop-prod/topics/letters"),
        ],
    ),
)
INSTALLATION = Installation(
    "shop-prod",
    "123456789012",
    "europe-west1",
    ledger_days=400,
    alert_email="ops@example.com",
    callers=("group:readers@example.com", "user:ada@example.com"),
    workers=("serviceAccount:vm@far.iam.gserviceaccount.com",),
)
LOCATION = INSTALLATION.location


@dataclass
class GoogleWorld:
    """The project, and the clients that reach it.

    Args:
        server: all services that speak gRPC.
        storage: Cloud Storage.
        clients: of all of them, and of Cloud Tasks.
    """

    server: GoogleServer
    storage: StorageApi
    clients: GoogleClients
    installation: Installation = INSTALLATION

    def service(self, kind: Any) -> Any:
        """Return a service of the server, to look into what it keeps."""
        return self.server.service(kind)

    def with_(self, **changes: Any) -> GoogleWorld:
        """Return the same project with another installation in it."""
        return replace(self, installation=replace(self.installation, **changes))

    def create_queues(self) -> None:
        for queue in queues_of(CATALOG, {}, INSTALLATION.functions.of_tasks):
            name = f"{LOCATION}/queues/{queue.id}"
            self.clients.tasks.create_queue(parent=LOCATION, queue={"name": name}, **ONE_TRY)

    def writes(self) -> list[str]:
        return [*self.server.writes(), *self.storage.writes]

    def forget(self) -> None:
        self.server.forget()
        self.storage.writes.clear()


@contextmanager
def google_world() -> Iterator[GoogleWorld]:
    """Lend an empty project."""
    storage = StorageApi(INSTALLATION.project_number)
    with GoogleServer() as server, CloudTasksDouble(strict=True) as tasks, storage.serve() as at:
        variables = {
            EMULATOR: server.address,
            "CLOUD_TASKS_EMULATOR_URL": tasks.start(),
            "STORAGE_EMULATOR_HOST": at,
        }
        yield GoogleWorld(server, storage, GoogleClients(INSTALLATION.project, variables))


def looked_at(resource: Resource) -> Step:
    """Return what is found of a resource."""
    (step,) = survey([resource], INSTALLATION.project, Patience(sleep=lambda _: None))
    return step


def applied(*resources: Resource) -> list[Step]:
    """Return what became of resources; nothing is waited for."""
    return list(apply(resources, INSTALLATION.project, patience=Patience(sleep=lambda _: None)))
