"""Webhooks, signed as Standard Webhooks says (www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from functools import partial
from typing import TYPE_CHECKING, Final

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.adapters.channels.http_post import AddressGuard, post, refusal_of
from leasehold.adapters.channels.variables import Variables
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.errors import ChannelUnavailableError
from leasehold.registry.channels import WebhookChannel

if TYPE_CHECKING:
    from leasehold.adapters.channels.factory import ChannelOpener

_PREFIX: Final = "whsec_"
_MIN_KEY_BYTES: Final = 24
_MAX_KEY_BYTES: Final = 64


class WebhookSender:
    """Posts each announcement to a webhook.

    Args:
        entry: the channel.
        opener: has its address and its secret, and says which addresses may be called.
    """

    def __init__(self, entry: WebhookChannel, opener: ChannelOpener) -> None:
        self.entry, self.opener = entry, opener
        self.variables = Variables(opener.environ, entry.name)
        self.guard = AddressGuard(entry.name, opener.resolve, allow_local=opener.allow_local)

    def send(self, delivery: Delivery, *, timeout: float) -> None:
        """Post the announcement; a webhook gives it no name of its own."""
        call = BoundedCall(self.entry.name, timeout)
        call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> None:
        endpoint = self.guard.endpoint(self.variables.read(self.entry.url_variable))
        secrets = self._secrets()
        addresses = self.guard.addresses(endpoint)
        body = EventMessage(delivery).encoded(self.opener.base_url)
        now = self.opener.clock.now()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "leasehold",
            "webhook-id": delivery.key,
            "webhook-timestamp": (timestamp := str(int(now.timestamp()))),
            "webhook-signature": signatures(secrets, delivery.key, timestamp, body),
        }
        answer = post(call, endpoint, addresses, body, headers)
        if not answer.is_taken:
            raise refusal_of(self.entry.name, endpoint.host, answer, now)

    def _secrets(self) -> list[bytes]:
        name = self.entry.secret_variable
        try:
            return [_key_in(text) for text in self.variables.read(name).split()]
        except ValueError:
            problem = f"{name} is not {_PREFIX} and the base64 of 24 to 64 bytes"
            raise ChannelUnavailableError(channel=self.entry.name, problem=problem) from None


def signatures(secrets: list[bytes], name: str, timestamp: str, body: bytes) -> str:
    """Return the signatures of a message, one a secret.

    Args:
        secrets: what signs.
        name: the id of the message.
        timestamp: when it is sent, in seconds since 1970.
        body: as it is sent.
    """
    signed = f"{name}.{timestamp}.".encode() + body
    made = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made)


def _key_in(text: str) -> bytes:
    if not text.startswith(_PREFIX):
        raise ValueError("it has no prefix")
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("it is not base64") from None
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ValueError("it is too short or too long")
    return key
