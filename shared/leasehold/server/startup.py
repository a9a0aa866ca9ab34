"""What answers while a server starts: before the engine, the catalog and handlers are imported.

To import them takes most of a start, and as long as modules of the user's like. A health check
meanwhile, for example by a service manager, gets an answer. So this room is
imported first, and nothing here imports what those need. `leasehold dev` has it as well, served by
the server of its doubles.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from leasehold.errors import NotReadyError, SettingError
from leasehold.registry.settings import check_sign_in, read_settings
from leasehold.web.plain_page import PAGE_HEADERS, page_of_refusal, wants_page

# The socket that the server listens on, or which option is wrong.


_BACKLOG: Final = 1024

#: What the system says of a port, and not of the address.
_OF_PORT: Final = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address.

    Raises:
        SettingError: the address cannot be listened on; it names --host or --port.
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


if TYPE_CHECKING:
    from leasehold.server.http_server import HttpServer

_STARTING: Final = NotReadyError(problem="the server starts; ask again in a moment")
_HEALTHY: Final = json.dumps({"status": "ok"}).encode()
_REFUSED: Final = json.dumps(
    {"error": {"code": _STARTING.code, "message": _STARTING.message, "details": {}}}
).encode()


def begin_to_answer(host: str, port: int, environ: Mapping[str, str] | None = None) -> HttpServer:
    """Listen, and answer from now on: `/health` that the process runs, all else that it starts.

    Args:
        host: the address to listen on.
        port: the port.
        environ: the settings; None: those of the process.

    Raises:
        SettingError: the address cannot be listened on; or others than programs of this machine can
            call it, without a sign-in.
        RuntimeError: the system has no threads for it.
    """
    from leasehold.server.http_server import HttpServer  # noqa: PLC0415 - an extra has it

    listener = listen(host, port)
    try:
        if hosts_of(listener) is None:
            check_sign_in(read_settings(os.environ if environ is None else environ), host)
        http = HttpServer(answer, listener, _body_limit)
        http.start()
    except BaseException:
        listener.close()
        raise
    return http


def _body_limit(_head: Mapping[str, str]) -> int:
    """Refuse no body yet: what answers once it has come may be the API, which would miss it."""
    from leasehold.server.http_server import MAX_KEPT_BYTES  # noqa: PLC0415 - an extra has it

    return MAX_KEPT_BYTES


def answer(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request, as WSGI has it: the same to every caller, so none needs a check."""
    asks = environ["PATH_INFO"] == "/health" and environ["REQUEST_METHOD"] in ("GET", "HEAD")
    status, body = ("200 OK", _HEALTHY) if asks else ("503 Service Unavailable", _REFUSED)
    headers = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
    if not asks and wants_page(environ):
        body = page_of_refusal(environ, 503, _STARTING.code, _STARTING.message).encode()
        headers = {**PAGE_HEADERS, "Content-Type": "text/html; charset=utf-8"}
    headers |= {"Content-Length": str(len(body)), "Cache-Control": "no-store", "Vary": "Accept"}
    start_response(status, [*headers.items()])
    return () if environ["REQUEST_METHOD"] == "HEAD" else (body,)
