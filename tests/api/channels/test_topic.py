"""A topic gets the message that a webhook gets, with its key, by the official client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from google.pubsub_v1.types import PublishRequest, PublishResponse

from leasehold import TopicChannel
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
)
from tests.worlds.deliveries import KEY, SHORT_S, TIMEOUT_S, delivery, opener

TEAM = TopicChannel(name="team", topic="projects/shop/topics/runs")


@dataclass
class Topic:
    """A server of Pub/Sub that takes messages, or answers a code."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    taken: list[PublishRequest] = field(default_factory=list)
    is_silent: bool = False
    ending: threading.Event = field(default_factory=threading.Event)

    def publish(self, request: PublishRequest, context: grpc.ServicerContext) -> PublishResponse:
        self.taken.append(request)
        if self.is_silent:
            self.ending.wait(30)
        if self.code is not grpc.StatusCode.OK:
            context.abort(self.code, "no")
        return PublishResponse(message_ids=["17"])


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Topic]:
    topic = Topic()
    publish = grpc.unary_unary_rpc_method_handler(
        topic.publish, PublishRequest.deserialize, PublishResponse.serialize
    )
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = grpc.method_handlers_generic_handler(
        "google.pubsub.v1.Publisher", {"Publish": publish}
    )
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{port}")
    yield topic
    topic.ending.set()
    server.stop(None).wait()


def test_the_message_has_its_key_and_what_subscriptions_filter_by(topic: Topic) -> None:
    assert opener()(TEAM).send(delivery(), timeout=TIMEOUT_S) == "17"

    (request,) = topic.taken
    (message,) = request.messages
    assert request.topic == "projects/shop/topics/runs"
    assert json.loads(message.data)["id"] == KEY
    assert dict(message.attributes) == {
        "channel": "team",
        "event": "run_blocked",
        "key": KEY,
        "pipeline": "letters",
        "priority": "high",
    }


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", ChannelRefusedError),
        ("PERMISSION_DENIED", ChannelRefusedError),
        ("UNAUTHENTICATED", ChannelRefusedError),
        ("RESOURCE_EXHAUSTED", ChannelUnavailableError),
        ("UNAVAILABLE", ChannelUnansweredError),
        ("INTERNAL", ChannelUnansweredError),
    ],
)
def test_its_codes_tell_whether_another_try_can_help(
    topic: Topic, code: str, kind: type[Exception]
) -> None:
    topic.code = grpc.StatusCode[code]

    with pytest.raises((ChannelRefusedError, ChannelUnavailableError)) as refused:
        opener()(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert type(refused.value) is kind
    assert len(topic.taken) == 1  # the client makes no try of its own


def test_a_topic_that_never_answers_blocks_nothing(topic: Topic) -> None:
    topic.is_silent = True
    for timeout in SHORT_S:
        with pytest.raises(ChannelUnavailableError) as over:
            opener()(TEAM).send(delivery(), timeout=timeout)
        if topic.taken:
            break

    assert type(over.value) is ChannelUnansweredError
