"""What Pub/Sub itself may do, so that a message that is given up reaches the dead-letter topic.

Its service agent publishes the message there, and acknowledges it in the subscription that it comes
from. Without both it is delivered again and again, and nothing says so.
https://cloud.google.com/pubsub/docs/handling-failures#grant_forwarding_permissions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import PUBLISH, Kind, Permission, Place
from leasehold.deploy.resources.event_subscription import EventSubscription
from leasehold.deploy.resources.policy_access import PolicyAccess, add_to, missing_from
from leasehold.deploy.resources.resource import MISSING, PRESENT, Look, Resource, State
from leasehold.deploy.resources.topic import Topic
from leasehold.live.clients import GoogleClients


@dataclass(frozen=True)
class _AgentPermission:
    """A role of Pub/Sub's service agent at one place; it is added to what the policy has."""

    clients: GoogleClients
    installation: Installation
    kind = "permission of Pub/Sub"
    role = ""

    @property
    def _member(self) -> str:
        number = self.installation.project_number
        return f"serviceAccount:service-{number}@gcp-sa-pubsub.iam.gserviceaccount.com"

    def _look_at(self, place: Place) -> Look:
        wanted = Permission(place, self.role, self._member)
        try:
            policy = PolicyAccess(self.clients, place).read()
        except NotFound:
            return MISSING  # what it is about is created before
        if not missing_from(policy, [wanted]):
            return PRESENT
        return Look(State.MISSING, why=f"{self.role} for {self._member}")

    def _allow_at(self, place: Place) -> None:
        """Add the role to the policy as it is now; Aborted: someone changes it just now."""
        access = PolicyAccess(self.clients, place)
        policy = access.read()
        for permission in missing_from(policy, [Permission(place, self.role, self._member)]):
            add_to(policy, permission)
            access.write(policy)


@dataclass(frozen=True)
class DeadLetterPublishing(_AgentPermission):
    """It may publish to the dead-letter topic."""

    role = PUBLISH

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
        return self._look_at(self._place)

    def create(self) -> None:
        """Allow it."""
        self._allow_at(self._place)

    @property
    def _place(self) -> Place:
        return Place(Kind.TOPIC, self.installation.dead_topic_name)


@dataclass(frozen=True)
class DeadLetterForwarding(_AgentPermission):
    """It may acknowledge what it forwards, in Eventarc's subscription."""

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
        return self._look_at(Place(Kind.SUBSCRIPTION, found))

    def create(self) -> None:
        """Allow it."""
        if found := self._subscription.full_name():
            self._allow_at(Place(Kind.SUBSCRIPTION, found))


def dead_letter_permissions(
    clients: GoogleClients, installation: Installation
) -> Iterator[Resource]:
    """Yield what Pub/Sub may do at both ends of a message that is given up."""
    yield DeadLetterPublishing(clients, installation)
    yield DeadLetterForwarding(clients, installation)
