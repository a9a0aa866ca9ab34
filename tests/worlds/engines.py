"""The engines of tests; the mark `catalog` says what that of a file, or of a test, runs.

    pytestmark = pytest.mark.catalog(__name__, PIPELINE_MIN_BACKOFF_S="0.01")

takes STEPS, PIPELINES and further registries of this file, and a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from leasehold.bootstrap import Hooks, boot, load_catalog
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.task_queue import TaskQueue
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of

#: A module that has the registries, its name, or a catalog that was made of registries.
Runs = Catalog | ModuleType | str

#: `engine_on_store`, with the store of a test.
OpenEngine = Callable[..., Engine]

_NO_HOOKS: Final = Hooks()


def catalog_of(runs: Runs) -> Catalog:
    if isinstance(runs, Catalog):
        return runs
    return load_catalog(runs.__name__ if isinstance(runs, ModuleType) else runs)


def marked(request: pytest.FixtureRequest, runs: Runs) -> tuple[Catalog, dict[str, str]]:
    """Return the catalog and the settings of the mark of a test; without one, this catalog."""
    mark = request.node.get_closest_marker("catalog")
    return (catalog_of(mark.args[0]), mark.kwargs) if mark else (catalog_of(runs), {})


def local_engine(
    environ: Mapping[str, str], catalog: Runs, *, workers: int = 0, **options: Any
) -> InProcessEngine:
    """Make an engine that runs a catalog in this process, and by itself where it has workers."""
    of = catalog_of(catalog)
    return InProcessEngine(
        of.steps,
        of.pipelines,
        of.gates,
        of.channels,
        schedules=of.schedules,
        environ=environ,
        workers=workers,
        **options,
    )


@contextmanager
def engine_on_store(
    documents: Documents,
    folder: Path,
    catalog: Runs,
    *,
    clock: Clock | None = None,
    tasks: TaskQueue | None = None,
    hooks: Hooks = _NO_HOOKS,
    **settings: str,
) -> Iterator[Engine]:
    """Open an engine on a store that others have, too: the store stays open.

    Its artifacts are below the folder, and announcements are delivered by hand alone.
    """
    bundle = boot(
        environ_of(folder, **settings),
        catalog=catalog_of(catalog),
        documents=documents,
        clock=clock,
        tasks=tasks,
        hooks=hooks,
        announces_by_hand=True,
    )
    try:
        yield bundle.engine
    finally:
        bundle.processes.close()
        bundle.engine.leases.close()
