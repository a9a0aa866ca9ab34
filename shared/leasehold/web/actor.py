"""Who asks for an operation, as the trace names them."""

from __future__ import annotations

import re
from typing import Final

from werkzeug.datastructures import Headers

from leasehold.api.call_row import ACTOR_HEADER
from leasehold.errors import InvalidRequestError
from leasehold.services.limits import MAX_ACTOR

#: The account that Identity-Aware Proxy signed in. It puts its header in the place of one that a
#: browser sends; from anybody else the header says nothing.
_SIGNED_IN: Final = "X-Goog-Authenticated-User-Email"
_PROXY: Final = re.compile(r"service-\d+@gcp-sa-iap\.iam\.gserviceaccount\.com", re.ASCII)
_NOBODY: Final = "api"


def actor_of(headers: Headers, caller: str = "") -> str:
    """Return who asks, for the trace: `ann@laptop via ann@example.com`.

    Behind `via` stands the account that was checked, before it what it says of itself.

    Args:
        headers: of the request.
        caller: the email of who calls, as it was checked; empty: nobody signed in, and the trace
            has what the caller says.

    Raises:
        InvalidRequestError: the name is not one that a trace can show.
    """
    account = _shown(_SIGNED_IN, _signed_in(headers), MAX_ACTOR) if _is_proxy(caller) else ""
    account = account or caller
    via = f" via {account}" if account else ""
    said = _decoded(headers.get(ACTOR_HEADER, "")).strip()
    if account and said in ("", account):
        return account
    return _shown(ACTOR_HEADER, said or _NOBODY, MAX_ACTOR - len(via)) + via


def _is_proxy(caller: str) -> bool:
    return _PROXY.fullmatch(caller) is not None


def _signed_in(headers: Headers) -> str:
    return _decoded(headers.get(_SIGNED_IN, "")).removeprefix("accounts.google.com:").strip()


def _shown(header: str, name: str, most: int) -> str:
    """Return the name of a header, if a trace can show it."""
    if len(name) > most or not name.isprintable():
        allowed = f"at most {max(most, 0)} printable characters"
        raise InvalidRequestError(field=header, value=name[:MAX_ACTOR], allowed=allowed)
    return name


def _decoded(header: str) -> str:
    """Return a header whose bytes are UTF-8, which WSGI gives as Latin-1; any other as it is."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header
