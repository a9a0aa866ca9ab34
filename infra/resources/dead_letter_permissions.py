"""What Pub/Sub itself may do, so that a message that is given up reaches the dead-letter topic.

Its service agent publishes the message there, and acknowledges it in the subscription that it comes
from. Without both it is delivered again and again, and nothing says so.
https://cloud.google.com/pubsub/docs/handling-failures#grant_forwarding_permissions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.installation import Installation
from infra.resources.event_subscription import EventSubscription
from infra.resources.resource import MISSING, PRESENT, Look, Resource, State
from infra.resources.topic import Topic
from leasehold.live.clients import ONE_TRY, GoogleClients


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

    def _look_at(self, client: Any, resource: str) -> Look:
        from google.api_core.exceptions import NotFound  # noqa: PLC0415 - `--help` answers without

        try:
            policy = _policy_of(client, resource)
        except NotFound:
            return MISSING  # what it is about is created before
        if self._has(policy):
            return PRESENT
        return Look(State.MISSING, why=f"{self.role} for {self._member}")

    def _add_to(self, client: Any, resource: str) -> None:
        """Add the role to the policy as it is now; Aborted: somebody changes it just now."""
        policy = _policy_of(client, resource)
        if not self._has(policy):
            policy.bindings.add(role=self.role, members=[self._member])
            client.set_iam_policy({"resource": resource, "policy": policy}, **ONE_TRY)

    def _has(self, policy: Any) -> bool:
        return any(
            binding.role == self.role
            and self._member in binding.members
            and not binding.condition.expression
            for binding in policy.bindings
        )


@dataclass(frozen=True)
class DeadLetterPublishing(_AgentPermission):
    """It may publish to the dead-letter topic."""

    role = "roles/pubsub.publisher"

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
        return self._look_at(self.clients.publisher, self.installation.dead_topic_name)

    def create(self) -> None:
        """Allow it."""
        self._add_to(self.clients.publisher, self.installation.dead_topic_name)


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
        return self._look_at(self.clients.subscriber, found)

    def create(self) -> None:
        """Allow it."""
        if found := self._subscription.full_name():
            self._add_to(self.clients.subscriber, found)


def dead_letter_permissions(
    clients: GoogleClients, installation: Installation
) -> Iterator[Resource]:
    """Yield what Pub/Sub may do at both ends of a message that is given up."""
    yield DeadLetterPublishing(clients, installation)
    yield DeadLetterForwarding(clients, installation)


def _policy_of(client: Any, resource: str) -> Any:
    options = {"requested_policy_version": 3}  # a lower one would leave conditions out
    return client.get_iam_policy({"resource": resource, "options": options}, **ONE_TRY)
