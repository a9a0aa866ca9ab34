"""Who calls, as the trace of a run names them."""

from __future__ import annotations

import getpass
import os
import socket

from leasehold.errors import InvalidRequestError
from leasehold.presentation.formatting import one_line
from leasehold.services.limits import MAX_ACTOR


def this_user() -> str:
    """Return who runs this process: `user@host`."""
    return one_line(f"{_user()}@{socket.gethostname()}", MAX_ACTOR)


def checked_actor(actor: str) -> str:
    """Return the name of a caller, or raise InvalidRequestError."""
    name = actor.strip()
    if not 0 < len(name) <= MAX_ACTOR or not name.isprintable():
        allowed = f"1 to {MAX_ACTOR} printable characters"
        raise InvalidRequestError(field="actor", value=actor[:MAX_ACTOR], allowed=allowed)
    return name


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no one has given this user a name
        return f"uid-{os.getuid()}"
