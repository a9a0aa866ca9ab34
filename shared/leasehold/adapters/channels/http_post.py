"""One POST to an address that was checked: no redirect, no proxy, no second connection."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NoReturn
from urllib.parse import SplitResult, urlsplit

from leasehold.adapters.channels.bounded_call import BoundedCall, words_of
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    LeaseholdError,
)
from leasehold.frozen import dataclass

# Which addresses a channel may call: a name in its URL must not lead into this network.


#: Returns the addresses of a host: what a name server says at that moment.
Resolve = Callable[[str, int], Sequence[str]]

_MAX_URL_CHARS: Final = 2048
_HTTPS_PORT: Final = 443
_FIRST_FREE_PORT: Final = 1024  # below stand other protocols
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")

#: Where clouds tell their machines of their accounts; some of it lies in networks of others.
_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
_METADATA_NAMES: Final = frozenset({"metadata.google.internal", "metadata.goog", "metadata"})

#: Networks of this machine and of its owner, which one may allow.
_LOCAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "127.0.0.0/8",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "100.64.0.0/10",
            "::1/128",
            "fc00::/7",
        ),
    )
)
#: All of IPv6 that is assigned on the internet.
_GLOBAL: Final = ipaddress.ip_network("2000::/3")
#: IPv6 addresses that lead to the IPv4 address in them: where it ends, in bits from the right.
_CARRIERS: Final = (
    (ipaddress.ip_network("::ffff:0:0/96"), 0),  # mapped
    (ipaddress.ip_network("::/96"), 0),  # compatible
    (ipaddress.ip_network("::ffff:0:0:0/96"), 0),  # translated
    (ipaddress.ip_network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.ip_network("2002::/16"), 80),  # 6to4
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a request goes. Its path may be a secret, and is not shown."""

    is_tls: bool
    host: str
    port: int
    path: str = field(repr=False)


class AddressGuard:
    """Refuses URLs and addresses that a channel must not call.

    Args:
        channel: the channel, for messages.
        allow_local: whether `http://` and addresses of this machine and of private networks are
            allowed, as in tests and on one machine.
        resolve: asks for the addresses of a host; None: as the system does.
    """

    def __init__(
        self, channel: str, resolve: Resolve | None = None, *, allow_local: bool = False
    ) -> None:
        self._channel = channel
        self._allow_local = allow_local
        self._resolve = resolve or addresses_of

    def endpoint(self, url: str) -> Endpoint:
        """Return where a URL leads.

        Raises:
            ChannelRefusedError: it is not one that a channel may have.
        """
        if (
            len(url) > _MAX_URL_CHARS
            or not url.isascii()
            or not url.isprintable()
            or set(url) & set(" \\")
        ):
            self._refuse(f"its address is not a URL of at most {_MAX_URL_CHARS} ASCII characters")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            self._refuse("its address is not a URL")
        self._check_scheme(parts)
        if "@" in parts.netloc:
            self._refuse("its address names a user or a password")
        if port is None:
            port = _HTTPS_PORT if parts.scheme == "https" else 80
        elif port != _HTTPS_PORT and port < _FIRST_FREE_PORT:
            self._refuse(f"port {port} is not allowed: {_HTTPS_PORT}, or {_FIRST_FREE_PORT} and up")
        query = f"?{parts.query}" if parts.query else ""
        path = f"{parts.path or '/'}{query}"
        return Endpoint(parts.scheme == "https", self._host(parts), port, path)

    def addresses(self, endpoint: Endpoint) -> Sequence[str]:
        """Return the addresses to connect to: nothing else may be asked for them after that.

        Raises:
            ChannelRefusedError: one of them is not allowed.
            OSError: there are none, or the name cannot be looked up.
        """
        found = self._resolve(endpoint.host, endpoint.port)
        if not found:
            raise OSError(0, f"{endpoint.host} has no address")
        for text in found:
            address = ipaddress.ip_address(text)
            if not is_public(address) and not (self._allow_local and is_local(address)):
                self._refuse(f"{endpoint.host} leads to {text}, which is not a public address")
        return found

    def _check_scheme(self, parts: SplitResult) -> None:
        if parts.scheme != "https" and not (self._allow_local and parts.scheme == "http"):
            self._refuse("its address does not begin with https://")

    def _host(self, parts: SplitResult) -> str:
        host = parts.hostname or ""
        if "[" in parts.netloc:
            host = _plain_ipv6(host)
        elif _NAME.fullmatch(host) is None:
            host = ""
        if not host:
            self._refuse("its address has no host that can be called")
        if host.rstrip(".") in _METADATA_NAMES:
            self._refuse(f"{host} is a metadata server, and takes no announcements")
        return host

    def _refuse(self, problem: str) -> NoReturn:
        raise ChannelRefusedError(channel=self._channel, problem=problem)


def addresses_of(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host as the system knows them, each once.

    Raises:
        OSError: there are none, or the name cannot be looked up.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def _plain_ipv6(text: str) -> str:
    """Return an IPv6 address as it is usually written; empty: it is none, or of one link alone."""
    try:
        return "" if "%" in text else str(IPv6Address(text))
    except ValueError:
        return ""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address, or the one that it leads to, is one of the internet."""
    address = _destination(address)
    if address in _METADATA or address.is_multicast:
        return False
    return address.is_global and (address in _GLOBAL or isinstance(address, IPv4Address))


def is_local(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is of this machine or a private network.

    Those that tell a machine of its account are not, nor are those of a link alone.
    """
    address = _destination(address)
    return address not in _METADATA and any(address in network for network in _LOCAL)


def _destination(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, IPv4Address) or int(address) <= 1:  # `::` and `::1` are IPv6's own
        return address
    for network, shift in _CARRIERS:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return address


#: So long a provider may have us wait, in seconds.
MAX_RETRY_AFTER_S: Final = 3600
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
        return float(min(int(text), MAX_RETRY_AFTER_S))
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        wait = (parsedate_to_datetime(text) - now).total_seconds()
        return min(max(wait, 0.0), float(MAX_RETRY_AFTER_S))
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
