"""All resources of an installation, in the order in which they are created."""

from __future__ import annotations

from infra.installation import Installation
from infra.resources.accounts import accounts
from infra.resources.alert_policies import alert_policies
from infra.resources.backups import backups
from infra.resources.bucket import Bucket
from infra.resources.database import Database
from infra.resources.dead_letter_permissions import dead_letter_permissions
from infra.resources.event_subscription import EventSubscription
from infra.resources.expiry import expiries
from infra.resources.indexes import indexes
from infra.resources.log_metrics import log_metrics
from infra.resources.policies import policies
from infra.resources.queue import queues
from infra.resources.resource import Resource
from infra.resources.scheduler_job import scheduler_jobs
from infra.resources.secrets import secrets
from infra.resources.service_agents import service_agents
from infra.resources.topic import topics
from leasehold.live.clients import GoogleClients
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
