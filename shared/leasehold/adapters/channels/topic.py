"""A topic of Pub/Sub, with the official client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.adapters.pubsub import PubSubClient
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.errors import ChannelRefusedError, ChannelUnavailableError
from leasehold.registry.channels import TopicChannel

if TYPE_CHECKING:
    from leasehold.adapters.channels.factory import ChannelOpener

_SIGN_IN: Final = (
    "type `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
)


class TopicSender:
    """Publishes each announcement to a topic.

    Args:
        entry: the channel.
        opener: knows the address for the links.
    """

    def __init__(self, entry: TopicChannel, opener: ChannelOpener) -> None:
        self._entry = entry
        self._base_url = opener.base_url
        self._client = PubSubClient()

    def send(self, delivery: Delivery, *, timeout: float) -> str:
        """Publish the announcement; return the id that Pub/Sub gives it."""
        call = BoundedCall(self._entry.name, timeout)
        return call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> str:
        from google.api_core import exceptions as google  # noqa: PLC0415 - as its client
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - as its client

        message = EventMessage(delivery)
        attributes = {**message.attributes(), "key": delivery.key}
        sent = {"data": message.encoded(self._base_url), "attributes": attributes}
        for_good = (google.NotFound, google.Forbidden, google.Unauthorized)
        try:
            client = self._client.get()
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
            problem = f"there are no credentials of Google here: {type(error).__name__}; {_SIGN_IN}"
            raise ChannelUnavailableError(channel=self._entry.name, problem=problem) from None
        except google.ClientError as error:  # it says that it was not taken
            problem = f"Pub/Sub answered {type(error).__name__}"
            raise ChannelUnavailableError(channel=self._entry.name, problem=problem) from None
        return answer.message_ids[0]
