"""Pub/Sub itself, as far as its emulator is it: a topic, a push subscription, the real function."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from werkzeug.serving import make_server

from leasehold.adapters.pubsub import PubSubEvents
from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query
from leasehold.testing import InProcessEngine
from tests.worlds.builders import message
from tests.worlds.emulators import need_pubsub, pubsub_host
from tests.worlds.functions import Function, delivery_of, told
from tests.worlds.ports import own_port
from tests.worlds.serving import while_serving
from tests.worlds.waiting import until


@dataclass
class Pushed:
    """The function as it is served, and the status of each of its answers."""

    function: Function
    url: str = ""
    statuses: list[int] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        def started(status: str, *rest: Any) -> Any:
            self.statuses.append(int(status.split(maxsplit=1)[0]))
            return start_response(status, *rest)

        answer: Iterable[bytes] = self.function.client.application(environ, started)
        return answer


@pytest.fixture
def project(announcing: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A project of the emulator, whose topic is the bus of the function and the engine."""
    need_pubsub()
    project = f"p-{secrets.token_hex(8)}"
    announcing["LEASEHOLD_EVENTS"] = f"pubsub://{project}/runs"
    monkeypatch.setenv("LEASEHOLD_EVENTS", announcing["LEASEHOLD_EVENTS"])
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_host())
    return project


@pytest.fixture
def pushed(project: str, deliver_notification: Function) -> Iterator[Pushed]:
    """The function under its own server, and a subscription that pushes to it."""
    pushed = Pushed(deliver_notification)
    server = make_server("127.0.0.1", 0, pushed, threaded=True)
    pushed.url = f"http://127.0.0.1:{server.port}/"
    with while_serving(server), grpc.insecure_channel(pubsub_host()) as channel:
        subscribe(channel, project, pushed.url)
        yield pushed
        SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)).delete_subscription(
            subscription=f"projects/{project}/subscriptions/push"
        )


def subscribe(channel: grpc.Channel, project: str, url: str) -> None:
    topic = f"projects/{project}/topics/runs"
    PublisherClient(transport=PublisherGrpcTransport(channel=channel)).create_topic(name=topic)
    SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)).create_subscription(
        request={
            "name": f"projects/{project}/subscriptions/push",
            "topic": topic,
            "push_config": {"push_endpoint": url},
        }
    )


@pytest.fixture
def environ(project: str, announcing: dict[str, str]) -> dict[str, str]:
    return announcing


def test_a_run_is_announced_once_however_often_its_message_comes(
    engine: InProcessEngine, pushed: Pushed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leasehold")

    run = engine.run("three", {"n": 1})
    until(lambda: pushed.statuses == [200])
    first = delivery_of(engine)
    engine.engine.events.publish([EventMessage(first)] * 2)
    until(lambda: pushed.statuses == [200] * 3)

    (line,) = told(caplog)
    assert first.state == "announced"
    assert f'"runId": "{run.run_id}"' in line
    assert delivery_of(engine).token == first.token


def test_what_is_answered_with_an_error_comes_again(
    engine: InProcessEngine,
    pushed: Pushed,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is away when the message comes first."""
    caplog.set_level(logging.INFO, "leasehold")
    documents = pushed.function.provider.engine.documents
    get, calls = documents.get, iter([True, True])

    def away_twice(*given: Any, **options: Any) -> Any:
        if next(calls, None):
            raise StoreUnavailableError(store="sqlite", problem="away")
        return get(*given, **options)

    monkeypatch.setattr(documents, "get", away_twice)
    engine.run("three", {"n": 1})
    until(lambda: 200 in pushed.statuses)

    assert pushed.statuses == [500, 500, 200]
    assert delivery_of(engine).state == "announced"
    assert len(told(caplog)) == 1
    assert len(engine.engine.documents.query(Query("deliveries"))) == 1


def test_all_messages_of_a_call_are_one_request_with_attributes(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = PubSubEvents(project, "runs", "https://runs.example")
    with grpc.insecure_channel(pubsub_host()) as channel:
        subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        subscribe(channel, project, "")
        bus.publish([message("r-1"), message("r-2", channel="ops")])
        pulled = subscriber.pull(
            subscription=f"projects/{project}/subscriptions/push", max_messages=10
        )
    assert bus.close()

    got = {one.message.attributes["channel"]: one.message for one in pulled.received_messages}
    facts = json.loads(got["ops"].data)
    assert dict(got["log"].attributes) == {
        "event": "run_completed",
        "channel": "log",
        "pipeline": "letters",
        "priority": "normal",
    }
    assert (facts["subject"], facts["type"]) == ("r-2", "leasehold.run_completed")
    assert facts["data"]["links"]["run"] == "https://runs.example/runs/r-2"


def test_the_wait_for_an_unavailable_service_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{own_port()}")
    bus = PubSubEvents("p", "runs", "", patience=timedelta(seconds=0.3))

    with pytest.raises(StoreUnavailableError, match="pubsub://p/runs"):
        bus.publish([message("r-1")])

    assert bus.close()


def test_a_topic_that_is_not_there_costs_no_run_its_end(
    engine: InProcessEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not published is due; the sweep publishes it again."""
    run = engine.run("three", {"n": 1})

    assert run.status == "COMPLETED"
    assert delivery_of(engine).state == "due"
    assert "Topic not found" in caplog.text
