"""All resources of an installation, in the order in which they are created."""

from __future__ import annotations

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.accounts import accounts
from leasehold.deploy.resources.alert_policies import alert_policies
from leasehold.deploy.resources.bucket import Bucket
from leasehold.deploy.resources.database import Database, backups
from leasehold.deploy.resources.indexes import expiries, indexes
from leasehold.deploy.resources.log_metrics import log_metrics
from leasehold.deploy.resources.policies import policies
from leasehold.deploy.resources.queue import queues
from leasehold.deploy.resources.resource import Resource
from leasehold.deploy.resources.scheduler_job import scheduler_jobs
from leasehold.deploy.resources.secrets import secrets
from leasehold.deploy.resources.service_agents import (
    dead_letter_permissions,
    service_agents,
)
from leasehold.deploy.resources.topic import EventSubscription, topics
from leasehold.google_clients.clients import GoogleClients
from leasehold.registry.pipelines import Catalog


def all_resources(
    installation: Installation, catalog: Catalog, clients: GoogleClients
) -> list[Resource]:
    """Return each resource; what another one needs stands before it."""
    return [
        *accounts(clients, installation),
        *service_agents(clients, installation),
        Database(clients, installation),
        *backups(clients, installation),
        Bucket(clients, installation),
        *secrets(clients, installation, catalog),
        *queues(clients, installation, catalog),
        *topics(clients, installation, catalog),
        *policies(clients, installation, catalog),
        *scheduler_jobs(clients, installation),
        *indexes(clients, installation),
        *expiries(clients, installation),
        *log_metrics(clients, installation),
        *alert_policies(clients, installation),
        EventSubscription(clients, installation),
        *dead_letter_permissions(clients, installation),
    ]
