"""The client as commands open it. What a catalog prints while it is imported is no answer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from leasehold.cli.stderr import warn
from leasehold.client.client import Client


def client_at(url: str | None) -> Client:
    """Open the server at `url`, or without one the store of the environment, to read it."""
    return Client(url, warn=warn)


@contextlib.contextmanager
def changing_client(url: str | None) -> Iterator[Client]:
    """Open it to change runs: what is printed meanwhile goes to stderr.

    A catalog may print while it is imported. Print the answer when the client is closed.
    """
    with contextlib.redirect_stdout(sys.stderr), client_at(url) as client:
        yield client
