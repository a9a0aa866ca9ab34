"""What Google's own services may do for a message: each has an account, its service agent.

Google gives an agent its role in the project where it makes the account by itself, at the first use
of a service: for Eventarc that is the first deploy, which fails. One that was asked for before has
none. Without its role Eventarc makes no subscription, and Pub/Sub no token to call a function with.
https://cloud.google.com/iam/docs/create-service-agents

Pub/Sub publishes a message that is given up to the dead-letter topic, and acknowledges it in the
subscription that it comes from. Without a role for both it is delivered again and again, and
nothing says so. https://cloud.google.com/pubsub/docs/handling-failures#grant_forwarding_permissions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import PUBLISH, Kind, Permission, Place
from leasehold.deploy.resources.policies import PolicyAccess, add_to, missing_from
from leasehold.deploy.resources.resource import MISSING, PRESENT, Look, Resource, State
from leasehold.deploy.resources.topic import EventSubscription, Topic
from leasehold.google_clients.clients import GoogleClients

SERVICES: Final = ("pubsub", "eventarc")


def service_agents(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the role of each in the project."""
    for service in SERVICES:
        yield ServiceAgent(clients, installation, service)


def dead_letter_permissions(
    clients: GoogleClients, installation: Installation
) -> Iterator[Resource]:
    """Yield what Pub/Sub may do at both ends of a message that is given up."""
    yield DeadLetterPublishing(clients, installation)
    yield DeadLetterForwarding(clients, installation)


@dataclass(frozen=True)
class _AgentRole:
    """A role of an agent at one place; it is added to what the policy has."""

    clients: GoogleClients
    installation: Installation

    def _look_at(self, place: Place, role: str, service: str = "pubsub") -> Look:
        wanted = self._permission(place, role, service)
        try:
            policy = PolicyAccess(self.clients, place).read()
        except NotFound:
            return MISSING  # what it is about is created before
        if not missing_from(policy, [wanted]):
            return PRESENT
        return Look(State.MISSING, why=f"{role} for {wanted.member}")

    def _allow_at(self, place: Place, role: str, service: str = "pubsub") -> None:
        """Add the role to the policy as it is now; Aborted: it is being changed."""
        access = PolicyAccess(self.clients, place)
        policy = access.read()
        for permission in missing_from(policy, [self._permission(place, role, service)]):
            add_to(policy, permission)
            access.write(policy)

    def _permission(self, place: Place, role: str, service: str) -> Permission:
        number = self.installation.project_number
        email = f"service-{number}@gcp-sa-{service}.iam.gserviceaccount.com"
        return Permission(place, role, f"serviceAccount:{email}")


@dataclass(frozen=True)
class ServiceAgent(_AgentRole):
    """The role of an agent in the project."""

    name: str
    kind = "service agent"

    def look(self) -> Look:
        """Return whether it has its role."""
        return self._look_at(*self._wanted)

    def create(self) -> None:
        """Give it the role."""
        self._allow_at(*self._wanted)

    @property
    def _wanted(self) -> tuple[Place, str, str]:
        place = Place(Kind.PROJECT, f"projects/{self.installation.project}")
        return place, f"roles/{self.name}.serviceAgent", self.name


@dataclass(frozen=True)
class DeadLetterPublishing(_AgentRole):
    """Pub/Sub may publish to the dead-letter topic."""

    kind = "permission of Pub/Sub"

    @property
    def name(self) -> str:
        """Where: the topic."""
        return f"topic {self.needs[0].name}"

    @property
    def needs(self) -> tuple[Resource, ...]:
        """The topic."""
        return (Topic(self.clients, self.installation, self.installation.dead_topic_name),)

    def look(self) -> Look:
        """Return whether it may."""
        return self._look_at(*self._wanted)

    def create(self) -> None:
        """Allow it."""
        self._allow_at(*self._wanted)

    @property
    def _wanted(self) -> tuple[Place, str]:
        return Place(Kind.TOPIC, self.installation.dead_topic_name), PUBLISH


@dataclass(frozen=True)
class DeadLetterForwarding(_AgentRole):
    """Pub/Sub may acknowledge what it forwards, in Eventarc's subscription."""

    kind = "permission of Pub/Sub"
    role = "roles/pubsub.subscriber"

    @property
    def name(self) -> str:
        """Where: the subscription, by the service that it pushes to."""
        return f"{self._subscription.kind} {self._subscription.name}"

    @property
    def needs(self) -> tuple[Resource, ...]:
        """The subscription."""
        return (self._subscription,)

    @property
    def _subscription(self) -> EventSubscription:
        return EventSubscription(self.clients, self.installation)

    def look(self) -> Look:
        """Return whether it may."""
        found = self._subscription.full_name()
        if found is None:
            return self._subscription.look()  # it waits for the same
        return self._look_at(Place(Kind.SUBSCRIPTION, found), self.role)

    def create(self) -> None:
        """Allow it."""
        if found := self._subscription.full_name():
            self._allow_at(Place(Kind.SUBSCRIPTION, found), self.role)
