"""What answers while a server starts: before the engine, the catalog and handlers are imported.

To import them takes most of a start, and as long as modules of the user's like. Whoever asks
meanwhile whether the process is alive, such as a service manager, has an answer. So this room is
imported first, and nothing here imports what those need. `leasehold dev` has it as well, served by
the server of its doubles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from leasehold.errors import NotReadyError

if TYPE_CHECKING:
    from leasehold.server.http_server import HttpServer

_STARTING: Final = NotReadyError(problem="the server starts; ask again in a moment")
_HEALTHY: Final = json.dumps({"status": "ok"}).encode()
_REFUSED: Final = json.dumps(
    {"error": {"code": _STARTING.code, "message": _STARTING.message, "details": {}}}
).encode()


def begin_to_answer(host: str, port: int) -> HttpServer:
    """Listen, and answer from now on: `/health` that the process runs, all else that it starts.

    Raises:
        SettingError: no one can listen there.
        RuntimeError: the system has no threads for it.
    """
    from leasehold.server.http_server import HttpServer  # noqa: PLC0415 - an extra has it
    from leasehold.server.listener import listen  # noqa: PLC0415 - as above

    listener = listen(host, port)
    try:
        http = HttpServer(answer, listener, _body_limit)
        http.start()
    except BaseException:
        listener.close()
        raise
    return http


def _body_limit(_head: Mapping[str, str]) -> int:
    """Refuse no body yet: what answers once it has come may be the API, which would miss it."""
    from leasehold.server.http_server import MOST_KEPT  # noqa: PLC0415 - an extra has it

    return MOST_KEPT


def answer(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request, as WSGI has it: the same to everyone, so no one is kept out."""
    asks = environ["PATH_INFO"] == "/health" and environ["REQUEST_METHOD"] in ("GET", "HEAD")
    status, body = ("200 OK", _HEALTHY) if asks else ("503 Service Unavailable", _REFUSED)
    start_response(
        status,
        [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
        ],
    )
    return () if environ["REQUEST_METHOD"] == "HEAD" else (body,)
