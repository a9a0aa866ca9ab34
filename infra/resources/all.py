"""All resources of an installation, in the order in which they are created."""

from __future__ import annotations

from infra.installation import Installation
from infra.resources.resource import Resource
from leasehold.live.clients import GoogleClients
from leasehold.registry.pipelines import Catalog


def all_resources(
    installation: Installation, catalog: Catalog, clients: GoogleClients
) -> list[Resource]:
    """Return each resource; what another one needs stands before it."""
    del installation, catalog, clients
    return [
        # accounts, database, bucket, secrets
        # queues
        # topics
        # jobs
        # indexes, bindings, metrics, alerts
    ]
