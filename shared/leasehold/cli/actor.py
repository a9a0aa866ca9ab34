"""Who gives a command, for the trace of a run."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Final

from leasehold.cli.formatting import one_line

_MAX: Final = 200


def actor() -> str:
    """Return `user@host`."""
    return one_line(f"{_user()}@{socket.gethostname()}", _MAX)


def actor_header() -> dict[str, str]:
    """Return the header that tells a server who asks: UTF-8, in the way that headers are sent."""
    return {"X-Leasehold-Actor": actor().encode(errors="replace").decode("latin-1")}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # nobody has given this user a name
        return f"uid-{os.getuid()}"
