"""The client as commands open it. What a catalog prints while it is imported is no answer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from leasehold.cli.stderr import warn
from leasehold.client.client import Client


@contextlib.contextmanager
def client_at(url: str | None) -> Iterator[Client]:
    """Open the server at `url`, or without one the store of the environment.

    What is printed meanwhile goes to stderr: print the answer when the client is closed.
    """
    with contextlib.redirect_stdout(sys.stderr), Client(url, warn=warn) as client:
        yield client
