"""The child's end of the conversation: calls are asked and answered, from any of its threads.

One thread reads, and writes what the socket does not take at once. A short frame is taken whole or
not at all, so nothing that is raised in a thread of the handler (its own signal, a soft
limit) leaves half a frame in the socket. A fork of the process has no part in it.
"""

from __future__ import annotations

import itertools
import math
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from leasehold.attempt.calls import AttemptFacts, FoundSignal, KeptCheckpoint
from leasehold.attempt.files import RunFiles
from leasehold.attempt.stop import StopSignal
from leasehold.domain.artifact_name import RunLife, check_artifact_name, files_folder
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.recorded_calls import Intent, MadeCall, Request
from leasehold.domain.spend import Spend
from leasehold.errors import (
    AwaitConfirmationError,
    BudgetExceededError,
    TooLargeError,
    restored_error,
)
from leasehold.worker.failures.kept_text import cut
from leasehold.worker.sandbox.wire.frames import Frame, FrameReader, GarbledError, encoded
from leasehold.worker.sandbox.wire.messages import (
    MAX_CALLS_AT_ONCE,
    MAX_FILE_BYTES,
    Answer,
    BootstrapNote,
    Call,
    CheckBudgetCall,
    CheckLeaseCall,
    CheckpointCall,
    ExecutionNote,
    ExistsCall,
    FindingsCall,
    FindResultCall,
    ForgetIntentCall,
    FreeLimitCall,
    GetCall,
    Job,
    KeptCheckpointCall,
    ListCall,
    Message,
    OutputCall,
    ProgressNote,
    PutCall,
    RecordResultCall,
    Refusal,
    RejectCall,
    SignalCall,
    SpendNote,
    StatusCall,
    TakeLimitCall,
    from_worker,
)

#: What the process exits with at its own hard limit, and where it has lost its worker.
OUT_OF_TIME: Final = 10
LINK_LOST: Final = 113

#: What a call raises besides the errors of Leasehold; any other is a RuntimeError with its name.
_PLAIN: Final[Mapping[str, type[BaseException]]] = {
    kind.__name__: kind
    for kind in (
        *(OSError, RuntimeError, TypeError, ValueError),
        *(BudgetExceededError, AwaitConfirmationError),
    )
}

#: How often it looks whether the handler has closed the socket: nothing tells it so.
_CLOSED_POLL_S: Final = 0.5

#: A worker that is not frozen has ended the process by then.
_WORKERS_MARGIN_S: Final = 2.0

_READ_BYTES: Final = 256 * 1024
_WAKES: Final = 4096
#: A body up to this length goes with its header in one piece.
_SHORT_BYTES: Final = 32 * 1024
#: So many messages wait to be written; who has a further one waits.
_MAX_MESSAGES_UNWRITTEN: Final = 256

#: What waits to be written, and what is to be called when all before it is.
_Part = memoryview | Callable[[], object]


