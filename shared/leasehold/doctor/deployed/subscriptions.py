"""The topic of announcements and its subscriptions: is a message that failed delivered again?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.domain.printable import one_line
from leasehold.live.clients import ONE_TRY
from leasehold.registry.functions import Trigger

if TYPE_CHECKING:
    from google.pubsub_v1 import Subscription

#: With less, messages of an outage over night are gone in the morning.
_LEAST_RETENTION: Final = timedelta(days=1)


def subscriptions(deployment: Deployment) -> Iterator[Finding]:
    """Yield what is wrong on the way from the topic to the function."""
    address = deployment.setting("LEASEHOLD_EVENTS")
    if not address.startswith("pubsub://"):
        return
    project, topic = address.removeprefix("pubsub://").split("/")
    name = f"projects/{project}/topics/{topic}"
    names = _subscriptions_of(deployment, name)
    if names is None:
        message = f"Topic {topic} does not exist: no announcement is published."
        yield Finding("topic_missing", message, deployment.apply)
        return
    found = [_subscription(deployment, each) for each in names]
    pushed = [one for one in found if one.push_config.push_endpoint]
    if not pushed:
        message = (
            f"No subscription pushes the messages of topic {topic} to a function: announcements "
            "wait for the sweep, which publishes them in vain."
        )
        repair = f"gcloud builds submit --config=cloudbuild.yaml --project={deployment.project}"
        yield Finding("subscription_missing", message, repair)
    for subscription in pushed:
        yield from _policy(deployment, subscription)


def _subscription(deployment: Deployment, name: str) -> Subscription:
    return deployment.clients.subscriber.get_subscription({"subscription": name}, **ONE_TRY)


def _subscriptions_of(deployment: Deployment, topic: str) -> list[str] | None:
    """Return the names of a topic's subscriptions; None: there is no such topic."""
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - with the client

    try:
        client = deployment.clients.publisher
        client.get_topic({"topic": topic}, **ONE_TRY)
        return list(client.list_topic_subscriptions({"topic": topic}, **ONE_TRY))
    except NotFound:
        return None


def _policy(deployment: Deployment, subscription: Subscription) -> Iterator[Finding]:
    short = subscription.name.rpartition("/")[2]
    update = f"gcloud pubsub subscriptions update {shlex.quote(short)}"
    update += f" --project={deployment.project}"
    if not subscription.retry_policy.minimum_backoff:
        message = f"Subscription {short} has no retry policy: what failed comes again at once."
        repair = f"{update} --min-retry-delay=10s --max-retry-delay=600s"
        yield Finding("subscription_retry", message, repair)
    yield from _dead_letters(deployment, subscription, short)
    for entry in deployment.setup.functions.called_by(Trigger.EVENTS):
        wanted = f"{entry.timeout.total_seconds():g}"
        if timedelta(seconds=subscription.ack_deadline_seconds) < entry.timeout:
            message = (
                f"Subscription {short} waits {subscription.ack_deadline_seconds} s for an answer, "
                f"and {entry.service} has {wanted}: it sends again what is being sent."
            )
            yield Finding("subscription_deadline", message, f"{update} --ack-deadline={wanted}")
        account = subscription.push_config.oidc_token.service_account_email
        if account != deployment.caller_of(entry):
            signs = f"signs in as {one_line(account, 120)}" if account else "does not sign in"
            message = (
                f"Subscription {short} {signs}, and {entry.service} believes "
                f"{deployment.caller_of(entry)}: each message is refused."
            )
            repair = f"{update} --push-auth-service-account={deployment.caller_of(entry)}"
            repair += f" --push-endpoint={shlex.quote(subscription.push_config.push_endpoint)}"
            yield Finding("subscription_account", message, repair)
    if subscription.message_retention_duration < _LEAST_RETENTION:
        message = f"Subscription {short} keeps messages for less than a day."
        repair = f"{update} --message-retention-duration=1d"
        yield Finding("subscription_retention", message, repair)
    if subscription.expiration_policy.ttl:
        days = subscription.expiration_policy.ttl.days
        message = (
            f"Subscription {short} is deleted after {days} days without a delivery, and with it "
            "all announcements after that."
        )
        yield Finding("subscription_expires", message, f"{update} --expiration-period=never")


def _dead_letters(
    deployment: Deployment, subscription: Subscription, short: str
) -> Iterator[Finding]:
    topic = subscription.dead_letter_policy.dead_letter_topic
    if not topic:
        message = f"Subscription {short} has no dead-letter topic: what is given up is gone."
        yield Finding("subscription_dead_letters", message, deployment.apply)
        return
    kept = _subscriptions_of(deployment, topic)
    if not kept:
        what = "does not exist" if kept is None else "has no subscription"
        message = (
            f"The dead-letter topic {topic.rpartition('/')[2]} {what}: what goes there is gone."
        )
        yield Finding("subscription_dead_letters", message, deployment.apply)
