"""All resources of an installation, in the order in which they are created."""

from __future__ import annotations

from infra.installation import Installation
from infra.resources.dead_letter_permissions import dead_letter_permissions
from infra.resources.event_subscription import EventSubscription
from infra.resources.queue import queues
from infra.resources.resource import Resource
from infra.resources.scheduler_job import scheduler_jobs
from infra.resources.topic import topics
from leasehold.live.clients import GoogleClients
from leasehold.registry.pipelines import Catalog


def all_resources(
    installation: Installation, catalog: Catalog, clients: GoogleClients
) -> list[Resource]:
    """Return each resource; what another one needs stands before it."""
    return [
        # accounts, database, bucket, secrets
        *queues(clients, installation, catalog),
        *topics(clients, installation, catalog),
        *scheduler_jobs(clients, installation),
        # indexes, bindings, metrics, alerts
        EventSubscription(clients, installation),
        *dead_letter_permissions(clients, installation),
    ]
