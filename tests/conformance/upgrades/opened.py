"""A store of a folder, opened with a clock that stands still and a queue that says what it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.bootstrap import boot
from leasehold.domain.effect import Task
from leasehold.domain.manifest import Manifest
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.testing import FrozenClock
from tests.conformance.upgrades.catalog import CATALOG


class Queue:
    """Delivers nothing by itself."""

    def create(self, task: Task) -> None:
        """Take a task that is not delivered."""

    def exists(self, task: Task) -> bool:  # noqa: ARG002 - a port
        """Say that it is lost: the queue of that time is not part of the store."""
        return False


@contextmanager
def opened(folder: Path, clock: FrozenClock) -> Iterator[Engine]:
    """Open the store of a folder; handlers run in this process."""
    documents = SqliteDocuments(folder / "leasehold.db", clock)
    environ = {
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "LEASEHOLD_ISOLATION": "inline",
    }
    bundle = boot(environ, catalog=CATALOG, documents=documents, clock=clock, tasks=Queue())
    try:
        yield bundle.engine
    finally:
        bundle.engine.leases.close()
        documents.close()


def attempt(engine: Engine, run_id: str) -> Manifest:
    """Run one attempt of a run, and return what became of it."""
    run = get_run(engine, run_id)
    execute_step(engine, Hint(run_id, run.position.dispatch.generation))
    return get_run(engine, run_id)
