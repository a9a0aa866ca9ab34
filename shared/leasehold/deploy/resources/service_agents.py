"""The accounts of Google's own that a message goes through, and the roles they need in the project.

Google gives each its role where it makes the account by itself, at the first use of a service: for
Eventarc that is the first deploy, which fails. One that was asked for before has none. Without its
role Eventarc makes no subscription, and Pub/Sub no token to call a function with.
https://cloud.google.com/iam/docs/create-service-agents
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import Kind, Permission, Place
from leasehold.deploy.resources.policy_access import PolicyAccess, add_to, missing_from
from leasehold.deploy.resources.resource import PRESENT, Look, Resource, State
from leasehold.live.clients import GoogleClients

SERVICES: Final = ("pubsub", "eventarc")


def service_agents(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the role of each."""
    for service in SERVICES:
        yield ServiceAgent(clients, installation, service)


@dataclass(frozen=True)
class ServiceAgent:
    """The role of a service's own account; it is added to what the project's policy has."""

    clients: GoogleClients
    installation: Installation
    name: str
    kind = "service agent"

    def look(self) -> Look:
        """Return whether it has its role."""
        if not missing_from(self._access.read(), [self._wanted]):
            return PRESENT
        return Look(State.MISSING, why=f"{self._wanted.role} for {self._wanted.member}")

    def create(self) -> None:
        """Give it the role; Aborted: someone changes the policy just now."""
        policy = self._access.read()
        for permission in missing_from(policy, [self._wanted]):
            add_to(policy, permission)
            self._access.write(policy)

    @property
    def _wanted(self) -> Permission:
        number = self.installation.project_number
        email = f"service-{number}@gcp-sa-{self.name}.iam.gserviceaccount.com"
        role = f"roles/{self.name}.serviceAgent"
        return Permission(self._place, role, f"serviceAccount:{email}")

    @property
    def _access(self) -> PolicyAccess:
        return PolicyAccess(self.clients, self._place)

    @property
    def _place(self) -> Place:
        return Place(Kind.PROJECT, f"projects/{self.installation.project}")
