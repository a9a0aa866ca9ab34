"""The topics: of announcements, of what was delivered in vain, and of channels that publish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from google.api_core.exceptions import Forbidden, NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Look,
    Resource,
    State,
    differences,
    seconds,
)
from leasehold.live.clients import ONE_TRY, GoogleClients
from leasehold.registry.pipelines import Catalog

#: How long what was given up is kept: over a weekend.
DEAD_FOR: Final = timedelta(days=7)
_ACK_S: Final = 60


@dataclass(frozen=True)
class Topic:
    """A topic.

    Args:
        full_name: `projects/PROJECT/topics/TOPIC`.
    """

    clients: GoogleClients
    installation: Installation
    full_name: str
    kind = "topic"

    @property
    def name(self) -> str:
        """Its id, or its full name where it is of another project."""
        return self.full_name if self._is_foreign else self.full_name.rpartition("/")[2]

    @property
    def _is_foreign(self) -> bool:
        return self.full_name.split("/")[1] != self.installation.project

    def look(self) -> Look:
        """Return whether it is there; one of another project is created there, by its people."""
        try:
            self.clients.publisher.get_topic({"topic": self.full_name}, **ONE_TRY)
        except NotFound:
            return self._foreign("") if self._is_foreign else MISSING
        except Forbidden:
            if not self._is_foreign:
                raise
            return self._foreign(", or you may not see it")
        return PRESENT

    def create(self) -> None:
        """Create it."""
        self.clients.publisher.create_topic({"name": self.full_name}, **ONE_TRY)

    def _foreign(self, doubt: str) -> Look:
        _, project, _, topic = self.full_name.split("/")
        why = f"someone of project {project} to create it{doubt}"
        return Look(
            State.WAITING,
            why=why,
            repair=f"gcloud pubsub topics create {topic} --project={project}",
        )


@dataclass(frozen=True)
class DeadLetterSubscription:
    """Keeps what was delivered in vain until a person looks: a dead-letter topic keeps nothing."""

    clients: GoogleClients
    installation: Installation
    topic: Topic
    kind = "subscription"

    @property
    def name(self) -> str:
        """Its id: that of its topic."""
        return self.topic.name

    @property
    def needs(self) -> tuple[Resource, ...]:
        """The topic."""
        return (self.topic,)

    @property
    def _full_name(self) -> str:
        return f"projects/{self.installation.project}/subscriptions/{self.name}"

    def look(self) -> Look:
        """Return whether it is there, of this topic, and keeps what comes for long enough."""
        try:
            found = self.clients.subscriber.get_subscription(
                {"subscription": self._full_name}, **ONE_TRY
            )
        except NotFound:
            return MISSING
        words = {
            "topic": found.topic,
            "message-retention-duration": seconds(found.message_retention_duration),
            "expiration-period": _never_or(found.expiration_policy.ttl),
        }
        wanted = {
            "topic": self.topic.full_name,
            "message-retention-duration": seconds(DEAD_FOR),
            "expiration-period": "never",
        }
        if not (differing := tuple(differences(words, wanted))):
            return PRESENT
        flags = " ".join(f"--{it.field}={it.wanted}" for it in differing if it.field != "topic")
        where = f"{self.name} --project={self.installation.project}"
        repair = f"gcloud pubsub subscriptions update {where} {flags}" if flags else ""
        return Look(State.DIFFERENT, differing, repair=repair)

    def create(self) -> None:
        """Create it; by default it would be gone after 31 days in which nothing is pulled."""
        message = {
            "name": self._full_name,
            "topic": self.topic.full_name,
            "ack_deadline_seconds": _ACK_S,
            "message_retention_duration": DEAD_FOR,
            "expiration_policy": {},
        }
        self.clients.subscriber.create_subscription(message, **ONE_TRY)


def topics(
    clients: GoogleClients, installation: Installation, catalog: Catalog
) -> Iterator[Resource]:
    """Yield the topics, and what keeps the messages that were given up."""
    yield Topic(clients, installation, installation.topic_name)
    dead = Topic(clients, installation, installation.dead_topic_name)
    yield dead
    yield DeadLetterSubscription(clients, installation, dead)
    for name in catalog.channel_topics:
        yield Topic(clients, installation, name)


def _never_or(period: timedelta | None) -> str:
    return seconds(period) if period else "never"
