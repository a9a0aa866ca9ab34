"""Who may call a server of `leasehold dev`: programs of this machine, and pages of its own origin.

Nobody signs in on a developer's machine, and a browser carries requests of any page it shows to
any address of the machine. What gives those away is what a page cannot choose: the host that the
browser was sent to, the origin it names, and a content type that it must ask for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flask import Response
from werkzeug import Request

from leasehold.web.request_body import drop_rest
from leasehold.web.responses import refuse

_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_USUAL_PORT: Final = "80"

#: What a browser says of a request that a person or a page of the same origin made.
_OWN_SITES: Final = ("same-origin", "none")

_JSON: Final = "application/json"

#: What curl and Python's urllib say of a body, and what others do not say.
_BY_DEFAULT: Final = ("", "application/x-www-form-urlencoded")

#: What a browser says of itself, as WSGI names headers.
_BROWSER: Final = ("HTTP_ORIGIN", "HTTP_REFERER", "HTTP_COOKIE")
_MAX_SHOWN: Final = 100


class LoopbackOnly:
    """Passes on to `app` what may come, and refuses the rest; no answer is ever meant for a page.

    Args:
        app: any WSGI application, served on the loopback interface.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        refused = refusal_of(environ)
        if refused is None:
            answered: Iterable[bytes] = self._app(environ, start_response)
            return answered
        drop_rest(Request(environ))
        return refused(environ, start_response)


def refusal_of(environ: dict[str, Any]) -> Response | None:
    """Return the answer to a request that may not come in; None: it may."""
    host, own = environ.get("HTTP_HOST", "").lower(), _own_hosts(environ["SERVER_PORT"])
    if host not in own:
        said = f"Host is {_shown(host)}; this server answers as {' or '.join(own)} only."
        return refuse(403, "foreign_host", said)
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or "/"
    if not target.startswith("/"):
        said = f"The request is for {_shown(target)}; this server accepts paths only."
        return refuse(403, "foreign_host", said)
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and origin.lower() != f"http://{host}":
        said = f"Origin is {_shown(origin)}; only pages of http://{host} may call this server."
        return refuse(403, "foreign_origin", said)
    site = environ.get("HTTP_SEC_FETCH_SITE", "none")
    if site not in _OWN_SITES:
        said = f"Sec-Fetch-Site is {_shown(site)}; only pages of this server may call it."
        return refuse(403, "foreign_origin", said)
    return _refusal_of_content(environ)


def _refusal_of_content(environ: dict[str, Any]) -> Response | None:
    """Refuse a body of a content type that a form of any page may send.

    What curl and HTTP libraries send unless they are told is taken for JSON, where nothing says
    that a browser sent it: with a body, browsers always name the origin.
    """
    sized = environ.get("CONTENT_LENGTH", "").strip("0") or "HTTP_TRANSFER_ENCODING" in environ
    given = environ.get("CONTENT_TYPE", "")
    kind = given.partition(";")[0].strip().lower()
    if not sized or kind == _JSON or (kind in _BY_DEFAULT and not _is_of_browser(environ)):
        return None
    said = f"Content-Type is {_shown(given)}; a body must be {_JSON}."
    return refuse(415, "unsupported_media_type", said)


def _is_of_browser(environ: dict[str, Any]) -> bool:
    return any(name in _BROWSER or name.startswith("HTTP_SEC_") for name in environ)


def _own_hosts(port: str) -> tuple[str, ...]:
    with_port = tuple(f"{name}:{port}" for name in _NAMES)
    return (*with_port, *_NAMES) if port == _USUAL_PORT else with_port


def _shown(text: str) -> str:
    return repr(text[:_MAX_SHOWN]) if text else "missing"
