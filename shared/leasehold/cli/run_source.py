"""Where commands read runs: the store of the environment, or a server that is named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from leasehold.cli.bundle import bundle_to_read
from leasehold.client.server_source import ServerSource
from leasehold.client.source import Source
from leasehold.client.store_source import StoreSource


@contextlib.contextmanager
def source_at(url: str | None) -> Iterator[Source]:
    """Open the server at `url`, or without one the store of the environment."""
    if url is not None:
        yield ServerSource(url)
        return
    with bundle_to_read() as bundle:
        yield StoreSource(bundle.engine)
