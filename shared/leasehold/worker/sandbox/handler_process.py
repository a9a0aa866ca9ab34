"""What runs in the process of an attempt: calls of a handler, told from top to bottom."""

from __future__ import annotations

import atexit
import contextvars
import gc
import importlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from leasehold.domain.json_text import OUTPUT_BYTES, check_size
from leasehold.domain.manifest_parts import ErrorRecord, RetryRule
from leasehold.domain.result import Continued, Deferred, Failed, Finished, Result, Unable
from leasehold.domain.status import Termination
from leasehold.errors import TooLargeError
from leasehold.logs.attempt import AttemptName, LinesOf, name_attempts_in_records
from leasehold.ports.handler_runner import EnteredStep
from leasehold.worker.context import StepContext
from leasehold.worker.error_chain import lacked_memory
from leasehold.worker.handler_call import (
    StepCode,
    call_handler,
    continued_in,
    deferred_in,
    entry_actions_of,
    failed_by,
)
from leasehold.worker.handlers import handler_of, resolve_early
from leasehold.worker.sandbox.breakpoints import breakpoint_without_terminal
from leasehold.worker.sandbox.child_calls import ChildCalls
from leasehold.worker.sandbox.child_logs import LOGS
from leasehold.worker.sandbox.child_stacks import ChildStacks
from leasehold.worker.sandbox.fitness import is_fit_for_forking
from leasehold.worker.sandbox.footprint import Footprint, what_runs_on
from leasehold.worker.sandbox.fork_server import flush_prints
from leasehold.worker.sandbox.frames import Frame
from leasehold.worker.sandbox.link import Link
from leasehold.worker.sandbox.memory import is_memory_short
from leasehold.worker.sandbox.messages import (
    ContinuedNote,
    DeferredNote,
    FailedNote,
    FinishedNote,
    Imported,
    Job,
    LeftNote,
    Message,
    SoftLimitNote,
    Stop,
    UnableNote,
    build_readers,
)
from leasehold.worker.sandbox.soft_limit import SoftLimit

sys.breakpointhook = breakpoint_without_terminal
LOGS.install()  # where handlers are imported, before that: `basicConfig` of theirs changes nothing
build_readers()  # once for all children: this module is imported by their fork server alone


#: Stop callbacks that run on when the handler has returned have so long.
_CALLBACKS_S: Final = 1.0

#: A process that may be used again waits so long for that, and looks so often whether the machine
#: has memory for it.
IDLE_S: Final = 30.0
LOOK_S: Final = 2.0


class LastWord(NamedTuple):
    """What a child says last, and the body of it."""

    message: Message
    body: bytes = b""


def run(call: socket.socket, handler: str) -> None:
    """Run a handler for the worker at the other end, once or for several attempts.

    Args:
        call: the conversation with the worker.
        handler: `module:function`; each job names it, too.
    """
    stacks, link = ChildStacks(_received_descriptor(call)), Link(call)
    footprint = Footprint()
    atexit._clear()  # noqa: SLF001 - it is of the process that this one was forked from
    frame = link.job()
    while frame is not None:
        job = frame.message
        assert isinstance(job, Job)  # noqa: S101 - the worker's own words
        assert job.handler == handler  # noqa: S101 - as above
        is_last = job.reuse <= 1
        attempt = HandlerProcess(link, job, stacks, footprint)
        last = contextvars.copy_context().run(attempt.run, frame.body.decode())
        if not link.is_here:
            return  # this is a fork that came back from the handler: nobody waits for it
        del frame, job, attempt  # nothing of an attempt waits for the next one
        is_same = not is_last and footprint.is_same()  # first: the two are heard at once then
        link.end(last.message, last.body)
        del last
        flush_prints()
        left = what_runs_on() if is_last else "" if is_same else footprint.difference()
        link.say(LeftNote(what=left))
        frame = None if left or is_last else _next_job(link, stacks)
    link.await_written()
    atexit._run_exitfuncs()  # noqa: SLF001 - an interpreter would, and this one does not end


def _next_job(link: Link, stacks: ChildStacks) -> Frame | None:
    """Wait for the next attempt; None: there is none for a while, or no memory to wait with."""
    stacks.expect_no_more()
    gc.collect()  # what is in a cycle cannot be found any more
    for _ in range(round(IDLE_S / LOOK_S)):
        if (frame := link.job(LOOK_S)) or is_memory_short():
            return frame
    return None


