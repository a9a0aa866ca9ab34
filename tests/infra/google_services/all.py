"""All services of the local server; a new one is a line here."""

from __future__ import annotations

from tests.infra.google_services.accounts import Accounts
from tests.infra.google_services.firestore import FirestoreAdmin
from tests.infra.google_services.iam_policies import IamPolicies
from tests.infra.google_services.locations import Locations
from tests.infra.google_services.monitoring import Alerts, LogMetrics, NotificationChannels
from tests.infra.google_services.operations import Operations
from tests.infra.google_services.projects import Projects
from tests.infra.google_services.quotas import Quotas
from tests.infra.google_services.run import CloudRun
from tests.infra.google_services.scheduler import Scheduler
from tests.infra.google_services.secrets import Secrets
from tests.infra.google_services.service import Service
from tests.infra.google_services.world import World


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
