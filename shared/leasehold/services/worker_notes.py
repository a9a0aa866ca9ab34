"""Worker notes: a process notes that it lives, and readers learn which processes work here.

A note is a side task: it delays nothing, an outage fails nothing, and no step pays for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain.stored import Document, Ref, StoredDocument, Write
from leasehold.domain.worker_note import (
    KEPT_FOR,
    NOTED_EVERY,
    WorkerKind,
    WorkerNote,
    known_names,
    living,
    no_server,
    remote_ref,
    share_nothing,
    worker_note_of,
    worker_ref,
)
from leasehold.errors import LeaseholdError, StoreUnavailableError
from leasehold.ports.documents import Queries, Query, Range
from leasehold.services.adopt_runs import any_waits
from leasehold.services.engine import Engine
from leasehold.services.paging import scan

#: How many notes are read: those that were written last.
MAX_NOTES_READ: Final = 500
#: How many old notes go when a process begins to note: more than come with one.
FORGOTTEN_AT_ONCE: Final = 20

_NOTE_TIMEOUT_S: Final = 5.0
#: A process that ends waits no longer than this for its last note.
_END_NOTED_WITHIN_S: Final = 1.0
_NEWEST: Final = Query("workers", order_by="seenAt", descending=True, limit=MAX_NOTES_READ)


def live_workers(engine: Engine) -> Sequence[WorkerNote]:
    """Return who works here now: who noted it within the last minutes and did not end since.

    Deployed functions are among them only while they work; a process that is known to be gone is
    not, whatever it noted.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    return living(*read_notes(engine.documents, engine.clock.now()), engine.process.is_gone)


def steps_known_elsewhere(engine: Engine) -> set[str]:
    """Return the steps that the catalogs of other processes have which work here now.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    others = (note for note in live_workers(engine) if note.process != engine.process.holder)
    return {step for note in others if not note.is_remote for step in note.steps}


def missing_server(engine: Engine) -> str | None:
    """Return in words that live runs wait and no server works on the store; None: all is well.

    Functions are never missed: they start when they are called.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    if not engine.process.has_servers:
        return None
    words = no_server(*read_notes(engine.documents, engine.clock.now()), engine.process.is_gone)
    return words if words and any_waits(engine.documents) else None


def other_projects(engine: Engine) -> Iterator[str]:
    """Yield in words which living processes know nothing of what this one knows.

    A store that does not answer is no failure: there is nothing to say then.
    """
    catalog = engine.catalog
    own = known_names(
        (step.step_type for step in catalog.steps), (each.name for each in catalog.pipelines)
    )
    found: Sequence[WorkerNote] = ()
    with suppress(StoreUnavailableError):
        found = live_workers(engine)
    for note in found:
        if not note.is_remote and share_nothing(own, note.knows):
            yield (
                f"{note.process} works on this store, too, and has no step or pipeline in common "
                "with this catalog: two projects need a LEASEHOLD_STORE each"
            )


