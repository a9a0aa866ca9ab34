"""What runs in the process of an attempt: calls of a handler, from top to bottom."""

from __future__ import annotations

import atexit
import contextvars
import dataclasses
import gc
import importlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from leasehold.domain.json_text import MAX_OUTPUT_BYTES, check_size
from leasehold.domain.manifest_parts import ErrorRecord, RetryRule
from leasehold.domain.result import Continued, Deferred, Failed, Finished, Result, Unable
from leasehold.domain.status import BlockCode
from leasehold.errors import TooLargeError
from leasehold.logs.attempt import AttemptName, LinesOf, keep, name_attempts_in_records
from leasehold.ports.handler_runner import EnteredStep
from leasehold.worker.context.step_context import StepContext
from leasehold.worker.failures.error_chain import lacked_memory
from leasehold.worker.failures.kept_text import cut
from leasehold.worker.handler.call import (
    StepCode,
    call_handler,
    continued_in,
    deferred_in,
    entry_actions_of,
    failed_by,
)
from leasehold.worker.handler.handlers import handler_of, resolve_early
from leasehold.worker.sandbox.child.child_socket import ChildCalls, Link
from leasehold.worker.sandbox.child.soft_limit import ChildStacks, SoftLimit
from leasehold.worker.sandbox.forking.footprint import Footprint, is_fit_for_forking, what_runs_on
from leasehold.worker.sandbox.forking.fork_server import flush_prints
from leasehold.worker.sandbox.forking.memory import is_memory_short
from leasehold.worker.sandbox.wire.frames import Frame
from leasehold.worker.sandbox.wire.messages import (
    ContinuedNote,
    DeferredNote,
    FailedNote,
    FinishedNote,
    Imported,
    Job,
    LeftNote,
    LogLine,
    Message,
    SoftLimitNote,
    StacksNote,
    Stop,
    UnableNote,
    WantedSignal,
    build_readers,
)


def breakpoint_without_terminal(*args: Any, **kwargs: Any) -> Any:
    """Call the debugger that PYTHONBREAKPOINT names, which may need no terminal.

    Raises:
        RuntimeError: it names none, and pdb would find the end of its input.
    """
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kwargs)  # noqa: T100 - it was asked for
    raise RuntimeError(
        "breakpoint() needs a terminal, which the process of a handler does not have: "
        "set LEASEHOLD_ISOLATION=inline, and run it with start --in-process."
    )


_MAX_LOG_LINE_CHARS: Final = 8000
_MAX_NAME_CHARS: Final = 200
_MAX_FACTS: Final = 20

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class ChildLogs(logging.Handler):
    """Sends records; before it has a link, and in a fork of the child, it prints warnings."""

    def __init__(self) -> None:
        super().__init__()
        self._link: Link | None = None
        self._levels: set[str] = set()

    def install(self) -> None:
        """Take what every logger of this process says."""
        keep(self)

    def send_by(self, link: Link, levels: Mapping[str, int]) -> None:
        """Send all from now on, from the levels on that the worker has; "" is that of all."""
        self._link = link
        for name, level in levels.items():
            logger = logging.getLogger(name)
            if not name or logger.level == logging.NOTSET or name in self._levels:
                logger.setLevel(level)
                self._levels.add(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        try:
            if self._link is not None and self._link.is_here:
                self._link.say(_line_of(record))
            elif record.levelno >= logging.WARNING:
                sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - a line that cannot be sent ends no step
            self.handleError(record)


def _line_of(record: logging.LogRecord) -> LogLine:
    return LogLine(
        logger=cut(record.name, _MAX_NAME_CHARS),
        level=min(max(record.levelno, 0), 1000),
        message=cut(record.getMessage(), _MAX_LOG_LINE_CHARS),
        error=cut("\n".join(_error_lines(record)), _MAX_LOG_LINE_CHARS),
        created=record.created,
        path=cut(record.pathname, 2 * _MAX_NAME_CHARS),
        line=max(record.lineno or 0, 0),
        function=cut(record.funcName or "", _MAX_NAME_CHARS),
        thread=cut(record.threadName or "", _MAX_NAME_CHARS),
        facts=dict(_facts(record)),
    )


def _error_lines(record: logging.LogRecord) -> Iterator[str]:
    if record.exc_info:
        yield logging.Formatter().formatException(record.exc_info)
    elif record.exc_text:
        yield record.exc_text
    if record.stack_info:
        yield record.stack_info


def _facts(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Yield what the caller gave with `extra`, as far as it is plain."""
    given = [(name, one) for name, one in vars(record).items() if name not in _OF_EVERY_RECORD]
    for name, one in given[:_MAX_FACTS]:
        if isinstance(one, str):
            yield cut(name, _MAX_NAME_CHARS), cut(one, _MAX_NAME_CHARS * 5)
        elif one is None or isinstance(one, bool | int | float):
            yield cut(name, _MAX_NAME_CHARS), one


LOGS: Final = ChildLogs()


sys.breakpointhook = breakpoint_without_terminal
LOGS.install()  # where handlers are imported, before that: `basicConfig` of theirs changes nothing
build_readers()  # once for all children: this module is imported by their fork server alone


#: Stop callbacks that run on when the handler has returned have so long.
_MAX_CALLBACKS_S: Final = 1.0

#: A process that may be used again waits so long for that, and looks so often whether the machine
#: has memory for it.
MAX_IDLE_S: Final = 30.0
MEMORY_LOOK_EVERY_S: Final = 2.0


class LastWord(NamedTuple):
    """The last message of a child, and its body."""

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
            return  # this is a fork that came back from the handler: its result is not used
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
    for _ in range(round(MAX_IDLE_S / MEMORY_LOOK_EVERY_S)):
        if (frame := link.job(MEMORY_LOOK_EVERY_S)) or is_memory_short():
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
        with LinesOf(AttemptName(job.run_id, job.step, job.attempt)):
            result = call_handler(
                job, given, begin=self._begin, end_by=self._end_by, resolve=self._imported
            )
            self._calls.stop.await_callbacks(_MAX_CALLBACKS_S)
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
            case StacksNote(by=by):
                if time.monotonic() < by:  # else its worker waits for them no more
                    self._stacks.write(self._soft)
            case SoftLimitNote(reason=reason, hard_at=hard_at):
                self._stacks.expect_no_more()
                self._stacks.write(self._soft)
                self._link.hard_at = min(hard_at, self._link.hard_at)
                self._calls.stop.request(reason)
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
            case Finished(output, status, summary, skip_to):
                try:
                    check_size(f"the output of step {self._job.step}", output, MAX_OUTPUT_BYTES)
                except TooLargeError as error:
                    result = Unable(BlockCode.HANDLER_MISTAKE, ErrorRecord.of(error))
                    return self._word_for(result)
                facts = {"status": status, "summary": summary, "skip_to": skip_to}
                return LastWord(FinishedNote.model_validate(facts), output.encode())
            case Failed(record, permanent):
                return self._failed(record, permanent=permanent)
            case Unable(code, record):
                note = UnableNote.model_validate({"code": code})
                return LastWord(note, _body_of(record))
            case Deferred(reason, detail):
                return LastWord(DeferredNote.model_validate({"reason": reason, "detail": detail}))
            case Continued(at_checkpoint, over_budget, wanted):
                return LastWord(
                    ContinuedNote(
                        at_checkpoint=at_checkpoint,
                        over_budget=over_budget,
                        wanted=None
                        if wanted is None
                        else WantedSignal(**dataclasses.asdict(wanted)),
                    )
                )
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
