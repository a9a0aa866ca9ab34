"""The event bus port on Pub/Sub, with the official client.

All messages of a call are one request, made in the caller's thread: the client's batches would hold
messages back in a thread of theirs, and a function may be frozen or gone once it has answered.
"""

# ruff: noqa: PLC0415 - the client takes a second to import: only who publishes waits for it

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError

#: So many messages the service takes with one request.
_MAX_MESSAGES_PER_REQUEST: Final = 1000


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
        self._client = PubSubClient()

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Publish the messages; some may be published twice, as by a retry.

        Raises:
            StoreUnavailableError: the topic did not take them. Retryable.
        """
        for first in range(0, len(messages), _MAX_MESSAGES_PER_REQUEST):
            self._publish(
                [self._message(one) for one in messages[first : first + _MAX_MESSAGES_PER_REQUEST]]
            )

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way after a call
        """Close the connection, if this process has one."""
        self._client.close()
        return True

    def _message(self, message: EventMessage) -> dict[str, Any]:
        return {"data": message.encoded(self._base_url), "attributes": message.attributes()}

    def _publish(self, messages: Sequence[dict[str, Any]]) -> None:
        from google.api_core.exceptions import GoogleAPIError
        from google.api_core.retry import Retry
        from google.api_core.timeout import TimeToDeadlineTimeout
        from google.auth.exceptions import GoogleAuthError

        within: Any = TimeToDeadlineTimeout(self._patience)  # type: ignore[no-untyped-call] # has no types
        try:
            self._client.get().publish(
                request={"topic": self._topic, "messages": messages},
                retry=Retry(predicate=_may_pass, initial=0.1, maximum=1.0, timeout=self._patience),
                timeout=within,
            )
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            last = getattr(error, "cause", None) or error  # a RetryError has what the last try met
            problem = f"{type(last).__name__}: {last}"
            raise StoreUnavailableError(store=self._address, problem=problem) from error


def _may_pass(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    from google.api_core import exceptions as google
    from google.auth.exceptions import TransportError

    passing = (google.ServerError, google.TooManyRequests, google.Aborted, TransportError)
    return isinstance(error, passing)


# The official client of Pub/Sub, one a process; who publishes to a topic uses it.


if TYPE_CHECKING:
    from google.pubsub_v1 import PublisherClient

#: The emulator's own variable; nothing is authenticated there.
EMULATOR: Final = "PUBSUB_EMULATOR_HOST"


class PubSubClient:
    """Makes the client when it is needed first, and once more after a fork.

    A fork does not share connections.
    """

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._client: PublisherClient | None = None
        self._made_in = 0

    def get(self) -> PublisherClient:
        """Return the client of this process."""
        with self._making:
            if self._client is None or self._made_in != os.getpid():
                self._client, self._made_in = _made(), os.getpid()
            return self._client

    def close(self) -> None:
        """Close the connection, if this process has one."""
        with self._making:
            if self._client is not None and self._made_in == os.getpid():
                self._client.transport.close()  # type: ignore[no-untyped-call] # has no types
            self._client = None


def _made() -> PublisherClient:
    from google.pubsub_v1 import PublisherClient

    emulator = os.environ.get(EMULATOR)
    if not emulator:
        return PublisherClient()
    import grpc
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    channel = grpc.insecure_channel(emulator)
    return PublisherClient(transport=PublisherGrpcTransport(channel=channel))
