"""A worker that is killed as its run ends: after the commit, after the messages, in the archive."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from leasehold.bootstrap import Around, boot
from leasehold.domain.change import Change
from leasehold.domain.event_message import EventMessage
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.ports.documents import Committed, Documents
from leasehold.services.execute_step import Hint, execute_step
from tests.chaos.storm.catalog import CATALOG
from tests.chaos.storm.processes import forked
from tests.chaos.storm.scenario import settings_in
from tests.chaos.storm.workers import NoTasks
from tests.worlds.stores import DOCUMENTS
from tests.worlds.wrapped import Wrapped

PATIENCE_S: Final = 60.0


class Point(StrEnum):
    """Where the worker is killed."""

    AFTER_COMMIT = "after the commit that ends the run"
    AFTER_PUBLISH = "between the messages and the archive"
    IN_ARCHIVE = "before the commit of the archive"
    NOWHERE = "nowhere: the messages are lost"


def killed_at(point: Point, kind: str, folder: Path, run_id: str) -> int | None:
    """Have a process run the step of a run and be killed there; return its exit code."""
    process = forked(work, point, kind, folder, run_id)
    process.join(PATIENCE_S)
    code: int | None = process.exitcode
    process.kill()
    process.join()
    return code


def work(point: Point, kind: str, folder: Path, run_id: str) -> None:
    """Run the step, and die at the point."""

    def documents(store: Documents) -> Documents:
        return cast(Documents, _Documents(store, point))

    with DOCUMENTS[kind](folder) as store:
        bundle = boot(
            settings_in(folder),
            catalog=CATALOG,
            documents=store,
            tasks=NoTasks(),
            around=Around(documents=documents),
        )
        engine = replace(bundle.engine, events=_Events(point))
        execute_step(engine, Hint(run_id, 1))


class _Documents(Wrapped[Documents]):
    """The documents port of the worker."""

    def __init__(self, inner: Documents, point: Point) -> None:
        super().__init__(inner)
        self._point = point

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        """Do as the store does; die before the commit, or after it."""

        def decided(stored: Document | None, now: Any) -> Write[Answer]:
            write = decide(stored, now)
            if _is_archive(write):
                _die(self._point is Point.IN_ARCHIVE)
            return write

        committed: Committed[Answer] = self.inner.transact(ref, decided, **options)
        answer = committed.answer
        if isinstance(answer, Change) and answer.deliveries:
            _die(self._point is Point.AFTER_COMMIT)
        return committed


class _Events:
    """The event bus of the worker: what it takes does not come within this test."""

    def __init__(self, point: Point) -> None:
        self._point = point

    def publish(self, _: Sequence[EventMessage]) -> None:
        """Lose the messages, and die."""
        _die(self._point is Point.AFTER_PUBLISH)

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way
        """Do nothing."""
        return True


def _is_archive(write: Write[Any]) -> bool:
    return isinstance(write.answer, Change) and write.answer.outcome is Outcome.ARCHIVED


def _die(is_here: bool) -> None:
    if is_here:
        os.kill(os.getpid(), signal.SIGKILL)
