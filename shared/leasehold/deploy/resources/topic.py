"""The topics: of announcements, of undeliverable messages, and of channels that publish."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from google.api_core.exceptions import Forbidden, NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Difference,
    Look,
    Resource,
    State,
    differences,
    seconds,
)
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.functions import FunctionEntry, Trigger
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
        why = f"a person of project {project} to create it{doubt}"
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


# Eventarc's subscription of the announcements, completed with what Eventarc does not give it.
#
# `gcloud functions deploy --trigger-topic` has Eventarc make a push subscription. It keeps a
# message for 24 hours and then drops it: only a dead-letter topic shows that something was given
# up.


#: The waits between two deliveries of a message that was refused.
MIN_RETRY_WAIT: Final = timedelta(seconds=10)
MAX_RETRY_WAIT: Final = timedelta(seconds=600)
#: After so many deliveries, over two hours, a message is given up. It was a hint: what it is about
#: stands in the store, and the sweep publishes again what is due.
MAX_DELIVERY_ATTEMPTS: Final = 20
#: What Pub/Sub waits for an answer where no time is set; Eventarc may leave it at that.
#: https://github.com/hashicorp/terraform-provider-google/issues/17701
_UNSAID_ACK_S: Final = 10
_BY_EVENTARC: Final = "eventarc-"
#: With less, messages of an outage over night are gone in the morning.
_MIN_RETENTION: Final = timedelta(days=1)
_ACCOUNT: Final = "push-auth-service-account"


@dataclass(frozen=True)
class EventSubscription:
    """The settings that Eventarc's subscription of the function lacks."""

    clients: GoogleClients
    installation: Installation
    attempts: int = MAX_DELIVERY_ATTEMPTS
    kind = "event subscription"

    @property
    def name(self) -> str:
        """The service that it pushes to: its own name is known once it is there."""
        return self._function.service

    @property
    def needs(self) -> tuple[Resource, ...]:
        """Both topics."""
        names = (self.installation.topic_name, self.installation.dead_topic_name)
        return tuple(Topic(self.clients, self.installation, name) for name in names)

    @property
    def _function(self) -> FunctionEntry:
        (function,) = self.installation.functions.called_by(Trigger.EVENTS)
        return function

    def look(self) -> Look:
        """Return what it lacks (MISSING), or what it has that is another value (DIFFERENT)."""
        found = self._found()
        if found is None:
            return Look(State.WAITING, why=f"{self.name} to be deployed")
        if not (differing := tuple(self._differing(found))):
            return PRESENT
        if self._lacking(found):
            return Look(State.MISSING, differing)
        return Look(State.DIFFERENT, differing, repair=_repair(found, differing))

    def repair_of(self, differing: Sequence[Difference]) -> str:
        """Return the command that makes these values what they should be."""
        found = self._found()
        return "" if found is None else _repair(found, differing)

    def create(self) -> None:
        """Give it what it lacks, and leave what it has."""
        found = self._found()
        lacking = {} if found is None else self._lacking(found)
        if found is None or not lacking:
            return
        request = {
            "subscription": {"name": found.name, **lacking},
            "update_mask": {"paths": list(lacking)},
        }
        self.clients.subscriber.update_subscription(request, **ONE_TRY)

    def full_name(self) -> str | None:
        """Return the full name of Eventarc's subscription; None: there is none yet."""
        found = self._found()
        return None if found is None else str(found.name)

    def _found(self) -> Any | None:
        """Return the subscription that pushes to the function, or None."""
        topic = {"topic": self.installation.topic_name}
        start = f"projects/{self.installation.project}/subscriptions/{_BY_EVENTARC}"
        try:
            names = list(self.clients.publisher.list_topic_subscriptions(topic, **ONE_TRY))
        except NotFound:
            return None
        for name in sorted(name for name in names if name.startswith(start)):
            subscription = {"subscription": name}
            found = self.clients.subscriber.get_subscription(subscription, **ONE_TRY)
            pushes_to = found.push_config.push_endpoint
            if f"-{self.name}-" in name or pushes_to.startswith(f"https://{self.name}-"):
                return found
        return None

    def _lacking(self, found: Any) -> dict[str, Any]:
        lacking: dict[str, Any] = {}
        if not found.dead_letter_policy.dead_letter_topic:
            lacking["dead_letter_policy"] = {
                "dead_letter_topic": self.installation.dead_topic_name,
                "max_delivery_attempts": self.attempts,
            }
        if "retry_policy" not in found:
            lacking["retry_policy"] = {
                "minimum_backoff": MIN_RETRY_WAIT,
                "maximum_backoff": MAX_RETRY_WAIT,
            }
        if found.ack_deadline_seconds <= _UNSAID_ACK_S < self._answers_within:
            lacking["ack_deadline_seconds"] = self._answers_within
        return lacking

    @property
    def _answers_within(self) -> int:
        """The seconds that the function may take; one that takes longer is called once more."""
        return int(self._function.timeout.total_seconds())

    def _differing(self, found: Any) -> list[Difference]:
        words = {
            "min-retry-delay": seconds(found.retry_policy.minimum_backoff),
            "max-retry-delay": seconds(found.retry_policy.maximum_backoff),
            "dead-letter-topic": found.dead_letter_policy.dead_letter_topic,
            "max-delivery-attempts": str(found.dead_letter_policy.max_delivery_attempts),
            _ACCOUNT: found.push_config.oidc_token.service_account_email,
        }
        wanted = {
            "min-retry-delay": seconds(MIN_RETRY_WAIT),
            "max-retry-delay": seconds(MAX_RETRY_WAIT),
            "dead-letter-topic": self.installation.dead_topic_name,
            "max-delivery-attempts": str(self.attempts),
            _ACCOUNT: self.installation.email_of(self.installation.event_account),
        }
        differing = list(differences(words, wanted))
        if found.ack_deadline_seconds < self._answers_within:
            given, needed = str(found.ack_deadline_seconds), str(self._answers_within)
            differing.append(Difference("ack-deadline", given, needed))
        kept = found.message_retention_duration
        if kept < _MIN_RETENTION:
            found_s, wanted_s = seconds(kept), seconds(_MIN_RETENTION)
            differing.append(Difference("message-retention-duration", found_s, wanted_s))
        if ttl := found.expiration_policy.ttl:
            differing.append(Difference("expiration-period", seconds(ttl), "never"))
        return differing


def _repair(found: Any, differing: Sequence[Difference]) -> str:
    _, project, _, name = found.name.split("/")
    flags = [f"--{it.field}={it.wanted}" for it in differing]
    if any(it.field == _ACCOUNT for it in differing):
        flags.append(f"--push-endpoint={shlex.quote(found.push_config.push_endpoint)}")
    update = f"gcloud pubsub subscriptions update {shlex.quote(name)} --project={project}"
    return " ".join([update, *flags])
