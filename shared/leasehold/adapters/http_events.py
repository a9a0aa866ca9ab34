"""The event bus port on a server of this machine, such as that of `leasehold dev`."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Sequence
from typing import Any, Final

from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError

#: Where it takes messages, and how it is asked to.
PATH: Final = "/messages"
_JSON: Final = {"Content-Type": "application/json"}
_REQUEST_TIMEOUT_S: Final = 5.0
#: So many messages are one request: a server reads bodies of 1 MiB.
_MAX_MESSAGES_PER_REQUEST: Final = 100


class HttpEvents:
    """Posts messages to a server that pushes each of them to `deliver_notification`.

    Args:
        address: `http://127.0.0.1:PORT`. No proxy is asked, whatever the environment says.
        base_url: see `EventMessage.content`.
    """

    def __init__(self, address: str, base_url: str) -> None:
        self._address = address
        self._base_url = base_url

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Publish the messages.

        Raises:
            StoreUnavailableError: the server did not take them. Retryable.
        """
        for first in range(0, len(messages), _MAX_MESSAGES_PER_REQUEST):
            self._publish(messages[first : first + _MAX_MESSAGES_PER_REQUEST])

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way after a call
        """Do nothing: each call has its own connection."""
        return True

    def _publish(self, messages: Sequence[EventMessage]) -> None:
        body = json.dumps({"messages": [self._message(one) for one in messages]})
        connection = http.client.HTTPConnection(
            self._address.removeprefix("http://"), timeout=_REQUEST_TIMEOUT_S
        )
        try:
            connection.request("POST", PATH, body, _JSON)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise self._unavailable(f"it answered {answer.status}")

    def _message(self, message: EventMessage) -> dict[str, Any]:
        """Return a message as Pub/Sub takes it over REST."""
        data = base64.b64encode(message.encoded(self._base_url)).decode()
        return {"data": data, "attributes": message.attributes()}

    def _unavailable(self, problem: str) -> StoreUnavailableError:
        return StoreUnavailableError(store=self._address, problem=problem)
