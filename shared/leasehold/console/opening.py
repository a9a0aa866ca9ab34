"""The engine as commands open it. What a catalog prints while it is imported is no answer."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import Final

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_tasks import TasksElsewhere
from leasehold.bootstrap import Bundle, boot, store_exists
from leasehold.console.says import warn
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.registry.settings import read_settings

_NO_CATALOG: Final = Catalog(steps=Registry("dispatch", []), pipelines=Registry("pipelines", []))


@functools.cache
def _warn_once(line: str) -> None:
    """Tell of a threshold that does not hold, however often this command opens a bundle."""
    warn(line)


@contextlib.contextmanager
def to_read() -> Iterator[Bundle]:
    """Open the store for reading; one that is not there is read as empty and stays away.

    Runs can be read without the catalog that runs them.
    """
    with opened(absent=not store_exists(), catalog=_NO_CATALOG) as bundle:
        yield bundle


@contextlib.contextmanager
def to_change() -> Iterator[Bundle]:
    """Open the store to change what is in it; one that is not there stays away.

    What handlers print that are imported meanwhile goes to stderr: answer when it is closed.
    """
    absent = not store_exists()
    with opened(absent=absent, elsewhere=True) as bundle, contextlib.redirect_stdout(sys.stderr):
        yield bundle


@contextlib.contextmanager
def opened(
    *, absent: bool = False, catalog: Catalog | None = None, elsewhere: bool = False
) -> Iterator[Bundle]:
    """Open the bundle that the environment describes, and close it in the end.

    What is refused of a step's limits, commands tell in words of their own. A queue within a
    process is `elsewhere` for a command that runs nothing.
    """
    refused: list[str] = []
    in_process = read_settings(os.environ)["LEASEHOLD_TASKS"] == "in-process"
    tasks = TasksElsewhere(SystemClock()) if elsewhere and in_process else None
    with contextlib.redirect_stdout(sys.stderr):
        bundle = boot(absent=absent, catalog=catalog, tasks=tasks, warn=refused.append)
    for line in refused if catalog is None else ():
        _warn_once(line)
    try:
        yield bundle
    finally:
        bundle.close()
