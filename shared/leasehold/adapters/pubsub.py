"""The event bus port on Pub/Sub, with the official client.

All messages of a call are one request, made in the caller's thread: the client's batches would hold
messages back in a thread of theirs, and a function may be frozen or gone once it has answered.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError

if TYPE_CHECKING:  # the client takes a second to import: only who publishes waits for it
    from google.pubsub_v1 import PublisherClient

#: The emulator's own variable; nothing is authenticated there.
EMULATOR: Final = "PUBSUB_EMULATOR_HOST"

#: So many messages the service takes with one request.
_MOST: Final = 1000


class PubSubEvents:
    """Publishes each message to a topic, whose subscription pushes it to `deliver_notification`.

    Args:
        project: where the topic is.
        topic: its short name.
        base_url: see `EventMessage.content`.
        patience: how long one request may take, tries included.
    """

    def __init__(
        self,
        project: str,
        topic: str,
        base_url: str,
        *,
        patience: timedelta = timedelta(seconds=5),
    ) -> None:
        self._topic = f"projects/{project}/topics/{topic}"
        self._address = f"pubsub://{project}/{topic}"
        self._base_url = base_url
        self._patience = patience.total_seconds()
        self._lock = threading.Lock()
        self._client: PublisherClient | None = None
        self._made_in = 0

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Publish the messages; some may be published twice, as by a retry.

        Raises:
            StoreUnavailableError: the topic did not take them. Retryable.
        """
        for first in range(0, len(messages), _MOST):
            self._publish([self._message(one) for one in messages[first : first + _MOST]])

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way after a call
        """Close the connection, if this process has one."""
        with self._lock:
            if self._client is not None and self._made_in == os.getpid():
                self._client.transport.close()  # type: ignore[no-untyped-call] # has no types
            self._client = None
        return True

    def _message(self, message: EventMessage) -> dict[str, Any]:
        content = json.dumps(message.content(self._base_url), ensure_ascii=False)
        return {"data": content.encode(), "attributes": message.attributes()}

    def _publish(self, messages: Sequence[dict[str, Any]]) -> None:
        from google.api_core.exceptions import GoogleAPIError  # noqa: PLC0415 - lazy, see above
        from google.api_core.retry import Retry  # noqa: PLC0415
        from google.api_core.timeout import TimeToDeadlineTimeout  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        within: Any = TimeToDeadlineTimeout(self._patience)  # type: ignore[no-untyped-call] # has no types
        try:
            self._ready_client().publish(
                request={"topic": self._topic, "messages": messages},
                retry=Retry(predicate=_may_pass, initial=0.1, maximum=1.0, timeout=self._patience),
                timeout=within,
            )
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            last = getattr(error, "cause", None) or error  # a RetryError has what the last try met
            problem = f"{type(last).__name__}: {last}"
            raise StoreUnavailableError(store=self._address, problem=problem) from error

    def _ready_client(self) -> PublisherClient:
        """Return the client of this process; a fork does not share connections."""
        with self._lock:
            if self._client is None or self._made_in != os.getpid():
                self._client, self._made_in = _make_client(), os.getpid()
            return self._client


def _make_client() -> PublisherClient:
    from google.pubsub_v1 import PublisherClient  # noqa: PLC0415 - lazy, see above

    emulator = os.environ.get(EMULATOR)
    if not emulator:
        return PublisherClient()
    import grpc  # noqa: PLC0415 - lazy, see above
    from google.pubsub_v1.services.publisher.transports import (  # noqa: PLC0415
        PublisherGrpcTransport,
    )

    return PublisherClient(
        transport=PublisherGrpcTransport(channel=grpc.insecure_channel(emulator))
    )


def _may_pass(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    from google.api_core import exceptions as google  # noqa: PLC0415 - lazy, see above
    from google.auth.exceptions import TransportError  # noqa: PLC0415

    passing = (google.ServerError, google.TooManyRequests, google.Aborted, TransportError)
    return isinstance(error, passing)
