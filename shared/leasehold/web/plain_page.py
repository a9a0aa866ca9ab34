"""The page that needs no engine: why a browser gets no other one, and what helps.

It imports no framework: a server that starts answers with it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Any, Final

#: What a page may do in a browser: nothing that is not of this server.
PAGE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_TITLES: Final[Mapping[int, str]] = {
    400: "That cannot be asked for",
    401: "Please sign in",
    403: "You may not do that",
    404: "There is no such page",
    405: "That is not a page",
    409: "It has changed since you looked",
    413: "That is too much",
    429: "Too many attempts",
    500: "Something failed",
    503: "Not available just now",
}
_LOOKS_AGAIN: Final = "No run is lost. This page looks again by itself."
#: What helps, by the code of an error where it tells more than the status.
_REMEDIES: Final[Mapping[str | int, str]] = {
    "foreign_host": "Open it by a name that it answers as. A proxy has to pass on such a Host.",
    "foreign_origin": "Nothing was changed. Open the page at this server itself, and do it there.",
    "unsupported_media_type": "Nothing was changed. Open the page again, and send its form.",
    400: "Nothing was changed. Go back, and correct it.",
    401: "Nothing was changed. Sign in, and open the page again.",
    403: "Nothing was changed.",
    404: "It may have been purged, or the address is wrong.",
    409: "Another person, or the engine, was faster. Go back, and look again before you decide.",
    413: "Nothing was changed. Go back, and make it shorter: what is large belongs into a file.",
    429: "Nothing was changed. Try again in a moment.",
    500: "Look again at what there is before you repeat it.",
    503: "No run is lost. Go back in a moment, and look again before you repeat it.",
}
#: Seconds after which a page looks again at what was not available.
RELOAD_AFTER_S: Final = 5


def wants_page(environ: Mapping[str, Any]) -> bool:
    """Return whether a request, as WSGI has it, prefers a page to JSON, as that of a person."""
    from werkzeug.datastructures import MIMEAccept  # noqa: PLC0415 - no server starts with it
    from werkzeug.http import parse_accept_header  # noqa: PLC0415 - as above

    accepts = parse_accept_header(environ.get("HTTP_ACCEPT", ""), MIMEAccept)
    return bool(accepts["text/html"] > accepts["application/json"])


def looks_again(environ: Mapping[str, Any], status: int) -> bool:
    """Return whether the page of a refusal finds by itself that there is none any more."""
    return status == HTTPStatus.SERVICE_UNAVAILABLE and environ["REQUEST_METHOD"] == "GET"


def title_of(status: int) -> str:
    """Return the title of the page of a refusal."""
    return _TITLES.get(status, HTTPStatus(status).phrase)


def remedy_of(environ: Mapping[str, Any], status: int, code: str = "") -> str:
    """Return what helps where a request is refused.

    Args:
        environ: the request, as WSGI has it.
        status: of the answer.
        code: of the error.
    """
    if looks_again(environ, status):
        return _LOOKS_AGAIN
    return _REMEDIES.get(code) or _REMEDIES.get(status, "Nothing was changed.")


def page_of_refusal(environ: Mapping[str, Any], status: int, code: str, message: str) -> str:
    """Return the page of a refusal.

    Args:
        environ: the request, as WSGI has it.
        status: of the answer.
        code: of the error.
        message: why it is refused.
    """
    content = f'<p class="notice bad" role="alert">{escape(message)}</p>\n'
    content += f'<p>{escape(remedy_of(environ, status, code))} <a href="/">All runs</a></p>\n'
    refresh = str(RELOAD_AFTER_S) if looks_again(environ, status) else ""
    return plain_page(title_of(status), content, refresh)


def plain_page(title: str, content: str, refresh: str = "") -> str:
    """Return a page.

    Args:
        title: of the page, as a text.
        content: below the title, as HTML.
        refresh: seconds after which a browser opens it again, or another: `0;url=/`; empty: never.
    """
    again = f'<meta http-equiv="refresh" content="{escape(refresh)}">\n' if refresh else ""
    return _PAGE.format(title=escape(title), content=content, refresh=again)


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{refresh}<title>{title} · Leasehold</title>
<link rel="icon" href="/assets/icon.svg">
<link rel="stylesheet" href="/assets/dashboard.css">
</head>
<body>
<main id="main">
<h1>{title}</h1>
{content}</main>
</body>
</html>
"""
