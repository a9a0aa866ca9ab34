"""Pub/Sub: its real emulator, to which each call is forwarded byte for byte."""

from __future__ import annotations

from typing import Final

import grpc
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.deploy.google_services.service import methods_of

#: Longer, and the emulator hangs: what waits for it says so.
_LONGEST_S: Final = 60.0


class PubSubEmulator:
    """The emulator, of whose methods only those of topics and subscriptions are forwarded.

    Args:
        address: its host and port.
    """

    def __init__(self, address: str) -> None:
        known = methods_of(PublisherGrpcTransport) | methods_of(SubscriberGrpcTransport)
        self.methods = {path: it for path, it in known.items() if path.startswith("/google.pubsub")}
        self._channel = grpc.insecure_channel(address)

    def forward(self, path: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        """Return its answer, or refuse as it does."""
        left = min(context.time_remaining() or _LONGEST_S, _LONGEST_S)
        try:
            return bytes(self._channel.unary_unary(path)(body, timeout=left))
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise

    def close(self) -> None:
        self._channel.close()
