"""Where tasks may be delivered: on this machine, and to the hosts that somebody allowed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from leasehold.devserver.cloud_tasks.refusals import invalid

#: What stands in an address: no spaces, no control characters, and none that parsers differ on.
_ADDRESS: Final = re.compile(r"[!-\[\]-~]+", re.ASCII)


class Targets:
    """The hosts that tasks may be delivered to.

    The service delivers to any address; on a developer's machine that would let whoever reaches
    the double send requests of their choice into the networks that the machine is in.

    Args:
        allowed: hosts beyond this machine, without a port.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(host.lower() for host in allowed)

    def check(self, url: str) -> None:
        """Refuse a URL that is not an address of HTTP, or leads to a host that is not allowed.

        The URL is parsed as the delivery parses it: what two parsers read differently would pass
        the one and be delivered by the other.
        """
        host = _host_of(url)
        if host is None:
            raise invalid(
                f"HttpRequest.url must start with 'http://' or 'https://'; it is '{url}'."
            )
        if not _is_loopback(host) and host not in self._allowed:
            raise invalid(
                f"HttpRequest.url leads to '{host}'; the double delivers to this machine only. "
                f"To allow it: leasehold dev --allow-target {host}."
            )


def _host_of(url: str) -> str | None:
    """Return the host of an address of HTTP, in lower case; None: it is none."""
    try:
        parts = parse_url(url)
    except LocationParseError:
        return None
    fits = _ADDRESS.fullmatch(url) and parts.scheme in {"http", "https"} and parts.auth is None
    return (parts.host or "").lower().strip("[]") or None if fits and parts.port != 0 else None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
