"""The stand-in for Pub/Sub: takes messages, and pushes each to a function until it is acknowledged.

Deliveries are those of the Cloud Tasks double, with the faults that can be ordered there; what is
pushed, and how it is repeated, is as a push subscription does it. Nothing is kept on disk: what it
held when it ended is due in the store.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.bootstrap import system_clock
from leasehold.devserver.cloud_tasks import (
    HttpTask,
    QueueSettings,
    RetryConfig,
    request,
)
from leasehold.devserver.cloud_tasks.http_client import HttpClient
from leasehold.devserver.cloud_tasks.queue import Queues
from leasehold.devserver.cloud_tasks.request import invalid
from leasehold.devserver.cloud_tasks.routes import app_of, fault_routes
from leasehold.devserver.cloud_tasks.server import Delivering
from leasehold.devserver.cloud_tasks.task import UNLIMITED, Attempt
from leasehold.domain.timestamps import moment_text

#: Where messages are published; `adapters/http_events.py` calls it.
_PATH: Final = "/messages"
_PARENT: Final = "projects/local"

#: How long a function may take to acknowledge a message; and when it comes again if it does not.
_DEADLINE: Final = timedelta(minutes=1)
_RETRY: Final = RetryConfig(
    max_attempts=UNLIMITED,
    max_retry_duration=timedelta(hours=24),
    min_backoff=timedelta(seconds=1),
    max_backoff=timedelta(minutes=1),
    max_doublings=6,
)
_THREADS: Final = 32
_DRAIN_POLL_S: Final = 0.05


class EventsDouble(Delivering):
    """A topic on loopback with subscriptions, each of which pushes to a function.

    Args:
        subscriptions: by the id of each, the address of its function.
    """

    def __init__(self, subscriptions: Mapping[str, str]) -> None:
        self._subscriptions = subscriptions
        self._clock = clock = system_clock()
        queues = Queues(clock, QueueSettings(_RETRY), strict=False)
        app = app_of([("POST", _PATH, self._publish), *fault_routes(queues)])
        super().__init__(queues, HttpClient(_headers), _THREADS, app, "events-api")

    def drain(self, seconds: float, at_once: Callable[[], bool] = lambda: False) -> None:
        """Wait until every message is acknowledged, then start no more deliveries, for good.

        Args:
            seconds: how long is waited at most.
            at_once: whether to wait no longer; called again and again.
        """
        over_at = time.monotonic() + seconds
        while not self.is_idle() and time.monotonic() < over_at and not at_once():
            time.sleep(_DRAIN_POLL_S)
        self._dispatcher.close()

    def is_idle(self) -> bool:
        """Return whether all that was published is acknowledged."""
        with self._queues.changed:
            return not any(queue.tasks for queue in self._queues.all(_PARENT))

    def _publish(self) -> dict[str, Any]:
        """Take messages as Pub/Sub does over REST: `{"messages": [{"data", "attributes"}]}`."""
        messages = request.body().get("messages")
        if not isinstance(messages, list) or not messages:
            raise invalid("Invalid value at 'messages': a list of messages is needed.")
        read = [_read(message, f"messages[{place}]") for place, message in enumerate(messages)]
        ids = []
        for data, attributes in read:
            ids.append(str(int(self._clock.new_id(), 16)))
            message = _message_body(ids[-1], data, attributes, self._clock.now())
            for subscription in self._subscriptions:
                self._queues.add(
                    f"{_PARENT}/queues/{subscription}", self._push(subscription, message)
                )
        return {"messageIds": ids}

    def _push(self, subscription: str, message: Mapping[str, Any]) -> HttpTask:
        body = {"message": message, "subscription": f"{_PARENT}/subscriptions/{subscription}"}
        return HttpTask(
            message["messageId"],
            self._subscriptions[subscription],
            self._clock.now(),
            _DEADLINE,
            body=json.dumps(body).encode(),
        )


def _read(message: Any, path: str) -> tuple[bytes, Mapping[str, str]]:
    fields = request.JsonObject(message, path)
    data, attributes = fields.bytes_of("data"), fields.strings("attributes")
    fields.refuse_unknown()
    return data, attributes


def _message_body(
    message_id: str, data: bytes, attributes: Mapping[str, str], at: datetime
) -> dict[str, Any]:
    """Return a message as it is pushed; the service has some names in it twice."""
    published = moment_text(at)
    return {
        "data": base64.b64encode(data).decode(),
        "attributes": dict(attributes),
        "messageId": message_id,
        "message_id": message_id,
        "publishTime": published,
        "publish_time": published,
    }


def _headers(_: Attempt) -> dict[str, str]:
    return {"Content-Type": "application/json", "User-Agent": "CloudPubSub-Google"}
