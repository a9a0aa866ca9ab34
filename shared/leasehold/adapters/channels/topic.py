"""A topic of Pub/Sub, with the official client."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.errors import ChannelRefusedError, ChannelUnavailableError
from leasehold.registry.channels import TopicChannel

if TYPE_CHECKING:  # the client takes a second to import
    from google.pubsub_v1 import PublisherClient

_SIGN_IN: Final = (
    "type `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
)


class TopicSender:
    """Publishes each announcement to a topic.

    Args:
        entry: the channel.
        base_url: see `EventMessage.content`.
    """

    def __init__(self, entry: TopicChannel, base_url: str) -> None:
        self._entry = entry
        self._base_url = base_url
        self._made: tuple[int, PublisherClient] | None = None
        self._making = threading.Lock()

    def send(self, delivery: Delivery, *, timeout: float) -> str:
        """Publish the announcement; return the id that Pub/Sub gives it."""
        call = BoundedCall(self._entry.name, timeout)
        return call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> str:
        from google.api_core import exceptions as google  # noqa: PLC0415 - as above
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - as above

        message = EventMessage(delivery)
        content = json.dumps(message.content(self._base_url), ensure_ascii=False)
        data = content.encode("utf-8", "replace")
        sent = {"data": data, "attributes": {**message.attributes(), "key": delivery.key}}
        for_good = (google.NotFound, google.Forbidden, google.Unauthorized)
        try:
            client = self._client()
            call.begin_sending()
            answer = client.publish(
                request={"topic": self._entry.topic, "messages": [sent]},
                retry=None,
                timeout=call.seconds_left(),
            )
        except for_good as error:
            problem = f"Pub/Sub answered {type(error).__name__} for {self._entry.topic}"
            raise ChannelRefusedError(channel=self._entry.name, problem=problem) from None
        except GoogleAuthError as error:  # nothing was sent
            problem = f"nobody can sign in to Google from here: {type(error).__name__}; {_SIGN_IN}"
            raise ChannelUnavailableError(channel=self._entry.name, problem=problem) from None
        except google.ClientError as error:  # it says that it was not taken
            problem = f"Pub/Sub answered {type(error).__name__}"
            raise ChannelUnavailableError(channel=self._entry.name, problem=problem) from None
        return answer.message_ids[0]

    def _client(self) -> PublisherClient:
        """Return the client of this process; a fork does not share connections."""
        with self._making:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), _make_client()
            return self._made[1]


def _make_client() -> PublisherClient:
    from google.pubsub_v1 import PublisherClient  # noqa: PLC0415 - as above

    emulator = os.environ.get("PUBSUB_EMULATOR_HOST")
    if not emulator:
        return PublisherClient()
    import grpc  # noqa: PLC0415 - as above
    from google.pubsub_v1.services.publisher.transports import (  # noqa: PLC0415 - as above
        PublisherGrpcTransport,
    )

    return PublisherClient(
        transport=PublisherGrpcTransport(channel=grpc.insecure_channel(emulator))
    )
