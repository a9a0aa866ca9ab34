"""All services of the local server; a new one is a line here."""

from __future__ import annotations

from tests.deploy.google_services.accounts import Accounts
from tests.deploy.google_services.firestore import FirestoreAdmin
from tests.deploy.google_services.iam_policies import IamPolicies
from tests.deploy.google_services.locations import Locations
from tests.deploy.google_services.monitoring import Alerts, LogMetrics, NotificationChannels
from tests.deploy.google_services.operations import Operations
from tests.deploy.google_services.projects import Projects
from tests.deploy.google_services.quotas import Quotas
from tests.deploy.google_services.run import CloudRun
from tests.deploy.google_services.scheduler import Scheduler
from tests.deploy.google_services.secrets import Secrets
from tests.deploy.google_services.service import Service
from tests.deploy.google_services.world import World


def all_services(world: World) -> list[Service]:
    """Return one of each, all in the same world."""
    kinds: list[type[Service]] = [
        Scheduler,
        CloudRun,
        Projects,
        IamPolicies,
        Locations,
        Operations,
        Accounts,
        FirestoreAdmin,
        Secrets,
        LogMetrics,
        Alerts,
        NotificationChannels,
        Quotas,
    ]
    return [kind(world) for kind in kinds]