def load(handlers: Sequence[str]) -> None:
    """Import the module of these handlers, and resolve them for all who are forked from here."""
    importlib.import_module(handlers[0].partition(":")[0])
    for handler in handlers:
        resolve_early(handler)


class HandlerProcess:
    """One attempt, in its process.

    Args:
        link: the conversation with the worker.
        job: what the worker said of the attempt.
        stacks: where the stacks go.
        footprint: what the process is when its first attempt begins.
    """

    def __init__(self, link: Link, job: Job, stacks: ChildStacks, footprint: Footprint) -> None:
        self._link = link
        self._job = job
        self._stacks = stacks
        self._footprint = footprint
        self._calls = ChildCalls(link, job)
        self._soft = SoftLimit()
        self._raised: BaseException | None = None
        self._is_fit = False

    def run(self, given: str) -> LastWord:
        """Call the handler; return what came of it, in the words of the conversation."""
        job = self._job
        name_attempts_in_records()
        LOGS.send_by(self._link, job.levels)
        with LinesOf(AttemptName(job.run_id, job.step_type, job.attempt)):
            result = call_handler(
                job, given, begin=self._begin, end_by=self._end_by, resolve=self._imported
            )
            self._calls.stop.await_callbacks(_CALLBACKS_S)
        self._soft.end()
        return self._word_for(result)

    def _imported(self, step: EnteredStep) -> StepCode:
        handler = handler_of(step)
        self._is_fit = is_fit_for_forking()
        actions = [self._soft.within(action) for action in entry_actions_of(step)]
        return StepCode(actions, self._soft.within(handler))

    def _begin(self) -> StepContext:
        """Have the time of the handler begin: it is imported, and its threads are there.

        The worker hears of it last: what goes wrong until then is not the handler's doing.
        """
        job, now = self._job, time.monotonic()
        self._stacks.expect(job.hard_s - job.cleanup_s, job.cleanup_s)
        self._link.hard_at = now + job.hard_s
        self._link.begin(self._hear, Imported(is_fit=self._is_fit, at=now))
        if job.reuse > 1:
            self._footprint.take()
        if time.monotonic() >= self._job.begin_by:  # it was imported for long, or frozen
            self._calls.check_lease()
        return StepContext(self._calls)

    def _hear(self, frame: Frame) -> None:
        """Take what the worker says of itself, in the thread that reads."""
        match frame.message:
            case Stop(reason=reason):
                self._calls.stop.request(reason)
            case SoftLimitNote():
                self._stacks.write(self._soft)
                self._calls.stop.request(Termination.AGENT_TIMEOUT_EXCEEDED)
                self._soft.give()

    def _end_by(self, error: BaseException, path: str) -> Result:
        if known := deferred_in(error) or continued_in(error):
            return known
        self._raised = error
        names = self._job.non_retryable
        rule = RetryRule(first_s=0, factor=1, max_s=0, non_retryable=names)
        return failed_by(error, path, self._job, rule)

    def _word_for(self, result: Result) -> LastWord:
        match result:
            case Finished(output, status):
                try:
                    check_size(f"the output of step {self._job.step_type}", output, OUTPUT_BYTES)
                except TooLargeError as error:
                    return self._failed(ErrorRecord.of(error), permanent=True)
                return LastWord(FinishedNote.model_validate({"status": status}), output.encode())
            case Failed(record, permanent):
                return self._failed(record, permanent=permanent)
            case Unable(code, record):
                note = UnableNote.model_validate({"code": code})
                return LastWord(note, _body_of(record))
            case Deferred(reason, detail):
                return LastWord(DeferredNote.model_validate({"reason": reason, "detail": detail}))
            case Continued(at_checkpoint):
                return LastWord(ContinuedNote(at_checkpoint=at_checkpoint))
        raise AssertionError(result)

    def _failed(self, record: ErrorRecord, *, permanent: bool) -> LastWord:
        note = FailedNote(
            permanent=permanent,
            has_raised=self._raised is not None,
            lacked_memory=lacked_memory(self._raised),
        )
        return LastWord(note, _body_of(record))


def _body_of(record: ErrorRecord) -> bytes:
    return record.model_dump_json(exclude_defaults=True).encode()


def _received_descriptor(call: socket.socket) -> int:
    """Return the pipe that the worker sends first, with one byte."""
    _, (descriptor,), _, _ = socket.recv_fds(call, 1, 1)
    os.set_inheritable(descriptor, False)
    return descriptor
