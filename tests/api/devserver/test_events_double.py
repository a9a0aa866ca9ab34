"""The double of Pub/Sub: pushes as a subscription does, again until it is acknowledged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from leasehold.adapters.http_events import HttpEvents
from leasehold.devserver.events import EventsDouble
from tests.worlds.builders import message
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.waiting import until


class Subscriber(LoopbackHttp):
    """Answers pushes with these statuses, one after the other, and then with 200."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.pushed: list[Any] = []
        self.go_on = threading.Event()
        self.go_on.set()
        super().__init__(self._push)

    def _push(self, request: BaseHTTPRequestHandler) -> None:
        self.pushed.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        self.go_on.wait(30)
        request.send_response(self.statuses.pop(0) if self.statuses else 200)
        request.end_headers()

    def close(self) -> None:
        self.go_on.set()
        super().close()


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    subscriber = Subscriber()
    yield subscriber
    subscriber.close()


@pytest.fixture
def double(subscriber: Subscriber) -> Iterator[EventsDouble]:
    double = EventsDouble({"push": subscriber.url})
    yield double
    double.stop()


def test_what_is_not_acknowledged_comes_again_as_the_same_message(
    subscriber: Subscriber, double: EventsDouble
) -> None:
    subscriber.statuses = [500]

    HttpEvents(double.start(), "").publish([message("r-1")])
    until(lambda: len(subscriber.pushed) == 2)

    first, second = subscriber.pushed
    assert first == second
    assert first["message"]["attributes"]["event"] == "run_completed"
    assert first["message"]["messageId"] == first["message"]["message_id"]


def test_what_it_has_taken_is_delivered_before_it_stops(
    subscriber: Subscriber, double: EventsDouble
) -> None:
    HttpEvents(double.start(), "").publish([message("r-1"), message("r-2")])

    double.drain(30)

    assert len(subscriber.pushed) == 2


@pytest.mark.parametrize(("seconds", "at_once"), [(0.05, False), (30, True)])
def test_a_function_that_does_not_answer_holds_up_no_end(
    subscriber: Subscriber, double: EventsDouble, seconds: float, at_once: bool
) -> None:
    subscriber.go_on.clear()
    HttpEvents(double.start(), "").publish([message("r-1")])
    until(lambda: subscriber.pushed)

    double.drain(seconds, lambda: at_once)

    assert len(subscriber.pushed) == 1


def test_each_subscription_is_told_and_asked_again_by_itself(subscriber: Subscriber) -> None:
    other = Subscriber()
    other.statuses = [500]
    double = EventsDouble({"push": subscriber.url, "other": other.url})
    try:
        HttpEvents(double.start(), "").publish([message("r-1")])
        until(lambda: len(other.pushed) == 2)
        double.drain(30)

        (pushed,) = subscriber.pushed
        assert [push["message"] for push in other.pushed] == [pushed["message"]] * 2
        assert pushed["subscription"] == "projects/local/subscriptions/push"
        assert other.pushed[0]["subscription"] == "projects/local/subscriptions/other"
    finally:
        double.stop()
        other.close()
