"""Which requests of browsers may come in: those of a server's own pages, and of no others.

A browser carries requests of any page that it shows to any address that it reaches, with the
cookies of that address. They are recognised by what a page cannot choose: the host that the browser
was sent to, the origin that it names, and a content type that needs a preflight request. One rule
holds for functions, `leasehold serve` and `leasehold dev`; servers of one machine, which ask for no
sign-in, look at the host as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from flask import Response
from werkzeug import Request

from leasehold.web.entry import drop_rest, refuse, shown
from leasehold.web.plain_page import wants_page

#: The hosts by which programs of this machine call it.
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")

_DEFAULT_PORT: Final = "80"

#: The Sec-Fetch-Site of a request of a page of the same origin, and of one that a person made.
_OWN_SITE: Final = "same-origin"
_OF_PERSON: Final = "none"
#: A person followed a link, and gets a page to see: it changes nothing, and no other page reads it.
_FOLLOWED: Final = ("navigate", "document")

_JSON: Final = "application/json"

_FORM: Final = "application/x-www-form-urlencoded"

#: The content type that HTTP libraries, curl and Python's urllib give a body by default.
_BY_DEFAULT: Final = ("", _FORM)

#: Headers that only a browser sends, as WSGI names them.
_BROWSER: Final = ("HTTP_ORIGIN", "HTTP_REFERER", "HTTP_COOKIE")
_MAX_QUOTED_CHARS: Final = 100


class LoopbackGuard:
    """Middleware that passes on to `app` what may come, and refuses the rest.

    Args:
        app: any WSGI application.
        has_pages: whether it has pages of its own, whose forms it takes.
    """

    def __init__(self, app: Any, *, has_pages: bool = False) -> None:
        self._app = app
        self._has_pages = has_pages

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        refused = refusal_of(environ, has_pages=self._has_pages)
        if refused is None:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        drop_rest(Request(environ))
        return shown(environ, refused)(environ, start_response)


def refusal_of(
    environ: dict[str, Any], hosts: Sequence[str] | None = LOOPBACK, *, has_pages: bool = False
) -> Response | None:
    """Return the answer to a request that may not come in; None: it may."""
    host, port = environ.get("HTTP_HOST", "").lower(), environ["SERVER_PORT"]
    if hosts is not None and host not in (own := _with_port(hosts, port)):
        message = f"Host is {_quoted(host)}; this server answers as {' or '.join(own)} only."
        return refuse(403, "foreign_host", message)
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or "/"
    if not target.startswith("/"):
        message = f"The request is for {_quoted(target)}; this server accepts paths only."
        return refuse(403, "foreign_host", message)
    return refusal_of_page(environ) or _refusal_of_content(environ, has_pages=has_pages)


def refusal_of_page(environ: dict[str, Any]) -> Response | None:
    """Return the answer to a request that a page of another origin made; None: none did."""
    site = environ.get("HTTP_SEC_FETCH_SITE", _OF_PERSON)
    if site == _OWN_SITE or _is_followed(environ):
        return None
    if site != _OF_PERSON:
        message = f"Sec-Fetch-Site is {_quoted(site)}; only pages of this server may call it."
        return refuse(403, "foreign_origin", message)
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and origin.lower() not in _own_origins(environ):
        own = environ.get("HTTP_HOST", "")
        message = f"Origin is {_quoted(origin)}; only pages of {own} may call this server."
        return refuse(403, "foreign_origin", message)
    return None


def is_same_origin(request: Request) -> bool:
    """Return whether a page of this very server made the request, as its browser says."""
    site = request.environ.get("HTTP_SEC_FETCH_SITE")
    origin = request.environ.get("HTTP_ORIGIN", "").lower()
    return site == _OWN_SITE or (site is None and origin in _own_origins(request.environ))


def is_form(request: Request) -> bool:
    """Return whether the body is that of a form of a page, and not JSON of a program."""
    environ = request.environ
    return _kind(environ) == _FORM and _is_from_browser(environ)


def is_of_browser(request: Request) -> bool:
    """Return whether a person waits for a page: by opening an address, or by sending a form."""
    if request.method in ("GET", "HEAD"):
        return wants_page(request.environ)
    return request.method == "POST" and is_form(request)


def refuse_content(environ: dict[str, Any]) -> Response:
    """Answer that a body is not JSON."""
    given = environ.get("CONTENT_TYPE", "")
    message = f"Content-Type is {_quoted(given)}; a body must be {_JSON}."
    return refuse(415, "unsupported_media_type", message)


def _is_followed(environ: dict[str, Any]) -> bool:
    """Return whether a person was led here by a link of any page, as in a message."""
    fetch = environ.get("HTTP_SEC_FETCH_MODE"), environ.get("HTTP_SEC_FETCH_DEST")
    return (
        environ["REQUEST_METHOD"] in ("GET", "HEAD")
        and fetch == _FOLLOWED
        and "HTTP_ORIGIN" not in environ
    )


def _own_origins(environ: dict[str, Any]) -> set[str]:
    """Return the origins of this server's pages: its own, and that of a proxy before it.

    A page can send no X-Forwarded header to another origin: that needs a preflight request.
    """
    proto = environ.get("HTTP_X_FORWARDED_PROTO", "").lower()
    of_proxies = environ.get("HTTP_X_FORWARDED_HOST", "").lower().split(",")
    host, any_scheme = environ.get("HTTP_HOST", "").lower(), ("http", "https")
    schemes = (proto,) if proto in any_scheme else any_scheme
    own = (environ.get("wsgi.url_scheme", "http"),) if _is_loopback_host(host) else schemes
    origins = {f"{scheme}://{host}" for scheme in own if host}
    proxies = filter(None, map(str.strip, of_proxies))
    return origins | {f"{scheme}://{proxy}" for proxy in proxies for scheme in schemes}


def _is_loopback_host(host: str) -> bool:
    """Return whether no proxy that speaks TLS is called by this name."""
    return host.rpartition(":")[0] in LOOPBACK or host in LOOPBACK


def _refusal_of_content(environ: dict[str, Any], *, has_pages: bool) -> Response | None:
    """Refuse a body of a content type that a form of any page may send.

    What curl and HTTP libraries send by default is taken for JSON, unless a browser sent it: with
    a body, browsers always name the origin.
    """
    sized = environ.get("CONTENT_LENGTH", "").strip("0") or "HTTP_TRANSFER_ENCODING" in environ
    kind = _kind(environ)
    if not sized or kind == _JSON or (kind in _BY_DEFAULT and not _is_from_browser(environ)):
        return None
    if has_pages and kind == _FORM and is_same_origin(Request(environ)):
        return None
    return refuse_content(environ)


def _kind(environ: dict[str, Any]) -> str:
    kind: str = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    return kind


def _is_from_browser(environ: dict[str, Any]) -> bool:
    return any(name in _BROWSER or name.startswith("HTTP_SEC_") for name in environ)


def _with_port(hosts: Sequence[str], port: str) -> tuple[str, ...]:
    with_port = tuple(f"{host}:{port}" for host in hosts)
    return (*with_port, *hosts) if port == _DEFAULT_PORT else with_port


def _quoted(text: str) -> str:
    return repr(text[:_MAX_QUOTED_CHARS]) if text else "missing"
