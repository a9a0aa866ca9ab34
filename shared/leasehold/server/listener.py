"""The socket that the server listens on, or which option is wrong."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import Final

from leasehold.errors import SettingError

_BACKLOG: Final = 1024

#: What the system says of a port, and not of the address.
_OF_PORT: Final = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address.

    Raises:
        SettingError: no one can listen there; it names --host or --port.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        problem = os.strerror(number) if number and number > 0 else "there is no such name"
        if number in _OF_PORT:
            allowed = f"a free port that this user may listen on ({problem})"
            raise SettingError(name="--port", value=port, allowed=allowed) from None
        allowed = f"an address of this machine ({problem})"
        raise SettingError(name="--host", value=host, allowed=allowed) from None


def url_of(listener: socket.socket) -> str:
    """Return where the socket is called."""
    return f"http://{_host_of(listener)}:{listener.getsockname()[1]}"


def hosts_of(listener: socket.socket) -> Sequence[str] | None:
    """Return the hosts by which programs of this machine call it; None: others can as well."""
    from leasehold.web.loopback_guard import LOOPBACK  # noqa: PLC0415 - one listens before

    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        return None
    return sorted({*LOOPBACK, _host_of(listener)})


def _host_of(listener: socket.socket) -> str:
    host = str(listener.getsockname()[0])
    return f"[{host}]" if ":" in host else host
