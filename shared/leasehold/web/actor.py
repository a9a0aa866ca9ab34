"""Who asks for an operation, as the trace names them."""

from __future__ import annotations

from typing import Final

from werkzeug.datastructures import Headers

from leasehold.api.operations import ACTOR_HEADER
from leasehold.errors import InvalidRequestError
from leasehold.services.limits import MAX_ACTOR

#: The account that Google signed in; it counts, whoever the caller says it is.
_SIGNED_IN: Final = "X-Goog-Authenticated-User-Email"
_NOBODY: Final = "api"


def actor_of(headers: Headers) -> str:
    """Return who asks, for the trace.

    Google puts its header in the place of one that a caller sends; where nobody signs in, the
    trace has what the caller says.

    Raises:
        InvalidRequestError: the name is not one that a trace can show.
    """
    signed_in = _decoded(headers.get(_SIGNED_IN, "")).removeprefix("accounts.google.com:").strip()
    actor = signed_in or _decoded(headers.get(ACTOR_HEADER, "")).strip() or _NOBODY
    if len(actor) > MAX_ACTOR or not actor.isprintable():
        header = _SIGNED_IN if signed_in else ACTOR_HEADER
        allowed = f"at most {MAX_ACTOR} printable characters"
        raise InvalidRequestError(field=header, value=actor[:MAX_ACTOR], allowed=allowed)
    return actor


def _decoded(header: str) -> str:
    """Return a header whose bytes are UTF-8, which WSGI gives as Latin-1; any other as it is."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header
