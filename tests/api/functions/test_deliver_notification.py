"""The function that Pub/Sub calls, under the real framework: what it does, and what it refuses."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError
from leasehold.testing import InProcessEngine
from leasehold.web.deliver_notification import MAX_MESSAGE_BYTES
from leasehold.web.engine_provider import SHUTDOWN
from tests.worlds.functions import Function, delivery_of, told

CE = {
    "ce-id": "1",
    "ce-source": "//pubsub.googleapis.com/projects/p/topics/t",
    "ce-specversion": "1.0",
    "ce-type": "google.cloud.pubsub.topic.v1.messagePublished",
}
GOOD = {"data": {"runId": "r-0123456789abcdef", "occurrence": "3", "channel": "log"}}


@pytest.fixture
def environ(announcing: dict[str, str]) -> dict[str, str]:
    """The bus of its runs is away: what they owe is due."""
    return announcing


def owed(engine: InProcessEngine) -> Delivery:
    """Return what the channel is owed by a run that completed."""
    engine.run("three", {"n": 1})
    return delivery_of(engine)


def pushed(content: object) -> dict[str, Any]:
    """Return the body of a push; the content is JSON, or the bytes themselves."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    message = {"data": base64.b64encode(data).decode(), "messageId": "1", "attributes": {}}
    return {"message": message, "subscription": "projects/p/subscriptions/s"}


def of(delivery: Delivery) -> dict[str, Any]:
    return pushed(EventMessage(delivery).content(""))


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of messages that are dropped."""
    return [r.getMessage() for r in caplog.records if r.name == "leasehold.deliver_notification"]


@pytest.mark.parametrize("mode", ["raw", "binary", "structured"])
def test_a_message_is_announced_once_in_each_content_mode(
    engine: InProcessEngine,
    deliver_notification: Function,
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    caplog.set_level(logging.INFO)
    body = of(owed(engine))

    answers = [send(deliver_notification, mode, body) for _ in range(2)]

    assert answers == [200, 200]
    assert delivery_of(engine).state == "announced"
    assert len(told(caplog)) == 1


def send(function: Function, mode: str, body: Mapping[str, Any]) -> int:
    match mode:
        case "raw":
            answer = function.client.post("/", json=body)
        case "binary":
            answer = function.client.post("/", json=body, headers=CE)
        case _:
            event = {name.removeprefix("ce-"): value for name, value in CE.items()}
            answer = function.client.post(
                "/",
                data=json.dumps(event | {"data": body}),
                content_type="application/cloudevents+json",
            )
    return answer.status_code


CONTENTS = {
    "not JSON": pushed(b"{"),
    "not UTF-8": pushed(b"\xff\xfe"),
    "a list": pushed([]),
    "without data": pushed({"specversion": "1.0"}),
    "of another shape": pushed({"data": "text"}),
    "with an id that no run has": pushed({"data": {**GOOD["data"], "runId": "../x"}}),
    "with a number for an id": pushed({"data": {**GOOD["data"], "runId": 5}}),
    "with no occurrence": pushed({"data": {**GOOD["data"], "occurrence": "x"}}),
    "with a channel of many lines": pushed({"data": {**GOOD["data"], "channel": "a\nERROR b"}}),
    "over-long": pushed({**GOOD, "more": "x" * MAX_MESSAGE_BYTES}),
    "of an unknown run": pushed(GOOD),
    "of an unknown channel": pushed({"data": {**GOOD["data"], "channel": "no-such"}}),
    "deeper than anything": pushed(b"[" * 20_000),
    "not in base64": {**pushed(GOOD), "message": {"data": "%%%", "messageId": "1"}},
    "without a message": {"message": {"messageId": "1"}, "subscription": "s"},
    "whose message is a list": {"message": [], "subscription": "s"},
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_message_that_nothing_can_be_done_for_is_logged_and_acknowledged(
    deliver_notification: Function, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Pub/Sub would deliver it again for a day."""
    answer = deliver_notification.client.post("/", json=CONTENTS[kind])

    (line,) = dropped(caplog)
    assert answer.status_code == 200
    assert line.startswith("a message is dropped: ")
    assert line.isprintable()
    assert len(line) < 600


def test_a_message_that_is_too_large_is_not_decoded(
    engine: InProcessEngine, deliver_notification: Function, caplog: pytest.LogCaptureFixture
) -> None:
    """It names a delivery that is due: one of a usual size is announced."""
    content = EventMessage(owed(engine)).content("")

    deliver_notification.client.post("/", json=pushed({**content, "more": "x" * MAX_MESSAGE_BYTES}))

    assert dropped(caplog)[0].startswith("a message is dropped: the message has ")
    assert delivery_of(engine).state == "due"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"not JSON", {"Content-Type": "application/json"}),
        (b"not JSON", {"Content-Type": "text/plain"}),
        (b"", {}),
        (b"null", {"Content-Type": "application/json"}),
        (b"[" * 200_000, {"Content-Type": "application/json"}),
        (b"{", {"Content-Type": "application/cloudevents+json"}),
        (b'{"specversion": "9"}', {"Content-Type": "application/cloudevents+json"}),
        (b"{", {"Content-Type": "application/json", **CE}),
        (b'"text"', {"Content-Type": "application/json", **CE}),
        (b"\xff\xfe", {"Content-Type": "application/octet-stream", **CE}),
    ],
)
def test_a_body_that_is_not_an_event_is_logged_and_acknowledged(
    deliver_notification: Function,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    headers: dict[str, str],
) -> None:
    """The framework would answer 400 or 500, and Pub/Sub come again."""
    answer = deliver_notification.client.post("/", data=body, headers=headers)

    (line,) = dropped(caplog)
    assert answer.status_code == 200
    assert line.startswith("a message is dropped: ")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_only_a_post_is_an_event(deliver_notification: Function, method: str) -> None:
    assert deliver_notification.client.open("/", method=method).status_code == 405


def test_a_store_that_is_away_has_the_message_come_again(
    engine: InProcessEngine,
    deliver_notification: Function,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    body = of(owed(engine))
    documents = deliver_notification.provider.engine.documents

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError(store="sqlite", problem="away")

    with monkeypatch.context() as patch:
        patch.setattr(documents, "get", away)
        first = deliver_notification.client.post("/", json=body)
    second = deliver_notification.client.post("/", json=body)

    assert (first.status_code, second.status_code) == (500, 200)
    assert first.get_json()["error"]["code"] == "store_unavailable"
    assert [line for line in dropped(caplog) if "comes again" in line]
    assert len(told(caplog)) == 1


def test_a_message_comes_again_after_an_unexpected_error(
    engine: InProcessEngine,
    deliver_notification: Function,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = of(owed(engine))
    documents = deliver_notification.provider.engine.documents

    def mistaken(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(documents, "get", mistaken)
    answer = deliver_notification.client.post("/", json=body)

    assert answer.status_code == 500
    assert answer.get_json()["error"]["code"] == "internal"
    assert "mistake" not in answer.text
    assert [line for line in dropped(caplog) if line.endswith("comes again")]


def test_an_instance_that_ends_leaves_the_message_to_another_one(
    engine: InProcessEngine, deliver_notification: Function
) -> None:
    body = of(owed(engine))
    SHUTDOWN.request()

    answer = deliver_notification.client.post("/", json=body)

    assert answer.status_code == 500
    assert answer.get_json()["error"]["code"] == "instance_shutdown"
    assert delivery_of(engine).state == "due"
