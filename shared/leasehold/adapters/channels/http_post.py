"""One POST to an address that was checked: no redirect, no proxy, no second connection."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from leasehold.adapters.channels.addresses import Endpoint
from leasehold.adapters.channels.bounded_call import BoundedCall, words_of
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    LeaseholdError,
)

#: So long a provider may have us wait, in seconds.
LONGEST_WAIT_S: Final = 3600
_SECONDS: Final = re.compile(r"[0-9]{1,9}")

#: A redirect for good is one; any other may be gone with a page that says "under maintenance".
_REFUSALS: Final = frozenset({401, 403, 404, 410, 301, 308})
#: A server in between says that the one behind it broke off: that one may have taken it.
_UNANSWERED: Final = frozenset({502, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; `excerpt` is the beginning of an answer other than 2xx."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    excerpt: str = field(repr=False)

    @property
    def is_taken(self) -> bool:
        """Whether the server took it."""
        return _is_taken(self.status)


def post(
    call: BoundedCall,
    endpoint: Endpoint,
    addresses: Sequence[str],
    body: bytes,
    headers: Mapping[str, str],
    *,
    excerpt: int = 0,
) -> Answer:
    """Send a request, and return the answer.

    Args:
        call: within which it is sent.
        endpoint: where to.
        addresses: those of its host; the first that can be reached is used.
        body: what to send.
        headers: with these, and no others than HTTP's own.
        excerpt: how many bytes to read of an answer that is not 2xx.

    Raises:
        OSError, HTTPException: it was not sent, or has no answer; the call knows which.
    """
    kind = http.client.HTTPSConnection if endpoint.is_tls else http.client.HTTPConnection
    connection = kind(endpoint.host, endpoint.port)
    connection.auto_open = 0  # it never looks for the host itself
    try:
        connection.sock = _connected(call, endpoint, addresses)
        call.begin_sending()
        connection.request("POST", endpoint.path, body, dict(headers))
        with connection.getresponse() as answer:
            words = _beginning(answer, excerpt)
            return Answer(answer.status, dict(answer.headers), words)
    finally:
        connection.close()


def refusal_of(channel: str, host: str, answer: Answer, now: datetime) -> LeaseholdError:
    """Return the error that an answer other than 2xx comes to.

    Args:
        channel: the channel.
        host: who answered.
        answer: the answer.
        now: the time, for a Retry-After that is one.
    """
    status = answer.status
    problem = f"{host} answered {status}"
    if status // 100 == 3:  # noqa: PLR2004 - 3xx
        problem = f"{problem}: no redirect is followed"
    if status in _REFUSALS:
        return ChannelRefusedError(channel=channel, problem=problem)
    wait = retry_after(answer.headers, now)
    kind = ChannelUnansweredError if status in _UNANSWERED else ChannelUnavailableError
    return kind(channel=channel, problem=problem, retry_after_s=wait)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return for how many seconds a server asks us to wait, at most an hour; None: it does not."""
    values = {name.lower(): value for name, value in headers.items()}
    text = values.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return float(min(int(text), LONGEST_WAIT_S))
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        wait = (parsedate_to_datetime(text) - now).total_seconds()
        return min(max(wait, 0.0), float(LONGEST_WAIT_S))
    return None


def _connected(call: BoundedCall, endpoint: Endpoint, addresses: Sequence[str]) -> socket.socket:
    """Return a connection to one of the addresses; with TLS, to who proves to be the host."""
    raw = _reached(call, endpoint.port, addresses)
    try:
        call.use(raw)
        if not endpoint.is_tls:
            return raw
        context = ssl.create_default_context()
        return context.wrap_socket(raw, server_hostname=endpoint.host.rstrip("."))
    except BaseException:
        raw.close()
        raise


def _reached(call: BoundedCall, port: int, addresses: Sequence[str]) -> socket.socket:
    problem: OSError | None = None
    for number, address in enumerate(addresses):
        share = call.seconds_left() / (len(addresses) - number)
        try:
            return socket.create_connection((address, port), share)
        except OSError as error:
            problem = error
    words = "it has no address" if problem is None else words_of(problem)
    raise ChannelUnavailableError(channel=call.channel, problem=f"no connection: {words}")


def _beginning(answer: http.client.HTTPResponse, most: int) -> str:
    """Return the beginning of an answer that refuses; its status is known already."""
    if not most or _is_taken(answer.status):
        return ""
    try:
        return answer.read1(most).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""


def _is_taken(status: int) -> bool:
    return status // 100 == 2  # noqa: PLR2004 - 2xx
