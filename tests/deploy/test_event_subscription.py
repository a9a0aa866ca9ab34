"""Topics, and what Eventarc's subscription is given so that nothing is given up unseen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import flask
import pytest

from leasehold.bootstrap import load_catalog
from leasehold.deploy.resources.resource import PRESENT, Resource, State
from leasehold.deploy.resources.service_agents import dead_letter_permissions
from leasehold.deploy.resources.topic import EventSubscription, topics
from leasehold.deploy.steps import Action, apply
from leasehold.devserver.loopback_server import LoopbackServer
from leasehold.google_clients.clients import ONE_TRY
from tests.deploy.cloud import REGION, Cloud
from tests.worlds.waiting import until

DEAD_LETTERED_S = 60.0


@pytest.fixture
def refusing() -> Iterator[str]:
    """Serve a function that refuses each message."""
    app = flask.Flask(__name__)
    app.add_url_rule("/", view_func=lambda: ("no", 500), methods=["POST"])
    server = LoopbackServer(app, "refusing")
    yield server.start()
    server.stop()


def all_of(cloud: Cloud) -> list[Resource]:
    clients, installation = cloud.clients, cloud.installation
    return [
        *topics(clients, installation, load_catalog("tests.deploy.catalog")),
        EventSubscription(clients, installation),
        *dead_letter_permissions(clients, installation),
    ]


def create_topics(cloud: Cloud) -> None:
    list(apply(all_of(cloud), cloud.project))


def deploy(cloud: Cloud, endpoint: str = "https://x.example", **given: object) -> str:
    """Let Eventarc make its subscription, as a deploy of the function does."""
    name = f"projects/{cloud.project}/subscriptions/eventarc-{REGION}-deliver-notification-1-sub-2"
    account = cloud.installation.email_of(cloud.installation.event_account)
    message = {
        "name": name,
        "topic": cloud.installation.topic_name,
        "push_config": {
            "push_endpoint": endpoint,
            "oidc_token": {"service_account_email": account},
        },
        "ack_deadline_seconds": 600,
        **given,
    }
    cloud.clients.subscriber.create_subscription(message, **ONE_TRY)
    return name


def test_what_is_delivered_in_vain_is_kept_for_a_week_and_its_subscription_forever(
    cloud: Cloud,
) -> None:
    steps = list(apply(all_of(cloud), cloud.project))

    dead = f"projects/{cloud.project}/subscriptions/leasehold-announcements-dead"
    made = cloud.clients.subscriber.get_subscription({"subscription": dead}, **ONE_TRY)
    assert [step.action for step in steps[:3]] == [Action.CREATED] * 3
    assert made.topic == f"projects/{cloud.project}/topics/leasehold-announcements-dead"
    assert made.message_retention_duration == timedelta(days=7)
    assert "expiration_policy" in made
    assert not made.expiration_policy.ttl


def test_a_topic_of_another_project_is_left_to_its_people(cloud: Cloud) -> None:
    *_, orders = topics(cloud.clients, cloud.installation, load_catalog("tests.deploy.catalog"))

    (step,) = apply([orders], cloud.project)

    assert step.look.state is State.WAITING
    assert step.repair == "gcloud pubsub topics create orders --project=other-prod"


def test_what_needs_the_deployed_function_waits_for_it(cloud: Cloud) -> None:
    steps = {f"{it.resource.kind}, {it.resource.name}": it for it in apply(all_of(cloud), "p")}

    waiting = steps["event subscription, deliver-notification"]
    assert waiting.look.state is State.WAITING
    assert waiting.look.why == "deliver-notification to be deployed"
    forwarding = steps["permission of Pub/Sub, event subscription deliver-notification"]
    assert forwarding.look.state is State.WAITING


def test_a_second_apply_completes_what_the_deploy_made_and_a_third_writes_nothing(
    cloud: Cloud,
) -> None:
    create_topics(cloud)
    name = deploy(cloud)

    list(apply(all_of(cloud), cloud.project))
    made = cloud.clients.subscriber.get_subscription({"subscription": name}, **ONE_TRY)
    cloud.forget()
    steps = list(apply(all_of(cloud), cloud.project))

    assert made.retry_policy.minimum_backoff == timedelta(seconds=10)
    assert made.retry_policy.maximum_backoff == timedelta(seconds=600)
    assert made.dead_letter_policy.dead_letter_topic == cloud.installation.dead_topic_name
    assert made.dead_letter_policy.max_delivery_attempts == 20
    assert made.ack_deadline_seconds == 600
    agent = "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
    policies = cloud.server.world.policies
    assert policies[name].bindings[0].role == "roles/pubsub.subscriber"
    assert policies[name].bindings[0].members == [agent]
    assert policies[cloud.installation.dead_topic_name].bindings[0].role == "roles/pubsub.publisher"
    assert cloud.writes() == []
    states = [
        it.look.state for it in steps if it.resource.name != "projects/other-prod/topics/orders"
    ]
    assert set(states) == {State.PRESENT}


def test_a_policy_that_a_person_set_is_left_alone(cloud: Cloud) -> None:
    create_topics(cloud)
    given = {"minimum_backoff": timedelta(seconds=60), "maximum_backoff": timedelta(seconds=120)}
    deploy(cloud, retry_policy=given)
    subscription = EventSubscription(cloud.clients, cloud.installation)
    assert subscription.look().state is State.MISSING  # it has no dead-letter topic

    subscription.create()

    look = subscription.look()
    assert look.state is State.DIFFERENT
    assert [(it.field, it.found, it.wanted) for it in look.differences] == [
        ("min-retry-delay", "60s", "10s"),
        ("max-retry-delay", "120s", "600s"),
    ]
    assert look.repair.endswith("--min-retry-delay=10s --max-retry-delay=600s")


@pytest.mark.parametrize(("given", "kept"), [(10, 120), (30, 30), (600, 600)])
def test_a_delivery_is_waited_for_as_long_as_the_function_may_take_unless_a_person_set_it(
    cloud: Cloud, given: int, kept: int
) -> None:
    """With the 10 seconds of Pub/Sub, what takes longer is delivered again while it is answered."""
    create_topics(cloud)
    name = deploy(cloud, ack_deadline_seconds=given)
    subscription = EventSubscription(cloud.clients, cloud.installation)

    subscription.create()

    made = cloud.clients.subscriber.get_subscription({"subscription": name}, **ONE_TRY)
    assert made.ack_deadline_seconds == kept
    look = subscription.look()
    assert [it.field for it in look.differences] == (["ack-deadline"] if kept < 120 else [])


def test_the_subscription_of_another_function_is_not_touched(cloud: Cloud) -> None:
    create_topics(cloud)
    theirs = f"projects/{cloud.project}/subscriptions/eventarc-{REGION}-audit-log-1-sub-2"
    cloud.clients.subscriber.create_subscription(
        {"name": theirs, "topic": cloud.installation.topic_name}, **ONE_TRY
    )

    assert EventSubscription(cloud.clients, cloud.installation).look().state is State.WAITING


def test_a_message_that_is_refused_again_and_again_arrives_where_people_look(
    cloud: Cloud, refusing: str
) -> None:
    """Against the real emulator: it delivers five times, and then gives the message up."""
    create_topics(cloud)
    at_once = {"minimum_backoff": timedelta(), "maximum_backoff": timedelta()}
    deploy(cloud, refusing, retry_policy=at_once)
    subscription = EventSubscription(cloud.clients, cloud.installation, attempts=5)
    subscription.create()
    assert subscription.look().state is State.DIFFERENT  # its own waits, which are left alone

    topic = {"topic": cloud.installation.topic_name, "messages": [{"data": b"run-1"}]}
    cloud.clients.publisher.publish(topic, **ONE_TRY)

    dead = f"projects/{cloud.project}/subscriptions/leasehold-announcements-dead"
    pull = {"subscription": dead, "max_messages": 1}  # it waits until there is something

    def arrived() -> bool:
        pulling = cloud.clients.subscriber.pull(pull, retry=None, timeout=DEAD_LETTERED_S)
        pulled = pulling.received_messages
        return [one.message.data for one in pulled] == [b"run-1"]

    until(arrived, DEAD_LETTERED_S)


def test_permissions_are_added_to_what_a_policy_has(cloud: Cloud) -> None:
    create_topics(cloud)
    (publishing, _) = dead_letter_permissions(cloud.clients, cloud.installation)
    assert publishing.look() == PRESENT
    of = {"resource": cloud.installation.dead_topic_name}
    policy = cloud.clients.publisher.get_iam_policy(of, **ONE_TRY)
    policy.ClearField("bindings")
    policy.bindings.add(role="roles/pubsub.viewer", members=["user:ops@shop.example"])
    cloud.clients.publisher.set_iam_policy({**of, "policy": policy}, **ONE_TRY)

    publishing.create()

    kept = cloud.clients.publisher.get_iam_policy(of, **ONE_TRY)
    roles = [binding.role for binding in kept.bindings]
    assert roles == ["roles/pubsub.viewer", "roles/pubsub.publisher"]
