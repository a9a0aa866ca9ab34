"""The points at which a worker is killed, and the stores that kill it there."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Final, NamedTuple

from leasehold.domain.change import Change
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.documents import Committed, Documents
from tests.worlds.wrapped import Wrapped

#: Those of an iteration, in their order; a small checkpoint has no file to put or to delete.
BETWEEN_ITERATIONS: Final = "before the iteration"
BEFORE_THE_PUT: Final = "before the put"
BEFORE_THE_WRITE: Final = "between the put and the fenced write"
BEFORE_THE_DELETE: Final = "after the write, before the delete"
AFTER_THE_DELETE: Final = "after the delete"
#: Those of the end of the run, where the last file of the step is deleted.
BEFORE_THE_END: Final = "before the last write"
BEFORE_THE_LAST_DELETE: Final = "after the last write, before the last delete"
AFTER_THE_LAST_DELETE: Final = "after the last delete"

SMALL: Final = (BETWEEN_ITERATIONS, BEFORE_THE_WRITE, BEFORE_THE_DELETE)
LARGE: Final = (BETWEEN_ITERATIONS, BEFORE_THE_PUT, BEFORE_THE_WRITE, BEFORE_THE_DELETE)


class Kill(NamedTuple):
    """Where a worker is killed: a point, and the iteration at or after which it counts."""

    point: str
    iteration: int

    def __str__(self) -> str:
        return f"{self.point}, iteration {self.iteration}"


class Place:
    """The folder that a run and its workers share; what happens is noted in it, as it happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._executed = folder / "executed"
        self._kill = folder / "kill.json"

    @property
    def executed(self) -> list[int]:
        """The iterations that were begun, by all attempts together."""
        if not self._executed.exists():
            return []
        return [int(line) for line in self._executed.read_text().split()]

    def execute(self, iteration: int) -> None:
        """Note that an iteration is begun."""
        with self._executed.open("a") as notes:
            notes.write(f"{iteration}\n")

    def order(self, kill: Kill | None) -> None:
        """Say where the next worker is killed; None: nowhere."""
        self._kill.write_text(json.dumps(kill))

    def begin_worker(self) -> None:
        """Note which process is the worker: handlers may run in others."""
        (self.folder / "worker").write_text(str(os.getpid()))

    def reach(self, point: str, iteration: int | None = None) -> None:
        """Kill the worker where that is what was ordered for this point."""
        ordered = json.loads(self._kill.read_text())
        if iteration is None:
            iteration = (self.executed or [0])[-1]
        if ordered is not None and ordered[0] == point and iteration >= ordered[1]:
            os.kill(int((self.folder / "worker").read_text()), signal.SIGKILL)


class LethalDocuments(Wrapped[Documents]):
    """The documents port; a worker may die before each commit of its run and after it."""

    def __init__(self, inner: Documents, place: Place) -> None:
        super().__init__(inner)
        self._place = place

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        def decided(stored: Document | None, now: Any) -> Write[Answer]:
            write = decide(stored, now)
            self._reach(write.answer, BEFORE_THE_WRITE, BEFORE_THE_END)
            return write

        committed: Committed[Answer] = self.inner.transact(ref, decided, **options)
        self._reach(committed.answer, BEFORE_THE_DELETE, BEFORE_THE_LAST_DELETE)
        return committed

    def _reach(self, answer: object, at_checkpoint: str, at_the_end: str) -> None:
        if not isinstance(answer, Change) or not answer.changed:
            return
        if answer.outcome is Outcome.CHECKPOINTED:
            self._place.reach(at_checkpoint)
        elif answer.outcome is Outcome.COMPLETED:
            self._place.reach(at_the_end)


class LethalArtifacts(Wrapped[Artifacts]):
    """The artifacts port; a worker may die before it puts a file and after it deleted one."""

    def __init__(self, inner: Artifacts, place: Place) -> None:
        super().__init__(inner)
        self._place = place

    def put(self, name: str, data: bytes) -> str:
        self._place.reach(BEFORE_THE_PUT)
        return self.inner.put(name, data)

    def delete_file(self, name: str) -> None:
        self.inner.delete_file(name)
        self._place.reach(AFTER_THE_DELETE)

    def delete(self, name: str) -> None:
        self.inner.delete(name)
        self._place.reach(AFTER_THE_LAST_DELETE)
