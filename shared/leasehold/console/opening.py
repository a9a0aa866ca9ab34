"""The engine as commands open it. What a catalog prints while it is imported is no answer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

from leasehold.bootstrap import Bundle, boot, store_exists
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry

_NO_CATALOG: Final = Catalog(steps=Registry("dispatch", []), pipelines=Registry("pipelines", []))


def _say_nothing(_: str) -> None:
    """Commands tell what is refused in words of their own."""


@contextlib.contextmanager
def to_read() -> Iterator[Bundle]:
    """Open the store for reading; one that is not there is read as empty and stays away.

    Runs can be read without the catalog that runs them.
    """
    with opened(absent=not store_exists(), catalog=_NO_CATALOG) as bundle:
        yield bundle


@contextlib.contextmanager
def opened(*, absent: bool = False, catalog: Catalog | None = None) -> Iterator[Bundle]:
    """Open the bundle that the environment describes, and close it in the end."""
    with contextlib.redirect_stdout(sys.stderr):
        bundle = boot(absent=absent, catalog=catalog, warn=_say_nothing)
    try:
        yield bundle
    finally:
        bundle.close()
