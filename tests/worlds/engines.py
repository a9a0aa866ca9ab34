"""An engine on a store that other tests have, too: all that it began ends, the store stays open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from leasehold.bootstrap import boot
from leasehold.services.engine import Engine


@contextmanager
def engine_on_store(environ: Mapping[str, str], **given: Any) -> Iterator[Engine]:
    """Open an engine; `given` is that of `boot`, with the documents."""
    bundle = boot(environ, **given)
    try:
        yield bundle.engine
    finally:
        bundle.processes.close()
        bundle.engine.leases.close()
