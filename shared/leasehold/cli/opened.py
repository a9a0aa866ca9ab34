"""The engine and the client, as commands open them.

The output of a catalog during its import is not part of the result.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leasehold.bootstrap import Bundle, Hooks, Purpose, boot, store_address, store_exists
from leasehold.cli.streams import warn
from leasehold.registry.pipelines import NO_CATALOG, Catalog

if TYPE_CHECKING:
    from leasehold.client.client import Client


@contextlib.contextmanager
def bundle_to_purge() -> Iterator[Bundle]:
    """Open the store to delete runs; that takes no catalog. One that is not there stays away."""
    purpose = purpose_on_store(Purpose.CHANGE)
    with open_bundle(purpose=purpose, catalog=NO_CATALOG, warns=False) as bundle:
        yield bundle


@contextlib.contextmanager
def open_bundle(
    *,
    purpose: Purpose = Purpose.RUN,
    catalog: Catalog | None = None,
    warns: bool = True,
) -> Iterator[Bundle]:
    """Open the bundle that the environment describes, and close it in the end.

    Args:
        purpose: what the engine is for.
        catalog: in place of LEASEHOLD_CATALOG; NO_CATALOG for what needs none.
        warns: print which thresholds do not hold. Commands print refused limits of steps
            themselves.
    """
    refused: list[str] = []
    with contextlib.redirect_stdout(sys.stderr):
        bundle = boot(catalog=catalog, hooks=Hooks(warn=refused.append), purpose=purpose)
    for line in refused if warns else ():
        warn(line)
    try:
        yield bundle
    finally:
        bundle.close()


def purpose_on_store(purpose: Purpose) -> Purpose:
    """Return the purpose, or a preview where there is no store: looking makes none."""
    return purpose if store_exists() else Purpose.PREVIEW


def on_this_store(nothing: str) -> str:
    """Return the words for nothing; where there is no store, with the places that were searched.

    A command in another folder than its runs would else say that all is well.
    """
    if store_exists():
        return nothing
    return f"{nothing}: there is no store yet at {store_address()} (LEASEHOLD_STORE)"


@contextlib.contextmanager
def client_at(url: str | None) -> Iterator[Client]:
    """Open the server at `url`, or without one the store of the environment.

    What is printed meanwhile goes to stderr: print the answer when the client is closed.
    """
    from leasehold.client.client import Client  # noqa: PLC0415 - not all need one

    with contextlib.redirect_stdout(sys.stderr), Client(url, warn=warn) as client:
        yield client