def read_notes(documents: Queries, now: datetime) -> tuple[Sequence[WorkerNote], datetime]:
    """Return the notes, those that were written last first, and the store's time.

    Args:
        documents: the store.
        now: the time where the store has no note to tell its own by.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    found = documents.query(_NEWEST)
    notes = [worker_note_of(one.document) for one in found]
    return [note for note in notes if note is not None], found[0].read_at if found else now


class Presence:
    """That an engine of this process lives, as it notes it from its first call of `note` on.

    Args:
        kind: what it is.
    """

    def __init__(self, kind: WorkerKind) -> None:
        self._kind = kind
        self._noted_at = -math.inf
        self._started_at: datetime | None = None  # None: nothing is noted yet
        self._ref: Ref | None = None
        self._has_ended = False  # whatever is written from then on, in whatever order, says so

    def note(self, engine: Engine, *, patience_s: float = 0.0) -> None:
        """Note that it lives, unless it did less than a minute ago; from one thread at a time.

        Args:
            engine: the parts.
            patience_s: for how many seconds that is waited for.
        """
        now = engine.clock.monotonic()
        if now - self._noted_at >= NOTED_EVERY.total_seconds():
            self._noted_at = now
            self._ref = self._ref or worker_ref(engine.process.holder, engine.clock.new_id())
            engine.threads.errand(partial(self._write, engine, self._ref), patience_s)

    def end(self, engine: Engine) -> None:
        """Note that it ends, and wait a moment for that; what was never noted leaves nothing."""
        self._has_ended = True
        if self._ref is not None:
            engine.threads.errand(partial(self._write_end, engine, self._ref), _END_NOTED_WITHIN_S)

    def _write(self, engine: Engine, ref: Ref) -> None:
        is_first = self._started_at is None
        try:
            written = engine.documents.transact(
                ref, partial(self._noted, engine), within=_NOTE_TIMEOUT_S
            )
            self._started_at = written.answer
            if is_first:
                _forget_old_notes(engine)
        except LeaseholdError as error:
            engine.listeners.log(f"that this process lives could not be noted: {error}")

    def _noted(self, engine: Engine, _: Document | None, now: datetime) -> Write[datetime]:
        started_at = self._started_at or now
        note = WorkerNote(
            process=engine.process.holder,
            kind=self._kind,
            started_at=started_at,
            seen_at=now,
            ended_at=now if self._has_ended else None,
            code_hash=engine.process.code_hash,
            steps=tuple(step.step_type for step in engine.catalog.steps),
            pipelines=tuple(pipeline.name for pipeline in engine.catalog.pipelines),
        )
        return Write(started_at, StoredDocument(note))

    def _write_end(self, engine: Engine, ref: Ref) -> None:
        try:
            if self._kind is WorkerKind.IN_PROCESS:  # many come and go; their start is not needed
                engine.documents.delete(ref)
            else:
                engine.documents.transact(ref, partial(self._noted, engine), within=_NOTE_TIMEOUT_S)
        except LeaseholdError as error:
            engine.listeners.log(f"that this process ends could not be noted: {error}")


def note_asked(engine: Engine, step_type: str, holder: str) -> None:
    """Note that a remote worker asks for a step, unless that was done here less than a minute ago.

    The caller does not wait for it.
    """
    now, ref = engine.clock.monotonic(), remote_ref(step_type)
    if now - engine.process.asked_for.get(step_type, -math.inf) < NOTED_EVERY.total_seconds():
        return
    engine.process.asked_for[step_type] = now

    def asked() -> None:
        try:
            engine.documents.transact(
                ref, partial(_asked, step_type, holder), within=_NOTE_TIMEOUT_S
            )
        except LeaseholdError as error:
            engine.listeners.log(f"that step {step_type} was asked for could not be noted: {error}")

    engine.threads.errand(asked, 0.0)


def _asked(step_type: str, holder: str, document: Document | None, now: datetime) -> Write[None]:
    before = None if document is None else worker_note_of(document)
    if before is not None and timedelta(0) <= now - before.seen_at < NOTED_EVERY:
        return Write(None)  # another process has noted it
    is_still = before is not None and before.lives(now)
    note = WorkerNote(
        process=holder,
        kind=WorkerKind.REMOTE,
        started_at=before.started_at if before is not None and is_still else now,
        seen_at=now,
        steps=(step_type,),
    )
    return Write(None, StoredDocument(note))


def _forget_old_notes(engine: Engine) -> None:
    """Delete some notes of processes that are gone; so many that they never grow in number.

    That a step was asked for is kept: there is one note of it a step.
    """
    now = engine.clock.now()
    old = Query("workers", order_by="seenAt", range=Range("seenAt", below=now - KEPT_FOR))
    forgotten = 0
    for found in scan(engine.documents, old):
        note = worker_note_of(found.document)
        if note is not None and note.is_remote:
            continue
        engine.documents.delete(found.ref)
        forgotten += 1
        if forgotten == FORGOTTEN_AT_ONCE:
            return
