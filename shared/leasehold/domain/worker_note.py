"""Who works here: each process that does notes that it lives (`workers/{process}`).

One small document a process, written at most once a minute, and one for each step that remote
workers ask for. No work depends on them: they are for people who ask why nothing happens,
and for processes that have to know which steps some living process knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, ValidationError

from leasehold.domain.stored import Document, Ref, Stored, Text
from leasehold.domain.timestamps import stamp

#: A process writes no more often than this.
NOTED_EVERY: Final = timedelta(minutes=1)
#: A process that was seen less long ago lives: two notes may be late, or meet an outage.
LIVES_FOR: Final = timedelta(minutes=3)
#: Notes of processes that were seen longer ago go, once another process begins to note.
KEPT_FOR: Final = timedelta(hours=1)
#: Old and new versions work beside each other for this time at most while a deploy is rolled out.
ROLLED_OUT_WITHIN: Final = timedelta(minutes=15)


class WorkerKind(StrEnum):
    """The kind of process that notes its life."""

    SERVE = "serve"  # looks after every run of the store
    DEV = "dev"  # the same, for all the processes of `leasehold dev`
    IN_PROCESS = "in-process"  # an engine within a program, for the runs that this starts
    FUNCTION = "function"  # noted while it works, as no instance that idles costs anything
    REMOTE = "remote"  # asks for one step over HTTP; noted by the answering process


#: These do not look after runs: they work when they are called, or ask for one step.
_COME_WHEN_CALLED: Final = (WorkerKind.FUNCTION, WorkerKind.REMOTE)


class WorkerNote(Stored):
    """That a process lived at a time.

    Attributes:
        process: as leases name their holder.
        kind: a `WorkerKind`, or one of a later version.
        started_at: when it began; of a remote worker, when it began to ask.
        seen_at: when it was last known to live, by the store's time.
        ended_at: when it was stopped in order; None: it was not, or not yet.
        code_hash: of the user's sources, as it has loaded them; empty: not known.
        steps: the step types that its catalog has.
        pipelines: those that its catalog has.
    """

    process: Text
    kind: Text
    started_at: AwareDatetime
    seen_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    code_hash: Text = ""
    steps: tuple[Text, ...] = ()
    pipelines: tuple[Text, ...] = ()

    @property
    def knows(self) -> frozenset[str]:
        """What its catalog knows."""
        return known_names(self.steps, self.pipelines)

    @property
    def is_remote(self) -> bool:
        """Whether it is of a remote worker."""
        return self.kind == WorkerKind.REMOTE

    def lives(self, now: datetime) -> bool:
        """Return whether its process is taken to live, by the store's time."""
        return self.ended_at is None and abs(now - self.seen_at) < LIVES_FOR


def worker_ref(process: str, mark: str) -> Ref:
    """Return the name of a note; a process may have several engines, each with its own mark.

    The name of a holder has a slash, an id has none.
    """
    return Ref("workers", f"{process}:{mark}".replace("/", ":"))


def remote_ref(step_type: str) -> Ref:
    """Return the name of the note that a worker asked for a remote step."""
    return Ref("workers", f"{WorkerKind.REMOTE}:{step_type}")


def worker_note_of(document: Document) -> WorkerNote | None:
    """Return the note that a document is; None: it was edited, and says nothing."""
    try:
        return WorkerNote.model_validate(document)
    except ValidationError:
        return None


def living(
    notes: Iterable[WorkerNote], now: datetime, is_gone: Callable[[str], bool] = lambda _: False
) -> list[WorkerNote]:
    """Return the notes of those that live.

    Args:
        notes: of any process.
        now: the store's time.
        is_gone: whether a process is known to live no more, whatever it noted.
    """
    return [note for note in notes if note.lives(now) and not is_gone(note.process)]


def no_server(
    notes: Iterable[WorkerNote], now: datetime, is_gone: Callable[[str], bool] = lambda _: False
) -> str | None:
    """Return in words that no server works on the store; None: one does.

    Args: as for `living`.
    """
    servers = [note for note in notes if note.kind not in _COME_WHEN_CALLED]
    if living(servers, now, is_gone):
        return None
    last = max((note.ended_at or note.seen_at for note in servers), default=None)
    heard = "" if last is None else f", and none was heard of since {stamp(last)}"
    return f"no server works on this store{heard}; type `leasehold serve`"


def last_asked(notes: Iterable[WorkerNote], step_type: str) -> str:
    """Return in words when a remote worker last asked for a step."""
    asked = [note.seen_at for note in notes if note.is_remote and step_type in note.steps]
    if not asked:
        return f"none has ever asked for step {step_type}"
    return f"one last asked for step {step_type} at {stamp(max(asked))}"


def known_names(steps: Iterable[str], pipelines: Iterable[str]) -> frozenset[str]:
    """Return what a catalog knows, to compare it with another one."""
    return frozenset((*steps, *(f"pipeline {name}" for name in pipelines)))


def share_nothing(known: frozenset[str], to_other: frozenset[str]) -> bool:
    """Return whether two catalogs are of two projects: they have no step and no pipeline in common.

    While a deploy is rolled out, old and new have most in common.
    """
    return bool(known and to_other) and known.isdisjoint(to_other)


def differ_for_long(one: WorkerNote, other: WorkerNote, now: datetime) -> bool:
    """Return whether two processes know different names for longer than a deploy takes."""
    younger = max(one.started_at, other.started_at)
    return one.knows != other.knows and younger < now - ROLLED_OUT_WITHIN
