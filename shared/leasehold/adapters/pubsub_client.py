"""The official client of Pub/Sub, one a process; who publishes to a topic uses it."""

# ruff: noqa: PLC0415 - the client takes a second to import: only who publishes waits for it

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

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