class Link:
    """The conversation of one process: that of its attempts, one after the other.

    Messages before the first of them begins wait until then.

    Args:
        call: the socket.

    Attributes:
        hard_at: when this process ends if its worker has not ended it, in monotonic seconds.
    """

    def __init__(self, call: socket.socket) -> None:
        self.hard_at = math.inf
        self._call = call
        self._pid = os.getpid()
        self._sending = threading.RLock()  # a handler of signals may log meanwhile
        self._unsent: deque[_Part] = deque()
        self._room = _tokens(_MAX_MESSAGES_UNWRITTEN)
        self._calls = _tokens(MAX_CALLS_AT_ONCE)
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[Frame]] = {}
        self._reader = FrameReader(from_worker)
        self._jobs: SimpleQueue[Frame] = SimpleQueue()
        self._heard: deque[Frame] = deque()
        self._hear: Callable[[Frame], object] | None = None
        self._waker = -1
        os.register_at_fork(after_in_child=call.close)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that has the conversation, and no fork of it."""
        return os.getpid() == self._pid

    def job(self, within: float | None = None) -> Frame | None:
        """Return the next job; None: there was none within so many seconds."""
        while not self._has_begun and self._jobs.empty():
            self._take(self._received())
        try:
            return self._jobs.get(timeout=within)
        except Empty:
            return None

    def begin(self, hear: Callable[[Frame], object], first: Message) -> None:
        """Have an attempt begin: all is sent from now on, and the worker is heard.

        Args:
            hear: called in the thread that reads, with each frame that answers no call.
            first: sent before this returns: what it says has to be known, however the process ends
                after that.

        Raises:
            RuntimeError, MemoryError: the system has no thread for it; `first` is not sent.
        """
        self._hear = hear
        with self._sending:
            if not self._has_begun:
                self._start()
            self._unsent.append(memoryview(encoded(first)))
            with suppress(OSError):  # the worker is gone; the thread that reads will see it
                self._send_unsent(at_once=False)
        if self._heard:
            self._wake()

    def end(self, message: Message, body: bytes = b"") -> None:
        """Send the last message of an attempt, and wait until all is written; hear nothing more."""
        self._hear, self.hard_at = None, math.inf
        self._heard.clear()
        self.say(message, body)
        self.await_written()

    def await_written(self) -> None:
        """Wait until all is written that was said."""
        written: SimpleQueue[None] = SimpleQueue()
        with self._sending:
            if not self._has_begun:
                self._send_unsent(at_once=False)
            if not self._unsent:
                return
            self._unsent.append(partial(written.put, None))
        self._wake()
        written.get()

    def say(self, message: Message, body: bytes | memoryview = b"") -> None:
        """Send a message; nothing where this is a fork of the process."""
        if not self.is_here or self._is_sent_at_once(message, body):
            return
        if self._has_begun:
            self._room.get()
        with self._sending:
            self._unsent.append(memoryview(encoded(message, body)))
            if body:
                self._unsent.append(memoryview(body).cast("B"))
            if self._has_begun:
                self._unsent.append(partial(self._room.put, None))
        self._wake()

    def ask(self, call: Call, body: bytes | memoryview = b"") -> Frame:
        """Make a call, and return its answer.

        Raises:
            LeaseholdError, or another error: what the call raised in the worker.
            RuntimeError: this is a fork of the process.
        """
        if not self.is_here:
            raise RuntimeError("ctx cannot be used in a fork of the handler's process")
        token = self._calls.get()
        number = next(self._numbers)
        answer = self._answers[number] = SimpleQueue()
        try:
            self.say(call.model_copy(update={"call": number}), body)
            frame = answer.get()
        finally:
            del self._answers[number]
            self._calls.put(token)
        if isinstance(frame.message, Refusal):
            raise _error_of(frame.message)
        return frame

    @property
    def _has_begun(self) -> bool:
        return self._waker >= 0

    def _start(self) -> None:
        """Start the thread; nothing has begun if that fails."""
        woken, waker = os.pipe()
        # Linux polls nothing where a handler has lowered RLIMIT_NOFILE; what was made before works
        ready = selectors.DefaultSelector()
        try:
            os.set_blocking(woken, False)
            os.set_blocking(waker, False)
            ready.register(woken, selectors.EVENT_READ)
            ready.register(self._call, selectors.EVENT_READ)
            converse = partial(self._converse, ready, woken)
            threading.Thread(target=converse, name="leasehold-link", daemon=True).start()
        except BaseException:
            ready.close()
            os.close(woken)
            os.close(waker)
            raise
        self._waker = waker

    def _is_sent_at_once(self, message: Message, body: bytes | memoryview) -> bool:
        if len(body) > _SHORT_BYTES:
            return False
        frame = encoded(message, body) + bytes(body)
        with self._sending:
            if not self._has_begun or self._unsent:
                return False
            try:
                sent = self._call.send(frame, socket.MSG_DONTWAIT)
            except OSError:  # there is no room; or the worker is gone, as the thread will see
                return False
            if sent == len(frame):
                return True
            self._unsent.append(memoryview(frame)[sent:])  # not on Linux
        self._wake()
        return True

    def _send_unsent(self, *, at_once: bool) -> None:
        """Send what waits, as far as the socket takes it at once, or all of it."""
        while self._unsent:
            part = self._unsent[0]
            if not isinstance(part, memoryview):
                part()
            elif len(part):
                sent = self._call.send(part, socket.MSG_DONTWAIT if at_once else 0)
                self._unsent[0] = part[sent:]
                continue
            self._unsent.popleft()

    def _wake(self) -> None:
        if self._has_begun:
            with suppress(OSError):  # it is awake, or the handler has closed this
                os.write(self._waker, b"w")

    def _converse(self, ready: selectors.BaseSelector, woken: int) -> None:
        reads, both = selectors.EVENT_READ, selectors.EVENT_READ | selectors.EVENT_WRITE
        try:
            while True:
                self._pass_on()
                ready.modify(self._call, both if self._unsent else reads)
                found = {
                    key.fd: events
                    for key, events in ready.select(min(_CLOSED_POLL_S, self._left_s()))
                }
                if not found:
                    os.fstat(self._call.fileno())
                    if not self._left_s():
                        os._exit(OUT_OF_TIME)
                if woken in found:
                    os.read(woken, _WAKES)
                with self._sending, suppress(BlockingIOError):
                    self._send_unsent(at_once=True)
                if found.get(self._call.fileno(), 0) & reads:
                    self._take(self._received())
        except (OSError, ValueError, KeyError, GarbledError):
            os._exit(LINK_LOST)

    def _received(self) -> bytes:
        data = self._call.recv(_READ_BYTES)
        if not data:
            os._exit(LINK_LOST)
        return data

    def _take(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            match frame.message:
                case Job():
                    self._jobs.put(frame)
                case Answer(call=call) | Refusal(call=call):
                    if waiting := self._answers.get(call):
                        waiting.put(frame)
                case _:
                    self._heard.append(frame)

    def _pass_on(self) -> None:
        """Have the attempt hear what it is to hear, once it has begun."""
        while self._heard and (hear := self._hear):
            hear(self._heard.popleft())

    def _left_s(self) -> float:
        return max(0.0, self.hard_at + _WORKERS_MARGIN_S - time.monotonic())


def _tokens(count: int) -> SimpleQueue[None]:
    """Return a resource that a limited number of threads hold at a time; a signal may cut in."""
    tokens: SimpleQueue[None] = SimpleQueue()
    for _ in range(count):
        tokens.put(None)
    return tokens


def _error_of(refusal: Refusal) -> BaseException:
    error = restored_error(refusal.code, refusal.message, refusal.details)
    if error is not None:
        return error
    kind = _PLAIN.get(refusal.type)
    return (
        RuntimeError(f"{refusal.type}: {refusal.message}")
        if kind is None
        else kind(refusal.message)
    )


# The calls of a context in the child: each is a question to the worker, and its answer.


_MAX_NAME_CHARS: Final = 200
_MAX_WHY_CHARS: Final = 500


class ChildCalls:
    """The calls of one attempt (`attempt/calls.py`), over a link.

    Args:
        link: the conversation with the worker.
        job: what the worker said of the attempt.
    """

    def __init__(self, link: Link, job: Job) -> None:
        self.facts = AttemptFacts(
            job.run_id,
            job.step,
            job.step_type,
            job.attempt,
            job.trial,
            hard_s=job.hard_s,
            cleanup_s=job.cleanup_s,
            furthest=job.furthest,
            has_checkpoint=job.has_checkpoint,
            has_budget=job.has_budget,
            note=job.note,
            traceparent=job.traceparent,
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

    def check_budget(self) -> None:
        """Raise BudgetExceededError where the budget is used up."""
        self._link.ask(CheckBudgetCall())

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
        self._link.ask(RejectCall(why=cut(why, _MAX_WHY_CHARS)))

    def is_at_hand(self, key: str, request: Request | None, intent: Intent | None) -> bool:  # noqa: ARG002 - the port
        """Return False: the worker is to be asked."""
        return False

    def recorded_result(
        self, key: str, type_: str, request: Request | None, intent: Intent | None = None
    ) -> str | None:
        """Return the result of a call that was recorded, JSON text; None: it is to be made."""
        call = FindResultCall(key=key, type=type_, request=request)
        if intent is not None:
            call = call.model_copy(update=intent._asdict())
        frame = self._link.ask(call)
        return frame.body.decode() if _value(frame.message) else None

    def forget_intent(self, key: str) -> None:
        """Forget that a call was to be made: it has raised."""
        self._link.ask(ForgetIntentCall(key=key))

    def record_result(self, made: MadeCall) -> str:
        """Record the result of a call; return the one that counts."""
        spend = made.spend
        call = RecordResultCall(
            key=made.key,
            type=made.type,
            keep=made.keep,
            request=made.request,
            tokens=spend.tokens,
            usd=spend.usd,
        )
        frame = self._link.ask(call, made.result.encode())
        return frame.body.decode() if _value(frame.message) else made.result

    def note_progress(self, progress: Progress) -> None:
        """Have the progress stored with the next write."""
        self._link.say(ProgressNote(fraction=progress.fraction, message=progress.message))

    def note_spend(self, spend: Spend) -> None:
        """Have what was spent, beside calls that are recorded, stored with the next write."""
        self._link.say(SpendNote(tokens=spend.tokens, usd=spend.usd))

    def mark_bootstrap(self, tool: str) -> None:
        """Note the first tool call of the handler."""
        self._link.say(BootstrapNote(tool=tool, at=time.monotonic()))

    def mark_execution(self) -> None:
        """Note that the handler has its result."""
        self._link.say(ExecutionNote(at=time.monotonic()))

    def find_signal(self, name: str) -> FoundSignal | None:
        """Return the signal of a name; None: it has not come."""
        answer = self._link.ask(SignalCall(name=name))
        is_missed = _value(answer.message)
        return None if is_missed is None else FoundSignal(answer.body.decode(), bool(is_missed))

    def take_limit(self, name: str) -> bool:
        """Take a limit of the step; False: it has no room, and the attempt is to end."""
        return bool(_value(self._link.ask(TakeLimitCall(name=name)).message))

    def free_limit(self, name: str, retry_after_s: float | None = None) -> None:
        """Free a limit that was taken; its provider takes no more for that long. None: it does."""
        self._link.ask(FreeLimitCall(name=name, retry_after_s=retry_after_s))

    def output_of(self, step_type: str) -> str:
        """Return the output of an earlier step, JSON text."""
        call = OutputCall(step_type=cut(str(step_type), _MAX_NAME_CHARS))
        return self._link.ask(call).body.decode()

    def status_of(self, step_type: str) -> str:
        """Return the status of the output of an earlier step."""
        call = StatusCall(step_type=cut(str(step_type), _MAX_NAME_CHARS))
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
        if len(body) > MAX_FILE_BYTES:
            raise TooLargeError(what=f"file {name}", size=len(body), limit=MAX_FILE_BYTES)
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
