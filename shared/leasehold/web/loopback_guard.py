"""Who may call a server that asks for no sign-in: programs, and its own pages origin.

`leasehold dev` and `leasehold serve` have no sign-in, and a browser carries requests of any
page it shows to any address of its machine. They are recognised by what a page cannot choose: the
host that the browser was sent to, the origin it names, and a content type that needs a preflight
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from flask import Response
from werkzeug import Request

from leasehold.web.entry import drop_rest, refuse

#: The hosts by which programs of this machine call it.
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")

_DEFAULT_PORT: Final = "80"

#: The Sec-Fetch-Site of a request that a person or a page of the same origin made.
_OWN_SITES: Final = ("same-origin", "none")

_JSON: Final = "application/json"

#: The content type that HTTP libraries, curl and Python's urllib give a body by default.
_BY_DEFAULT: Final = ("", "application/x-www-form-urlencoded")

#: Headers that only a browser sends, as WSGI names them.
_BROWSER: Final = ("HTTP_ORIGIN", "HTTP_REFERER", "HTTP_COOKIE")
_MAX_QUOTED: Final = 100


class LoopbackGuard:
    """Middleware that passes on to `app` what may come, and refuses the rest.

    Args:
        app: any WSGI application.
        hosts: the hosts by which it may be called, without the port. None: any, where it is served
            beyond this machine; pages of other origins are refused all the same.
    """

    def __init__(self, app: Any, hosts: Sequence[str] | None = LOOPBACK) -> None:
        self._app = app
        self._hosts = hosts

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        refused = refusal_of(environ, self._hosts)
        if refused is None:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        drop_rest(Request(environ))
        return refused(environ, start_response)


class LoopbackCallers:
    """Says of a request whether it may come in, for a server that answers all its paths itself.

    Args:
        hosts: as of `LoopbackGuard`.
    """

    def __init__(self, hosts: Sequence[str] | None) -> None:
        self._hosts = hosts

    def refusal_of(self, request: Request) -> Response | None:
        """Return the answer to a request that may not come in; None: it may."""
        return refusal_of(request.environ, self._hosts)


def refusal_of(environ: dict[str, Any], hosts: Sequence[str] | None = LOOPBACK) -> Response | None:
    """Return the answer to a request that may not come in; None: it may."""
    host, port = environ.get("HTTP_HOST", "").lower(), environ["SERVER_PORT"]
    if hosts is not None and host not in (own := _with_port(hosts, port)):
        message = f"Host is {_quoted(host)}; this server answers as {' or '.join(own)} only."
        return refuse(403, "foreign_host", message)
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or "/"
    if not target.startswith("/"):
        message = f"The request is for {_quoted(target)}; this server accepts paths only."
        return refuse(403, "foreign_host", message)
    origin = environ.get("HTTP_ORIGIN")
    schemes = ("http", "https") if hosts is None else ("http",)  # one before it may speak TLS
    if origin is not None and origin.lower() not in [f"{scheme}://{host}" for scheme in schemes]:
        message = f"Origin is {_quoted(origin)}; only pages of http://{host} may call this server."
        return refuse(403, "foreign_origin", message)
    site = environ.get("HTTP_SEC_FETCH_SITE", "none")
    if site not in _OWN_SITES:
        message = f"Sec-Fetch-Site is {_quoted(site)}; only pages of this server may call it."
        return refuse(403, "foreign_origin", message)
    return _refusal_of_content(environ)


def _refusal_of_content(environ: dict[str, Any]) -> Response | None:
    """Refuse a body of a content type that a form of any page may send.

    What curl and HTTP libraries send by default is taken for JSON, unless a browser sent it: with
    a body, browsers always name the origin.
    """
    sized = environ.get("CONTENT_LENGTH", "").strip("0") or "HTTP_TRANSFER_ENCODING" in environ
    given = environ.get("CONTENT_TYPE", "")
    kind = given.partition(";")[0].strip().lower()
    if not sized or kind == _JSON or (kind in _BY_DEFAULT and not _is_from_browser(environ)):
        return None
    message = f"Content-Type is {_quoted(given)}; a body must be {_JSON}."
    return refuse(415, "unsupported_media_type", message)


def _is_from_browser(environ: dict[str, Any]) -> bool:
    return any(name in _BROWSER or name.startswith("HTTP_SEC_") for name in environ)


def _with_port(hosts: Sequence[str], port: str) -> tuple[str, ...]:
    with_port = tuple(f"{host}:{port}" for host in hosts)
    return (*with_port, *hosts) if port == _DEFAULT_PORT else with_port


def _quoted(text: str) -> str:
    return repr(text[:_MAX_QUOTED]) if text else "missing"
