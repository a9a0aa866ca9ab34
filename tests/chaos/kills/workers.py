"""Worker processes that move one run on until they are killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from leasehold.bootstrap import Around, Bundle, Hooks, boot
from leasehold.in_process import InProcessEngine
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.registry.dispatch import Isolation
from leasehold.registry.pipelines import Catalog
from tests.chaos.kills.long_step import CATALOG
from tests.chaos.kills.points import Kill, LethalArtifacts, LethalDocuments, Place
from tests.chaos.storm.processes import forked
from tests.worlds.stores import DOCUMENTS

PATIENCE_S: Final = 60.0


class Worker(InProcessEngine):
    """An engine on the store of a folder, which kills its own process where that is ordered."""

    def __init__(
        self, documents: Documents, folder: Path, isolation: Isolation, workers: int = 1
    ) -> None:
        self._place = Place(folder)
        self._isolation = isolation
        self._documents = documents
        environ = {
            "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
            "PIPELINE_LEASE_TTL_S": "600",  # nobody waits for the end of one
        }
        super().__init__(
            CATALOG.steps,
            CATALOG.pipelines,
            environ=environ,
            workers=workers,
            report=lambda _: None,  # each kill is a warning
        )

    def _boot(
        self, environ: Mapping[str, str] | None, catalog: Catalog | None, clock: Clock, hooks: Hooks
    ) -> Bundle:
        def documents(store: Documents) -> Documents:
            return cast(Documents, LethalDocuments(store, self._place))

        def artifacts(store: Artifacts) -> Artifacts:
            return cast(Artifacts, LethalArtifacts(store, self._place))

        return boot(
            environ,
            catalog=catalog,
            clock=clock,
            hooks=hooks,
            tasks=self._queue,
            documents=self._documents,
            around=Around(documents, artifacts),
            isolation=self._isolation,
        )


@contextmanager
def opened(kind: str, folder: Path, isolation: Isolation, workers: int = 1) -> Iterator[Worker]:
    """Open a worker on the stores of the folder; with none at work it is there to look."""
    with DOCUMENTS[kind](folder) as documents, Worker(documents, folder, isolation, workers) as it:
        yield it


def work(kind: str, folder: Path, isolation: Isolation, run_id: str) -> None:
    """Move the run on until it is terminal, or this process is killed."""
    Place(folder).begin_worker()
    with opened(kind, folder, isolation) as worker:
        worker.adopt(run_id)
        worker.wait(run_id, PATIENCE_S)


class WorkerProcesses:
    """Starts workers, one after the other."""

    def __init__(self, kind: str, folder: Path, isolation: Isolation) -> None:
        self._given = kind, folder, isolation
        self._place = Place(folder)

    def run(self, run_id: str, kill: Kill | None) -> int:
        """Have a worker move the run on until it is killed, or done; return its exit code."""
        self._place.order(kill)
        process = forked(work, *self._given, run_id)
        process.join(PATIENCE_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        return -1000 if code is None else int(code)
