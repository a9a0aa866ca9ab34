"""The calls of a context in the child: each is a question to the worker, and its answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from leasehold.attempt.calls import AttemptFacts, KeptCheckpoint
from leasehold.attempt.files import RunFiles
from leasehold.attempt.stop import StopSignal
from leasehold.domain.artifact_name import RunLife, check_artifact_name, files_folder
from leasehold.domain.manifest_parts import Progress
from leasehold.errors import TooLargeError
from leasehold.worker.failures.kept_text import cut
from leasehold.worker.sandbox.child.child_socket import Link
from leasehold.worker.sandbox.wire.messages import (
    MAX_FILE,
    Answer,
    CheckLeaseCall,
    CheckpointCall,
    ExistsCall,
    FindingsCall,
    FindResultCall,
    GetCall,
    Job,
    KeptCheckpointCall,
    ListCall,
    OutputCall,
    ProgressNote,
    PutCall,
    RecordResultCall,
    RejectCall,
    StatusCall,
)

_LONGEST_NAME: Final = 200
_LONGEST_WHY: Final = 500


class ChildCalls:
    """The calls of one attempt (`attempt/calls.py`), over a link.

    Args:
        link: the conversation with the worker.
        job: what the worker said of the attempt.
    """

    def __init__(self, link: Link, job: Job) -> None:
        self.facts = AttemptFacts(
            job.run_id,
            job.step_type,
            job.attempt,
            job.trial,
            hard_s=job.hard_s,
            cleanup_s=job.cleanup_s,
            furthest=job.furthest,
            has_checkpoint=job.has_checkpoint,
            note=job.note,
        )
        self.stop = StopSignal()
        self.files = ChildFiles(link, job)
        self._link = link

    def time_left(self) -> float:
        """Return for how many seconds the attempt may still run; below zero: for none."""
        return self._link.hard_at - time.monotonic()

    def check_lease(self) -> None:
        """Raise LeaseLostError where the lease may be over."""
        self._link.ask(CheckLeaseCall())

    def kept_checkpoint(self) -> KeptCheckpoint | None:
        """Return what an earlier attempt kept; None: nothing that can be used."""
        message, body = self._link.ask(KeptCheckpointCall())
        assert isinstance(message, Answer)  # noqa: S101 - a refusal was raised
        if message.value is None:
            return None
        phase, iteration_count = message.value
        return KeptCheckpoint(phase, iteration_count, body.decode())

    def checkpoint(self, iteration_count: int, phase: str, results: str) -> None:
        """Keep partial results, JSON text."""
        call = CheckpointCall(iteration_count=iteration_count, phase=phase)
        self._link.ask(call, results.encode())

    def reject_checkpoint(self, why: str) -> None:
        """Drop what an earlier attempt kept."""
        self._link.ask(RejectCall(why=cut(why, _LONGEST_WHY)))

    def recorded_result(self, key: str, type_: str) -> str | None:
        """Return the result of a call that was recorded, JSON text; None: it is to be made."""
        frame = self._link.ask(FindResultCall(key=key, type=type_))
        return frame.body.decode() if _value(frame.message) else None

    def record_result(self, key: str, type_: str, result: str, *, keep: bool) -> None:
        """Record the result of a call that was made, JSON text."""
        self._link.ask(RecordResultCall(key=key, type=type_, keep=keep), result.encode())

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        self._link.say(ProgressNote(fraction=progress.fraction, message=progress.message))

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        call = OutputCall(step_type=cut(str(step_type), _LONGEST_NAME))
        return self._link.ask(call).body.decode()

    def status_of(self, step_type: str) -> str:
        """Return the status of the output of an earlier step."""
        call = StatusCall(step_type=cut(str(step_type), _LONGEST_NAME))
        return str(_value(self._link.ask(call).message))

    def findings(self) -> str:
        """Return what the reviewer of the trial before this one found: a list, JSON text."""
        return self._link.ask(FindingsCall()).body.decode()


class ChildFiles(RunFiles):
    """The files of a run, over a link."""

    def __init__(self, link: Link, run: RunLife) -> None:
        self._link = link
        self._folder = files_folder(run)

    def put(self, name: str, data: bytes) -> str:
        """Store a file whole or not at all, in place of an earlier file; return its address."""
        body = memoryview(data).cast("B")
        if len(body) > MAX_FILE:
            raise TooLargeError(what=f"file {name}", size=len(body), limit=MAX_FILE)
        return str(_value(self._link.ask(PutCall(name=self._checked(name)), body).message))

    def get(self, name: str) -> bytes:
        """Return a file, or raise ArtifactNotFoundError."""
        return self._link.ask(GetCall(name=self._checked(name))).body

    def exists(self, name: str) -> bool:
        """Return whether the run has the file."""
        return bool(_value(self._link.ask(ExistsCall(name=self._checked(name))).message))

    def list(self) -> Sequence[str]:
        """Return the names of the run's files, sorted."""
        return self._link.ask(ListCall()).body.decode().split("\0")[:-1]

    def _checked(self, name: str) -> str:
        """Return a name that the store accepts, and so a message."""
        check_artifact_name(f"{self._folder}/{name}")
        return str(name)


def _value(message: Any) -> Any:
    return message.value
